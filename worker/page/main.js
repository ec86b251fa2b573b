/** Reads the view from the URL, loads its snapshot from the worker, draws it, and updates it when a newer one exists. */

import { FIRST, href, read } from "./address.js";
import { noteDate, now } from "./clock.js";
import { byId, keyed, make, reveal, write } from "./dom.js";
import { PAGE, drawExcerpt, summaryOf } from "./excerpt.js";
import { parse } from "./json.js";
import { Live } from "./live.js";
import { drawParts, find, wholeOf } from "./parts.js";
import { drawAlarm, drawCounting, drawReaders, drawStreams, forgetWaits, noteStreams } from "./streams.js";
import { age, shown } from "./text.js";
import { drawWindows } from "./windows.js";

const ANNOUNCE_EVERY_MS = 20_000;
const AGE_EVERY_MS = 1000;
const TYPED_MS = 200;
const WAIT_MS = 2000;
const ANSWER_MS = 10_000;
const LOADED = ["stream", "window", "start", "of", "sort", "find", "offset"]; // keys that select an excerpt

let place = read();
let streams = null;
let excerpt = null;
let request = null;
let again = false;
let waiting = null;
let drawn = ""; // the snapshot that the excerpt belongs to
let failures = 0;
let announcing = null;
let announcedAt = -Infinity;
let lostAt = null;

const live = new Live({
  state: drawState,
  streams(list) {
    const first = streams === null;
    streams = list;
    noteStreams(list);
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

/** Changes the view; another stream or window gets an entry in the browser's history. */
function go(change) {
  const next = { ...place, ...change };
  const pages = ["offset", "method", "interval", "of", "view"]; // these keep the values of the page
  if (!pages.some((key) => key in change)) next.offset = FIRST.offset;
  const other = ["stream", "window", "start"].some((key) => next[key] !== place[key]);
  history[other ? "pushState" : "replaceState"](null, "", href(next));
  arrive(next);
}

/** Returns a key of a view's snapshot. */
function which({ stream, window, start }) {
  return JSON.stringify([stream, window, start]);
}

function arrive(next) {
  const before = place;
  place = next;
  settle();
  drawList();
  const same = LOADED.every((key) => before[key] === place[key]);
  if (which(before) !== which(place)) {
    clearTimeout(announcing);
    announcedAt = -Infinity;
  }
  if (before.stream !== place.stream) {
    blank();
    reveal(byId("streams"));
  }
  if (before.window !== place.window || before.start !== place.start) reveal(byId("strip"));
  if (same && excerpt !== null) draw();
  else load();
}

/** Selects an existing stream and window name if the URL has none. */
function settle() {
  if (streams !== null && streams.length > 0) {
    const stream = place.stream === "" ? streams[0] : find(streams, place.stream);
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
  drawStreams(streams, wholeOf(place.stream));
  const title = place.stream === "" ? "No streams" : shown(place.stream);
  write(byId("title"), title);
  document.title = `${title} · ldp-worker`;
  const stream = find(streams, place.stream);
  byId("counting").hidden = stream === undefined;
  drawAge();
  if (stream !== undefined) {
    drawCounting(stream);
    drawReaders(stream);
    drawParts(stream, place.stream);
    drawWindows(stream, place, go);
  }
  const back = byId("back");
  back.hidden = place.start === "" && place.window === FIRST.window;
  back.href = href({ ...place, window: FIRST.window, start: "", offset: FIRST.offset });
}

/** Loads the excerpt of the current view; a newer request replaces an older one. */
async function load() {
  clearTimeout(waiting);
  if (streams === null || document.hidden) return; // a page that becomes visible connects and loads again
  const wanted = JSON.stringify(LOADED.map((key) => place[key]));
  if (request !== null && request.wanted === wanted) {
    again = true;
    return;
  }
  request?.control.abort();
  const mine = { wanted, control: new AbortController() };
  request = mine;
  again = false;
  const limit = setTimeout(() => mine.control.abort(), ANSWER_MS);
  let answer = null;
  let body = null;
  const asked = Date.now();
  try {
    answer = await fetch(source(), { signal: mine.control.signal });
    noteDate(answer, asked);
    body = parse(await answer.text());
  } catch {
    answer = null; // interrupted, timed out or replaced
  }
  clearTimeout(limit);
  if (request !== mine) return;
  request = null;
  if (answer === null) retryLater("The worker does not respond.", "");
  else take(answer.status, body);
  if (again) load();
}

function source() {
  const query = { sort: place.sort, offset: place.offset, top: String(PAGE) };
  if (place.window !== FIRST.window) query.window = place.window;
  if (place.start !== "") query.start = place.start;
  if (place.find !== "") query.find = place.find;
  if (place.of !== FIRST.of) query.of = place.of;
  return `streams/${encodeURIComponent(place.stream)}/excerpt?${new URLSearchParams(query)}`;
}

function take(status, body) {
  if (status === 200) {
    const before = excerpt;
    [excerpt, drawn, failures] = [body, which(place), 0];
    note(null);
    draw();
    if (before?.snapshot !== body.snapshot || before?.sequence !== body.sequence) announce();
  } else if (status === 404 || status === 400) {
    blank();
    if (status === 404) noteGone(body);
    else note(shown(body.error));
  } else retryLater("The worker has not read the snapshots yet.", shown(body.error));
}

/** Schedules a retry. An excerpt of the current view stays; after two failures, a note marks it as possibly outdated. */
function retryLater(text, means) {
  waiting = setTimeout(load, WAIT_MS);
  failures += 1;
  if (excerpt === null || drawn !== which(place)) {
    blank();
    note(text, means);
  } else if (failures > 1) note("The snapshot cannot be read now. These values may be outdated.", means);
}

/** Hides the snapshot. */
function blank() {
  excerpt = null;
  byId("shown").hidden = true;
  write(byId("facts"), "");
  write(byId("announcement"), "");
}

function draw() {
  const unseen = byId("shown").hidden;
  byId("shown").hidden = false;
  if (document.activeElement !== byId("find-text")) byId("find-text").value = place.find;
  byId("sort").value = place.sort === "value" ? "value" : "base";
  drawExcerpt(excerpt, place, go);
  drawAge();
  if (unseen) reveal(byId("strip"));
}

/** Shows the age of the snapshot, and an alarm if it is late. */
function drawAge() {
  drawAlarm((streams === null ? undefined : find(streams, place.stream)));
  if (excerpt !== null) write(byId("age"), excerpt.published === undefined ? "—" : age(now() - excerpt.published));
}

/** Announces the newest numbers to screen readers, at most every 20 s. */
function announce() {
  clearTimeout(announcing);
  const left = announcedAt + ANNOUNCE_EVERY_MS - performance.now();
  if (left > 0) {
    announcing = setTimeout(announce, left);
  } else if (excerpt !== null) {
    announcedAt = performance.now();
    write(byId("announcement"), summaryOf(excerpt));
  }
}

function noteGone(refusal) {
  const stream = find(streams, place.stream);
  if (stream === undefined) {
    const others = streams.map(({ name }) => [shown(name), { ...FIRST, stream: name }]);
    note(`This worker serves no stream named ${shown(place.stream)}.`, "", others);
    return;
  }
  const newest = { ...place, start: "", offset: FIRST.offset };
  const ways = [
    [`Newest window of ${place.window}`, newest],
    ["All time", { ...newest, window: FIRST.window }],
  ].filter(([, to]) => stream.windows.includes(to.window) && href(to) !== href(place));
  const coming = "The first one appears here when it is published.";
  const unlisted = "The stream’s head does not list their sequence number. Check who may write to the snapshot topic.";
  if (refusal.unnamed) note("Messages on the snapshot topic are not shown.", unlisted, ways);
  else if (place.window === FIRST.window) note("There is no snapshot yet.", coming, ways);
  else if (place.start === "") note(`There is no window of ${shown(place.window)} yet.`, coming, ways);
  else note("This window is no longer on the topic.", "", ways);
}

/** Shows a note above the snapshot, with an explanation and links; null hides the note. */
function note(text, means = "", ways = []) {
  byId("notice").hidden = text === null;
  if (text === null) return;
  write(byId("notice-text"), text);
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
  const text = {
    connecting: "Connecting …",
    live: "Live",
    polling: "Polling every few seconds",
    lost: `Connection lost at ${time}; reconnecting`,
  }[state];
  byId("connection").dataset.state = state;
  write(byId("connection-text"), text);
  if (state === "live" || state === "polling") load();
  else forgetWaits();
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
  if (button.getAttribute("aria-disabled") === "true") return; // the attribute disabled would drop the focus
  go({ offset: String(Math.max(0, Number(place.offset) + by)) });
}

// the URL fragment encodes the view, so this link moves the focus by script
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId(event.target.dataset.to).focus();
});
window.addEventListener("popstate", () => arrive(read()));
setInterval(drawAge, AGE_EVERY_MS);
live.watch(place.stream, place.window);
