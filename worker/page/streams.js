/** Draws the list of streams, and the counting of the selected stream. */

import { href, FIRST } from "./address.js";
import { byId, keyed, make, write } from "./dom.js";
import { count, rate, shown } from "./text.js";

const KEPT = 60;
const rates = new Map();

/** Stores each stream's rate for its line chart. */
export function noteRates(streams) {
  for (const { name, rate: now } of streams) {
    const before = rates.get(name) ?? [];
    rates.set(name, [...before, now ?? 0].slice(-KEPT));
  }
}

export function drawStreams(streams, chosen) {
  keyed(
    byId("streams"),
    streams,
    (stream) => stream.name,
    (stream) => {
      const parts = [make("bdi", { class: "name" }), make("span", { class: "state" }), make("span", { class: "news" })];
      return make("li", {}, make("a", { href: href({ ...FIRST, stream: stream.name }) }, ...parts));
    },
    (item, stream) => {
      const [link] = item.children;
      const [name, state, news] = link.children;
      if (stream.name === chosen) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      write(name, shown(stream.name));
      state.dataset.state = stream.state === "serving" ? "serving" : "other";
      write(state, shown(stream.state));
      const { newest, windows } = stream;
      const none = windows.includes("all") ? "no snapshot yet" : "windows only";
      const facts = [newest ? `${count(newest.reports)} reports` : none, ...(stream.rate === null ? [] : [rate(stream.rate)])];
      write(news, facts.join(" · "));
    },
  );
}

/** Shows an alarm with the cause if the worker does not serve the stream. */
export function drawAlarm(stream) {
  const alarm = byId("alarm");
  alarm.hidden = stream === undefined || stream.state === "serving";
  if (!alarm.hidden) write(alarm, `This worker reports “${shown(stream.state)}”. These values may be outdated.`);
}

/** Draws the facts of counting as pairs of name and value. */
export function drawCounting(stream) {
  byId("counting").hidden = false;
  const here = Object.entries(stream.partitions);
  const counted = here.filter(([, where]) => where === "here").map(([partition]) => partition);
  const elsewhere = here.filter(([, where]) => where !== "here").map(([partition]) => partition);
  const rejected = Object.entries(stream.rejected).filter(([, number]) => number > 0);
  const facts = [
    ["State", shown(stream.state)],
    ["Rate", rate(stream.rate)],
    ["Lag in offsets", count(stream.lag)],
    ["Accepted records", count(stream.accepted)],
    ["Own partitions", counted.join(", ") || "none"],
    ["Other partitions", elsewhere.join(", ") || "none"],
    ["Topic", shown(stream.topic)],
    ["Fingerprint", shown(stream.fingerprint)],
    ["Rejected records", rejected.length === 0 ? "none" : count(rejected.reduce((sum, [, number]) => sum + number, 0))],
    ...rejected.map(([reason, number]) => [`· ${shown(reason)}`, count(number)]),
  ];
  keyed(
    byId("counted"),
    facts,
    ([name]) => name,
    () => make("div", {}, make("dt"), make("dd")),
    (row, [name, value]) => {
      write(row.firstElementChild, name);
      if (name === "Rate") drawRate(row.lastElementChild, value, rates.get(stream.name) ?? []);
      else write(row.lastElementChild, value);
    },
  );
}

const SVG = "http://www.w3.org/2000/svg";
const [WIDE, HIGH] = [72, 16];

function drawRate(cell, text, kept) {
  if (cell.childElementCount === 0) {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${WIDE} ${HIGH}`);
    svg.setAttribute("aria-hidden", "true");
    svg.append(document.createElementNS(SVG, "polyline"));
    cell.append(svg, make("span"));
  }
  const most = Math.max(1e-9, ...kept);
  const points = kept.map((now, at) => {
    const x = WIDE - ((kept.length - 1 - at) * WIDE) / (KEPT - 1);
    return `${x.toFixed(1)},${(HIGH - 1 - (now / most) * (HIGH - 2)).toFixed(1)}`;
  });
  cell.querySelector("polyline").setAttribute("points", points.join(" "));
  write(cell.lastElementChild, text);
}
