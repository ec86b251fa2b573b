/** The page: what the address asks for is read from the worker, drawn, and drawn again when there is something newer. */

import { FIRST, href, read } from "./address.js";
import { byId, keyed, make, reveal, write } from "./dom.js";
import { PAGE, drawExcerpt, saidOf } from "./excerpt.js";
import { parse } from "./json.js";
import { Live } from "./live.js";
import { drawAlarm, drawCounting, drawStreams, noteRates } from "./streams.js";
import { shown } from "./text.js";
import { drawWindows } from "./windows.js";

const SAID_EVERY_MS = 20_000;
const TYPED_MS = 200;
const WAIT_MS = 2000;
const ANSWER_MS = 10_000;

let place = read();
let streams = null;
let excerpt = null;
let asking = null;
let again = false;
let waiting = null;
let drawn = ""; // which snapshot the excerpt is of
let unread = 0;
let telling = null;
let saidAt = -Infinity;
let lostAt = null;

const live = new Live({
  state: drawState,
  streams(list) {
    const first = streams === null;
    streams = list;
    noteRates(list);
    settle();
    drawList();
    if (first) reveal(byId("streams"));
    if (excerpt === null) load();
  },
  snapshot({ stream, window }) {
    const meant = stream === place.stream && window.name === place.window;
    const start = typeof window.start === "string" ? Date.parse(window.start) : window.start;
    if (meant && (place.start === "" || place.start === String(start))) load();
  },
});

/** Goes elsewhere; what is another thing to look at gets a place in the browser's history. */
function go(change) {
  const next = { ...place, ...change };
  if (!("offset" in change) && !("method" in change || "interval" in change || "view" in change)) next.offset = FIRST.offset;
  const other = ["stream", "window", "start"].some((key) => next[key] !== place[key]);
  history[other ? "pushState" : "replaceState"](null, "", href(next));
  arrive(next);
}

/** Which snapshot a place looks at. */
function which({ stream, window, start }) {
  return JSON.stringify([stream, window, start]);
}

function arrive(next) {
  const before = place;
  place = next;
  settle();
  drawList();
  const same = ["stream", "window", "start", "sort", "find", "offset"].every((key) => before[key] === place[key]);
  if (which(before) !== which(place)) {
    clearTimeout(telling);
    saidAt = -Infinity;
  }
  if (before.stream !== place.stream) {
    blank();
    reveal(byId("streams"));
  }
  if (before.window !== place.window || before.start !== place.start) reveal(byId("strip"));
  if (same && excerpt !== null) draw();
  else load();
}

/** Looks at a stream and windows that there are, where the address names none. */
function settle() {
  if (streams !== null && streams.length > 0) {
    const stream = place.stream === "" ? streams[0] : streams.find(({ name }) => name === place.stream);
    if (stream !== undefined && place.stream === "") place = { ...place, stream: stream.name };
    if (stream !== undefined && place.window === FIRST.window && !stream.windows.includes(FIRST.window)) {
      place = { ...place, window: stream.windows[0] };
    }
  }
  if (href(place) !== location.hash && streams !== null) history.replaceState(null, "", href(place));
  live.watch(place.stream, place.window);
}

function drawList() {
  if (streams === null) return;
  drawStreams(streams, place.stream);
  const title = place.stream === "" ? "No streams" : shown(place.stream);
  write(byId("title"), title);
  document.title = `${title} · ldp-worker`;
  const stream = streams.find(({ name }) => name === place.stream);
  byId("counting").hidden = stream === undefined;
  drawAlarm(stream);
  if (stream !== undefined) {
    drawCounting(stream);
    drawWindows(stream, place, go);
  }
  const back = byId("back");
  back.hidden = place.start === "" && place.window === FIRST.window;
  back.href = href({ ...place, window: FIRST.window, start: "", offset: FIRST.offset });
}

/** Asks for what is looked at; of several askings at once the last one counts. */
async function load() {
  clearTimeout(waiting);
  if (streams === null || document.hidden) return; // whoever is seen again is connected again, and loads
  const wanted = JSON.stringify([place.stream, place.window, place.start, place.sort, place.find, place.offset]);
  if (asking !== null && asking.wanted === wanted) {
    again = true;
    return;
  }
  asking?.control.abort();
  const mine = { wanted, control: new AbortController() };
  asking = mine;
  again = false;
  const limit = setTimeout(() => mine.control.abort(), ANSWER_MS);
  let answer = null;
  let said = null;
  try {
    answer = await fetch(source(), { signal: mine.control.signal });
    said = parse(await answer.text());
  } catch {
    answer = null; // cut off, or no longer wanted
  }
  clearTimeout(limit);
  if (asking !== mine) return;
  asking = null;
  if (answer === null) unanswered("The worker does not answer.", "");
  else take(answer.status, said);
  if (again) load();
}

function source() {
  const asked = { sort: place.sort, offset: place.offset, top: String(PAGE) };
  if (place.window !== FIRST.window) asked.window = place.window;
  if (place.start !== "") asked.start = place.start;
  if (place.find !== "") asked.find = place.find;
  return `streams/${encodeURIComponent(place.stream)}/excerpt?${new URLSearchParams(asked)}`;
}

function take(status, said) {
  if (status === 200) {
    const before = excerpt;
    [excerpt, drawn, unread] = [said, which(place), 0];
    note(null);
    draw();
    if (before?.snapshot !== said.snapshot || before?.sequence !== said.sequence) tell();
  } else if (status === 404 || status === 400) {
    blank();
    if (status === 404) noteGone(said);
    else note(shown(said.error));
  } else unanswered("The snapshots are not read yet.", shown(said.error));
}

/** Asks again later. What is shown stays meanwhile if it is of what is looked at, and is said to be old if that lasts. */
function unanswered(text, means) {
  waiting = setTimeout(load, WAIT_MS);
  unread += 1;
  if (excerpt === null || drawn !== which(place)) {
    blank();
    note(text, means);
  } else if (unread > 1) note("The snapshot cannot be read now. What is shown may be old.", means);
}

/** Shows no snapshot. */
function blank() {
  excerpt = null;
  byId("shown").hidden = true;
  write(byId("facts"), "");
  write(byId("said"), "");
}

function draw() {
  const unseen = byId("shown").hidden;
  byId("shown").hidden = false;
  if (document.activeElement !== byId("find-text")) byId("find-text").value = place.find;
  byId("sort").value = place.sort === "value" ? "value" : "base";
  drawExcerpt(excerpt, place, go);
  if (unseen) for (const strip of [byId("strip"), byId("methods").querySelector("div")]) reveal(strip);
}

/** Says the newest number to those who hear the page, not more often than one can listen to. */
function tell() {
  clearTimeout(telling);
  const left = saidAt + SAID_EVERY_MS - performance.now();
  if (left > 0) {
    telling = setTimeout(tell, left);
  } else if (excerpt !== null) {
    saidAt = performance.now();
    write(byId("said"), saidOf(excerpt));
  }
}

function noteGone(said) {
  const stream = streams.find(({ name }) => name === place.stream);
  if (stream === undefined) {
    const others = streams.map(({ name }) => [shown(name), { ...FIRST, stream: name }]);
    note(`This worker serves no stream named ${shown(place.stream)}.`, "", others);
    return;
  }
  const newest = { ...place, start: "", offset: FIRST.offset };
  const ways = [
    [`The newest of ${place.window}`, newest],
    ["All time", { ...newest, window: FIRST.window }],
  ].filter(([, to]) => stream.windows.includes(to.window) && href(to) !== href(place));
  const coming = "The first one appears here by itself, as soon as it is published.";
  const forged = "The stream’s head does not name them with their number. Check who may write to the snapshot topic.";
  if (said.unnamed) note("Messages on the snapshot topic are not shown.", forged, ways);
  else if (place.window === FIRST.window) note("There is no snapshot yet.", coming, ways);
  else if (place.start === "") note(`There is no window of ${shown(place.window)} yet.`, coming, ways);
  else note("This window is no longer on the topic.", "", ways);
}

/** Says something above all else, what it means, and ways on from there; null to say nothing. */
function note(text, means = "", ways = []) {
  byId("notice").hidden = text === null;
  if (text === null) return;
  write(byId("notice-said"), text);
  write(byId("notice-means"), means);
  byId("notice-means").hidden = means === "";
  keyed(
    byId("notice-ways"),
    ways,
    ([name]) => name,
    ([name]) => make("a", {}, name),
    (link, [, to]) => link.setAttribute("href", href(to)),
  );
  byId("notice-ways").hidden = ways.length === 0;
}

function drawState(state) {
  if (state === "lost") lostAt ??= new Date();
  else if (state !== "connecting") lostAt = null;
  const time = lostAt?.toLocaleTimeString("en-GB");
  const said = {
    connecting: "Connecting …",
    live: "Live",
    asking: "Every few seconds",
    lost: `Connection lost at ${time}; trying again`,
  }[state];
  byId("connection").dataset.state = state;
  write(byId("connection-said"), said);
  if (state === "live" || state === "asking") load();
}

let typed = null;
byId("find-text").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => go({ find: byId("find-text").value }), TYPED_MS);
});
byId("find").addEventListener("submit", (event) => event.preventDefault());
byId("sort").addEventListener("change", () => go({ sort: byId("sort").value }));
byId("previous").addEventListener("click", () => turn(-PAGE));
byId("next").addEventListener("click", () => turn(PAGE));

function turn(by) {
  const button = byId(by < 0 ? "previous" : "next");
  if (button.getAttribute("aria-disabled") === "true") return; // not disabled, which would take the focus away
  go({ offset: String(Math.max(0, Number(place.offset) + by)) });
}

// the address is what is looked at, so a link within the page goes by hand
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId(event.target.dataset.to).focus();
});
window.addEventListener("popstate", () => arrive(read()));
live.watch(place.stream, place.window);
