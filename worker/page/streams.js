/** Draws the list of streams, and the counting of the selected stream. */

import { href, FIRST } from "./address.js";
import { now } from "./clock.js";
import { byId, keyed, make, write } from "./dom.js";
import { age, count, rate, shown } from "./text.js";

const LATE_MS = 20_000; // beyond three intervals: large snapshots take some seconds
const waits = new Map();

/** Stores since when each stream's reports wait for a snapshot. */
export function noteStreams(streams) {
  for (const { name, rate: fresh, published } of streams) {
    const wait = waits.get(name);
    if (!(fresh > 0)) waits.delete(name);
    else if (wait?.published !== published) waits.set(name, { published, since: performance.now() });
  }
}

/** Forgets since when reports wait: without a connection, the page receives no newer snapshot. */
export function forgetWaits() {
  waits.clear();
}

/** Returns whether reports wait for a snapshot for longer than three intervals. */
function isLate({ name, every_seconds: every, published }) {
  if (every === null || published === null || !waits.has(name)) return false;
  return performance.now() - waits.get(name).since > 3000 * every + LATE_MS;
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

/** Shows an alarm if the worker does not serve the stream, or if its snapshot is late. */
export function drawAlarm(stream) {
  const alarm = byId("alarm");
  const serving = stream === undefined || stream.state === "serving";
  const late = stream !== undefined && isLate(stream);
  alarm.hidden = serving && !late;
  if (!serving) write(alarm, `This worker reports “${shown(stream.state)}”. These values may be outdated.`);
  else if (late) {
    const when = `published ${age(now() - stream.published)}, although reports arrive and the interval is ${stream.every_seconds}\u00a0s`;
    write(alarm, `The newest snapshot was ${when}. These values are outdated. The publisher’s /readyz names the cause.`);
  }
}

/** Draws the privacy loss to readers of snapshots, if the stream has a bound. */
export function drawReaders({ privacy_loss: loss }) {
  byId("readers").hidden = typeof loss?.readers !== "number";
  if (!byId("readers").hidden) write(byId("readers-loss"), `ε ≤ ${loss.readers} with δ = ${loss.delta}`);
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
      write(row.lastElementChild, value);
    },
  );
}
