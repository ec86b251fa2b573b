/** A snapshot as people read it: its numbers, its values, its queries. */

import { drawBars } from "./bars.js";
import { byId, choices, keyed, make, write } from "./dom.js";
import { MEANS } from "./methods.js";
import { drawSides } from "./sides.js";
import { between, count, digitsOf, percent, periodOf, shown } from "./text.js";

/** How many values a page has. */
export const PAGE = 25;

/** Draws what `excerpt` says as `place` asks for it; `go` takes what is to be looked at instead. */
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
  const { window, document: said } = excerpt;
  const epsilon = excerpt.epsilon ?? said.epsilon;
  write(byId("facts"), `${shown(said.protocol).toUpperCase()} · ${count(excerpt.domain_size)} values`);
  write(byId("reports"), count(excerpt.reports));
  write(byId("reports-means"), `${periodSaid(window)}. A person may send several.`);
  const spent = quotient(epsilon);
  write(byId("epsilon"), Number.isFinite(spent) ? short(spent, String(epsilon)) : "—");
  const times = Math.exp(spent);
  write(byId("epsilon-times"), Number.isFinite(times) ? ` = ${times < 1000 ? times.toFixed(2) : count(times)}` : "");
  write(byId("error"), Number.isFinite(excerpt.standard_error) ? `± ${percent(excerpt.standard_error, digits)} %` : "—");
  write(byId("sequence"), `#${count(excerpt.sequence)}`);
  write(byId("complete"), completeSaid(excerpt));
  byId("complete").classList.toggle("marked", !excerpt.complete);
}

/** A document's ε as a number: a decimal, or a fraction such as 1/3. */
function quotient(text) {
  const [over, under = "1"] = String(text).split("/");
  return Number(over) / Number(under);
}

/** As a decimal if that is short, else as a fraction if that is. */
function short(number, text) {
  const exact = [String(number), text].find((said) => said.length <= 8);
  return exact ?? `≈ ${number.toPrecision(5)}`;
}

function periodSaid(window) {
  if (window.start === null) return "Of all time";
  const period = { start: milliseconds(window.start), end: milliseconds(window.end) };
  return `${periodOf(period)}, ${window.final ? "final" : "provisional: late reports still count"}`;
}

function completeSaid({ complete, gaps, uncounted }) {
  if (complete) return "Complete: every report up to here, each counted exactly once.";
  const lost = Object.entries(gaps ?? {}).map(([partition, ranges]) => {
    const records = ranges.reduce((sum, [begin, end]) => sum + end - begin, 0);
    return `${count(records)} records of partition ${partition} were lost before they were counted`;
  });
  const out = (uncounted ?? []).map((partition) => `partition ${partition} is left out`);
  return `▲ Incomplete: ${[...lost, ...out].join("; ") || "something was lost before it was counted"}.`;
}

function drawChoices(excerpt, { method, anytime, sides, level }, go) {
  const { published } = excerpt;
  const views = [
    { value: "one", text: "One method" },
    { value: "all", text: "All side by side" },
  ];
  choices(byId("views"), published.length > 1 ? views : [], sides ? "all" : "one", (view) => go({ view }));
  const intervals = [
    { value: "pointwise", text: `${level}, pointwise` },
    { value: "anytime", text: `${level}, anytime-valid` },
  ];
  const offered = !sides && hasAnytime(excerpt) ? intervals : [];
  choices(byId("intervals"), offered, anytime ? "anytime" : "pointwise", (interval) => go({ interval }));
  const options = published.map((name) => ({ value: name, text: name, title: MEANS[name] ?? "" }));
  choices(byId("methods"), sides ? [] : options, method, (name) => go({ method: name }));
  byId("method-means").hidden = sides;
  byId("interval-means").hidden = sides;
  const sum = excerpt.sums[method];
  const adds = Number.isFinite(sum) ? ` All values add up to ${percent(sum, 1)} %.` : "";
  write(byId("method-means"), `${method}: ${MEANS[method] ?? "as it is published."}${adds}`);
  const meant = anytime
    ? `Each interval holds with ${level} at all times together: it is anytime-valid, so you can stop watching at any time.`
    : `Each interval holds its value with ${level} at one time chosen in advance.`;
  const kept = method === "base" ? "" : " It is Base’s, whatever the method.";
  const poisoning = " Poisoning tolerance: the fewest poisoning reports that would move the estimate out of its interval.";
  write(byId("interval-means"), excerpt.values.some((row) => "low" in row) ? meant + kept + poisoning : "");
}

/** Only Base has intervals; under another method's name they are still Base's. */
function whose(method) {
  return method === "base" ? "" : "Base’s ";
}

function intervalSaid(method, level) {
  return `${whose(method)}${level} interval`;
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
  write(byId("empty"), place.find === "" ? "There are no values here." : `No value’s name has “${shown(place.find)}” in it.`);
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
    drawBars(byId("values"), { rows, digits, caption, interval: intervalSaid(method, level) });
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
      said: setOf(query, query.labels),
      fraction: query.answers[method],
      ...ends(query, anytime),
      tolerance: query.poisoning_tolerance,
      recommended: query.recommended?.method,
    }));
    const told = queries.some((query) => query.recommended);
    const kept = told ? rows.map((row) => ({ ...row, recommended: row.recommended ?? "none" })) : rows;
    drawBars(byId("queries"), { rows: kept, digits, caption, what: "Query", interval: intervalSaid(method, level) });
  }
  write(byId("questions-means"), recommendedSaid([...queries, ...top]));
}

function recommendedSaid(all) {
  const chosen = all.flatMap(({ recommended }) => (recommended ? [recommended.sequence] : []));
  if (chosen.length === 0) return "No method is recommended yet: none is clearly best, or none was looked for.";
  const from = `collections much like that of snapshot #${count(Math.max(...chosen))}`;
  return `Recommended is the method that was clearly nearest to the truth when ${from} were simulated; where none was, none is.`;
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
      const interval = `${whose(method)}${level}, all together`;
      drawBars(table, { rows, digits, caption: `${shown(query.name)} by ${method}, in percent`, interval });
    },
  );
}

/** One line of it for those who hear it. */
export function saidOf(excerpt) {
  const [first] = excerpt.values;
  const method = excerpt.published[0];
  const digits = digitsOf(excerpt.standard_error);
  const most =
    first === undefined
      ? ""
      : `, ${shown(labelOf(first))} ${percent(first.frequencies[method], digits)} %, ${between(first.low, first.high, digits)}`;
  return `${count(excerpt.reports)} reports${most}`;
}
