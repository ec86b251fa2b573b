/** Draws a snapshot: numbers, values and queries. */

import { drawBars } from "./bars.js";
import { byId, choices, keyed, make, write } from "./dom.js";
import { MEANS } from "./methods.js";
import { drawSides } from "./sides.js";
import { between, count, digitsOf, percent, periodOf, shown } from "./text.js";

/** Number of values per page. */
export const PAGE = 25;

/** Draws an excerpt of a snapshot for the view `place`; `go` changes the view. */
export function drawExcerpt(excerpt, place, go) {
  const { published } = excerpt;
  const method = published.includes(place.method) ? place.method : published[0];
  const anytime = place.interval === "anytime" && hasAnytime(excerpt);
  const view = {
    method,
    anytime,
    sides: place.view === "all" && published.length > 1,
    digits: digitsOf(excerpt.standard_error),
    level: `${percent(excerpt.level, 1).replace(/\.0$/, "")} %`,
  };
  drawNumbers(excerpt, view);
  drawChoices(excerpt, view, go);
  drawValues(excerpt, place, view);
  drawQueries(excerpt, view);
  drawTops(excerpt, view);
}

function hasAnytime({ values, queries }) {
  return [...values, ...queries].some((row) => row.anytime_low !== undefined && row.anytime_low !== null);
}

function milliseconds(date) {
  return typeof date === "string" ? Date.parse(date) : date;
}

function drawNumbers(excerpt, { digits }) {
  const { window, document: parameters } = excerpt;
  const epsilon = excerpt.epsilon ?? parameters.epsilon;
  write(byId("facts"), `${shown(parameters.protocol).toUpperCase()} · ${count(excerpt.domain_size)} values`);
  write(byId("reports"), count(excerpt.reports));
  write(byId("reports-means"), `${periodText(window)}. A device may send several reports.`);
  const loss = quotient(epsilon);
  write(byId("epsilon"), Number.isFinite(loss) ? short(loss, String(epsilon)) : "—");
  const times = Math.exp(loss);
  write(byId("epsilon-times"), Number.isFinite(times) ? ` = ${times < 1000 ? times.toFixed(2) : count(times)}` : "");
  write(byId("error"), Number.isFinite(excerpt.standard_error) ? `± ${percent(excerpt.standard_error, digits)} %` : "—");
  write(byId("sequence"), `#${count(excerpt.sequence)}`);
  write(byId("complete"), completeText(excerpt));
  byId("complete").classList.toggle("marked", !excerpt.complete);
}

/** Parses a document's ε: a decimal number, or a fraction such as 1/3. */
function quotient(text) {
  const [over, under = "1"] = String(text).split("/");
  return Number(over) / Number(under);
}

/** Formats ε exactly as a short decimal or fraction, else rounded. */
function short(number, text) {
  const exact = [String(number), text].find((form) => form.length <= 8);
  return exact ?? `≈ ${number.toPrecision(5)}`;
}

function periodText(window) {
  if (window.start === null) return "All time";
  const period = { start: milliseconds(window.start), end: milliseconds(window.end) };
  return `${periodOf(period)}, ${window.final ? "final" : "provisional: delayed reports still count"}`;
}

function completeText({ complete, gaps, uncounted }) {
  if (complete) return "Complete: includes every report up to this snapshot, counted exactly once.";
  const lost = Object.entries(gaps ?? {}).map(([partition, ranges]) => {
    const records = ranges.reduce((sum, [begin, end]) => sum + end - begin, 0);
    return `${count(records)} records of partition ${partition} were lost before they were counted`;
  });
  const missing = (uncounted ?? []).map((partition) => `partition ${partition} has no counts`);
  return `▲ Incomplete: ${[...lost, ...missing].join("; ") || "records were lost before they were counted"}.`;
}

function drawChoices(excerpt, { method, anytime, sides, level }, go) {
  const { published } = excerpt;
  const views = [
    { value: "one", text: "One method" },
    { value: "all", text: "All methods" },
  ];
  choices(byId("views"), published.length > 1 ? views : [], sides ? "all" : "one", (view) => go({ view }));
  const intervals = [
    { value: "pointwise", text: `pointwise ${level}` },
    { value: "anytime", text: `anytime-valid ${level}` },
  ];
  const offered = !sides && hasAnytime(excerpt) ? intervals : [];
  choices(byId("intervals"), offered, anytime ? "anytime" : "pointwise", (interval) => go({ interval }));
  const options = published.map((name) => ({ value: name, text: name, title: MEANS[name] ?? "" }));
  choices(byId("methods"), sides ? [] : options, method, (name) => go({ method: name }));
  byId("method-means").hidden = sides;
  byId("interval-means").hidden = sides;
  const sum = excerpt.sums[method];
  const total = Number.isFinite(sum) ? ` The sum of all values is ${percent(sum, 1)} %.` : "";
  write(byId("method-means"), `${method}: ${MEANS[method] ?? "a published method."}${total}`);
  const coverage = anytime
    ? `An anytime-valid interval covers the true frequency with ${level} simultaneously at all times, so you can stop at any time.`
    : `A pointwise interval covers the true frequency with ${level} at one time that you choose in advance.`;
  const ofBase = method === "base" ? "" : " Only Base has intervals, so this method shows those of Base.";
  const poisoning = " Poisoning tolerance: the fewest additional reports that move the estimate out of its interval.";
  write(byId("interval-means"), excerpt.values.some((row) => "low" in row) ? coverage + ofBase + poisoning : "");
}

/** Names Base in the title of an interval under another method, because only Base has intervals. */
function intervalTitle(method, title) {
  return method === "base" ? title : `${title} of Base`;
}

function ends(row, anytime) {
  if (!anytime) return { low: row.low, high: row.high };
  return { low: row.anytime_low, high: row.anytime_high };
}

function labelOf({ label, value }) {
  return label === null || label === undefined ? String(value) : label;
}

function drawValues(excerpt, place, { method, anytime, sides, digits, level }) {
  const { values, matching, offset } = excerpt;
  byId("values").hidden = sides || values.length === 0;
  byId("sides-box").hidden = !sides || values.length === 0;
  byId("empty").hidden = values.length > 0;
  write(byId("empty"), place.find === "" ? "There are no values on this page." : `No label contains “${shown(place.find)}”.`);
  const caption = `Values by ${sides ? "all methods" : method}, of ${count(excerpt.reports)} reports, in percent`;
  if (sides) {
    const rows = values.map((row, at) => ({ key: at, label: labelOf(row), frequencies: row.frequencies }));
    const { published: methods, sums, domain_size: domain } = excerpt;
    drawSides(byId("sides"), { rows, methods, digits, caption, sums, domain });
  } else {
    const rows = values.map((row, at) => ({
      key: at,
      rank: offset + at + 1,
      label: labelOf(row),
      fraction: row.frequencies[method],
      ...ends(row, anytime),
      tolerance: row.poisoning_tolerance,
    }));
    drawBars(byId("values"), { rows, digits, caption, interval: intervalTitle(method, `${level} interval`) });
  }
  const last = offset + values.length;
  byId("pages").hidden = matching <= PAGE && offset === 0;
  write(byId("range"), values.length === 0 ? "none" : `${count(offset + 1)} – ${count(last)} of ${count(matching)}`);
  byId("previous").setAttribute("aria-disabled", String(offset === 0));
  byId("next").setAttribute("aria-disabled", String(last >= matching));
}

function setOf(query, labels) {
  const known = labels ?? query.values.map(String);
  return { labels: known, size: query.size ?? known.length };
}

function drawQueries(excerpt, { method, anytime, sides, digits, level }) {
  const { queries, top, published } = excerpt;
  byId("questions").hidden = queries.length + top.length === 0;
  byId("queries").hidden = sides || queries.length === 0;
  byId("queries-sides-box").hidden = !sides || queries.length === 0;
  const caption = `Queries by ${sides ? "all methods" : method}, in percent`;
  if (sides) {
    const rows = queries.map((query) => ({ key: query.name, label: query.name, frequencies: query.answers }));
    drawSides(byId("queries-sides"), { rows, methods: published, digits, caption, what: "Query" });
  } else {
    const rows = queries.map((query) => ({
      key: query.name,
      label: query.name,
      set: setOf(query, query.labels),
      fraction: query.answers[method],
      ...ends(query, anytime),
      tolerance: query.poisoning_tolerance,
      recommended: query.recommended?.method,
    }));
    const some = queries.some((query) => query.recommended);
    const filled = some ? rows.map((row) => ({ ...row, recommended: row.recommended ?? "none" })) : rows;
    const interval = intervalTitle(method, `${level} interval`);
    drawBars(byId("queries"), { rows: filled, digits, caption, what: "Query", interval });
  }
  write(byId("questions-means"), recommendedText([...queries, ...top]));
}

function recommendedText(all) {
  const chosen = all.flatMap(({ recommended }) => (recommended ? [recommended.sequence] : []));
  if (chosen.length === 0) return "No method is recommended yet: no method is clearly best, or the simulations have not run.";
  const source = `simulations of data like snapshot #${count(Math.max(...chosen))}`;
  return `The recommended method was clearly closest to the truth in ${source}. “none”: no method was clearly closest.`;
}

function drawTops(excerpt, { method, digits, level }) {
  keyed(
    byId("tops"),
    excerpt.top,
    (query) => query.name,
    () => {
      const table = make("table", { class: "bars", role: "table" });
      return make("section", {}, make("h3", {}, make("bdi"), make("span", { class: "of" })), table);
    },
    (section, query) => {
      const [title, table] = section.children;
      write(title.firstElementChild, shown(query.name));
      const recommended = query.recommended ? `recommended: ${query.recommended.method}` : "";
      write(title.lastElementChild, recommended);
      const answers = query.answers[method] ?? [];
      const rows = query.values.map((value, at) => ({
        key: at,
        rank: at + 1,
        label: labelOf({ label: query.labels?.[at], value }),
        fraction: answers[at] ?? null,
        low: query.low?.[at],
        high: query.high?.[at],
      }));
      const interval = intervalTitle(method, `simultaneous ${level} interval`);
      drawBars(table, { rows, digits, caption: `${shown(query.name)} by ${method}, in percent`, interval });
    },
  );
}

/** Summarizes an excerpt in one line for screen readers. */
export function summaryOf(excerpt) {
  const [first] = excerpt.values;
  const method = excerpt.published[0];
  const digits = digitsOf(excerpt.standard_error);
  const most =
    first === undefined
      ? ""
      : `, ${shown(labelOf(first))} ${percent(first.frequencies[method], digits)} %, ${between(first.low, first.high, digits)}`;
  return `${count(excerpt.reports)} reports${most}`;
}
