/** Draws a snapshot: numbers, values and queries. */

import { drawBars } from "./bars.js";
import { FIRST } from "./address.js";
import { byId, choices, keyed, make, write } from "./dom.js";
import { MEANS } from "./methods.js";
import { drawSides } from "./sides.js";
import { between, count, digitsOf, percent, periodOf, share, shown, users } from "./text.js";

/** Number of values per page. */
export const PAGE = 25;

/** Draws an excerpt of a snapshot for the view `place`; `go` changes the view. */
export function drawExcerpt(excerpt, place, go) {
  const { methods } = excerpt;
  const method = [place.method, FIRST.method, methods[0]].find((name) => methods.includes(name));
  const anytime = place.interval === "anytime" && has("anytime_low", excerpt);
  const view = {
    method,
    anytime,
    sides: place.view === "all" && methods.length > 1,
    digits: digitsOf(excerpt.standard_error),
    level: `${percent(excerpt.level, 1).replace(/\.0$/, "")} %`,
  };
  drawNumbers(excerpt, view);
  drawChoices(excerpt, view, go);
  drawTexts(excerpt, view);
  drawLinks(excerpt, place, view);
  drawValues(excerpt, place, view);
  drawQueries(excerpt, view);
  drawTops(excerpt, view);
}

function has(end, { values, queries }) {
  return [...values, ...queries].some((row) => (row[end] ?? null) !== null);
}

function milliseconds(date) {
  return typeof date === "string" ? Date.parse(date) : date;
}

function drawNumbers(excerpt, { digits }) {
  const { window, document: parameters } = excerpt;
  const { documents = [] } = excerpt;
  const several = documents.map((document) => document.epsilon).toSorted((a, b) => quotient(b) - quotient(a));
  const epsilon = several[0] ?? excerpt.epsilon ?? parameters.epsilon;
  const what = several.length > 0 ? `${count(several.length)} documents` : shown(parameters.protocol).toUpperCase();
  write(byId("facts"), `${what} · ${count(excerpt.domain_size)} values`);
  write(byId("reports"), count(excerpt.reports));
  const withheld = excerpt.withheld ? ` ${count(excerpt.withheld)} more reports are withheld, because their panes have too few.` : "";
  write(byId("reports-means"), `${periodText(window)}.${withheld} A device may send several reports.`);
  const loss = quotient(epsilon);
  write(byId("epsilon"), Number.isFinite(loss) ? short(loss, String(epsilon)) : "—");
  const times = Math.exp(loss);
  write(byId("epsilon-times"), Number.isFinite(times) ? ` = ${times < 1000 ? times.toFixed(2) : count(times)}` : "");
  write(byId("error"), Number.isFinite(excerpt.standard_error) ? `± ${share(excerpt.standard_error, digits)}` : "—");
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
  if (window.name === "late") return "In no window: late or undated reports, and panes with too few";
  if (window.start === null) return "All time";
  const period = { start: milliseconds(window.start), end: milliseconds(window.end) };
  return `${periodOf(period)}, ${window.final ? "final" : "provisional: delayed reports still count"}`;
}

function completeText({ complete, gaps, uncounted, withheld, privacy_loss: limited }) {
  if (complete) {
    const held = (withheld ?? limited ?? null) === null ? "" : " Reports are withheld until there are enough of them.";
    return `Complete: no report up to this snapshot was lost, and none is counted twice.${held}`;
  }
  const lost = Object.entries(gaps ?? {}).map(([partition, ranges]) => {
    const records = ranges.reduce((sum, [begin, end]) => sum + end - begin, 0);
    return `${count(records)} records of partition ${partition} were lost before they were counted`;
  });
  const missing = (uncounted ?? []).map((partition) => `partition ${partition} has no counts`);
  return `▲ Incomplete: ${[...lost, ...missing].join("; ") || "records were lost before they were counted"}.`;
}

function drawChoices(excerpt, { method, anytime, sides, level }, go) {
  const { methods, of } = excerpt;
  const views = [
    { value: "one", text: "One method" },
    { value: "all", text: "All methods" },
  ];
  choices(byId("views"), methods.length > 1 ? views : [], sides ? "all" : "one", (view) => go({ view }));
  const intervals = [
    { value: "pointwise", text: `pointwise ${level}` },
    { value: "anytime", text: `anytime-valid ${level}` },
  ];
  const offered = !sides && has("anytime_low", excerpt) ? intervals : [];
  choices(byId("intervals"), offered, anytime ? "anytime" : "pointwise", (interval) => go({ interval }));
  const covered = [
    { value: "reports", text: "among reports" },
    { value: "population", text: "in the population" },
  ];
  const one = (excerpt.documents ?? []).length === 0;
  choices(byId("covered"), one && !sides && has("low", excerpt) ? covered : [], of, (other) => go({ of: other }));
  const options = methods.map((name) => ({ value: name, text: name, means: MEANS[name] ?? "a published method." }));
  choices(byId("methods"), options, method, (name) => go({ method: name }));
  byId("choice").hidden = sides || methods.length < 2;
}

/** Explains the method and its interval, and draws the legend of bars and whiskers. */
function drawTexts(excerpt, { method, anytime, sides, level }) {
  const sum = excerpt.sums[method];
  const total = Number.isFinite(sum) ? ` The sum of all values is ${percent(sum, 1)} %.` : "";
  write(byId("method-name"), method);
  write(byId("method-means"), `${MEANS[method] ?? "a published method."}${total}`);
  const intervals = !sides && has("low", excerpt);
  byId("legend").hidden = sides;
  byId("legend-interval").hidden = !intervals;
  write(byId("legend-bar"), `Estimate by ${method}`);
  const covered = excerpt.of === "population" ? "share in the population" : "share among reports";
  write(byId("legend-whisker"), `${intervalTitle({ method, anytime, level })}: ${covered}`);
  byId("interval-means").hidden = !intervals;
  const reports = `the share among the ${count(excerpt.reports)} reports`;
  const what = excerpt.of === "population" ? "the share in the population, if the users are an independent sample of it," : reports;
  const when = anytime
    ? "simultaneously at all times, so you can stop at any time"
    : "at one time that you choose in advance";
  const name = anytime ? "An anytime-valid" : "A pointwise";
  const ofBase = method === "base" ? "" : " Only Base has intervals, so this method shows those of Base.";
  const more =
    excerpt.of === "population"
      ? " Anytime-valid intervals and poisoning tolerances exist for the reports only."
      : " Poisoning tolerance: the fewest additional reports that move Base out of its interval.";
  write(byId("interval-means"), `${name} interval covers ${what} with ${level} ${when}.${ofBase}${more}`);
}

/** Names Base in the title of an interval under another method, because only Base has intervals. */
function intervalTitle({ method, anytime, level }, more = "") {
  return `${anytime ? "Anytime-valid" : "Pointwise"} ${level}${method === "base" ? "" : " of Base"}${more}`;
}

/** Links the data of the view: all values by the shown methods. */
function drawLinks({ stream, of, methods }, place, { method, sides }) {
  const query = [];
  if (place.window !== FIRST.window) query.push(["window", place.window]);
  if (place.start !== "") query.push(["start", place.start]);
  const link = (form, more) => {
    const given = String(new URLSearchParams([...query, ...more]));
    return `streams/${encodeURIComponent(stream)}/${form}${given === "" ? "" : `?${given}`}`;
  };
  const shown = sides ? [] : [...new Set([method, ...(methods.includes("base") ? ["base"] : [])])].map((name) => ["method", name]);
  write(byId("linked"), `All values by ${sides ? "all methods" : method}:`);
  byId("csv").href = link("values.csv", of === "population" ? [...shown, ["of", of]] : shown);
  byId("json").href = link("snapshot", shown);
}

function ends(row, anytime) {
  if (!anytime) return { low: row.low, high: row.high };
  return { low: row.anytime_low, high: row.anytime_high };
}

function labelOf({ label, value }) {
  return label ?? String(value);
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
    const { methods, sums, domain_size: domain } = excerpt;
    drawSides(byId("sides"), { rows, methods, digits, caption, sums, domain });
  } else {
    const rows = values.map((row, at) => ({
      key: at,
      rank: offset + at + 1,
      label: labelOf(row),
      ...estimated({ ...excerpt, reports: row.known ?? excerpt.reports }, row.frequencies[method]),
      known: row.known,
      ...ends(row, anytime),
      tolerance: row.poisoning_tolerance,
    }));
    drawBars(byId("values"), { rows, digits, caption, interval: intervalTitle({ method, anytime, level }) });
  }
  const last = offset + values.length;
  byId("pages").hidden = matching <= PAGE && offset === 0;
  write(byId("range"), values.length === 0 ? "none" : `${count(offset + 1)} – ${count(last)} of ${count(matching)}`);
  byId("previous").setAttribute("aria-disabled", String(offset === 0));
  byId("next").setAttribute("aria-disabled", String(last >= matching));
}

function estimated({ reports, standard_error: error }, fraction) {
  return { fraction, users: users(fraction, reports, error) };
}

function setOf(query, labels) {
  const known = labels ?? query.values.map(String);
  return { labels: known, size: query.size ?? known.length };
}

function drawQueries(excerpt, { method, anytime, sides, digits, level }) {
  const { queries, top, methods } = excerpt;
  byId("questions").hidden = queries.length + top.length === 0;
  byId("queries").hidden = sides || queries.length === 0;
  byId("queries-sides-box").hidden = !sides || queries.length === 0;
  const caption = `Queries by ${sides ? "all methods" : method}, in percent`;
  if (sides) {
    const rows = queries.map((query) => ({ key: query.name, label: query.name, frequencies: query.answers }));
    drawSides(byId("queries-sides"), { rows, methods, digits, caption, what: "Query" });
  } else {
    const rows = queries.map((query) => ({
      key: query.name,
      label: query.name,
      set: setOf(query, query.labels),
      ...estimated({ ...excerpt, reports: query.known ?? excerpt.reports }, query.answers[method]),
      known: query.known,
      ...ends(query, anytime),
      tolerance: query.poisoning_tolerance,
      recommended: query.recommended?.method,
    }));
    const some = queries.some((query) => query.recommended);
    const filled = some ? rows.map((row) => ({ ...row, recommended: row.recommended ?? "none" })) : rows;
    const interval = intervalTitle({ method, anytime, level });
    drawBars(byId("queries"), { rows: filled, digits, caption, what: "Query", interval });
  }
  const several = (excerpt.documents ?? []).length > 0;
  const none = "No method is recommended for a stream of several documents.";
  write(byId("questions-means"), several ? none : recommendedText([...queries, ...top]));
}

function recommendedText(all) {
  const chosen = all.flatMap(({ recommended }) => (recommended ? [recommended.sequence] : []));
  if (chosen.length === 0) return "No method is recommended yet: no method is clearly best, or the simulations have not run.";
  const source = `simulations of data like snapshot #${count(Math.max(...chosen))}`;
  return `The recommended method was clearly closest to the truth in ${source}. “none”: no method was clearly closest.`;
}

function drawTops(excerpt, { method, anytime, digits, level }) {
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
        ...estimated(excerpt, answers[at] ?? null),
        ...(anytime
          ? { low: query.anytime_low?.[at], high: query.anytime_high?.[at] }
          : { low: query.low?.[at], high: query.high?.[at] }),
      }));
      const interval = intervalTitle({ method, anytime, level }, ", all together");
      drawBars(table, { rows, digits, caption: `${shown(query.name)} by ${method}, in percent`, interval });
    },
  );
}

/** Summarizes an excerpt in one line for screen readers. */
export function summaryOf(excerpt) {
  const [first] = excerpt.values;
  const [method] = excerpt.methods;
  const digits = digitsOf(excerpt.standard_error);
  const most =
    first === undefined
      ? ""
      : `, ${shown(labelOf(first))} ${share(first.frequencies[method], digits)}, ${between(first.low, first.high, digits)}`;
  return `${count(excerpt.reports)} reports${most}`;
}
