/** Time line of windows as native radio buttons; the height of a column shows the number of reports. */

import { byId, choices, keyed, make, write } from "./dom.js";
import { count, dayOf, periodOf, startOf } from "./text.js";

const MOST_SHOWN = 200;

/** Title of a window name. */
export function named(window) {
  if (window === "late") return "In no window";
  return window === "all" ? "All time" : `Windows of ${window}`;
}

/** Draws the existing windows; `go` changes the view. */
export function drawWindows(stream, place, go) {
  const names = stream.windows;
  byId("windows").hidden = names.length < 2 && names[0] === "all";
  choices(
    byId("window-names"),
    names.map((name) => ({ value: name, text: named(name) })),
    place.window,
    (window) => go({ window, start: "" }),
  );
  const timed = (stream.available[place.window] ?? []).filter((window) => window !== null);
  byId("line").hidden = byId("line-means").hidden = ["all", "late"].includes(place.window);
  byId("line-missing").hidden = (stream.privacy_loss ?? null) === null;
  const windows = timed.toSorted((a, b) => a.start - b.start).slice(-MOST_SHOWN);
  drawLine(windows, place, go);
}

function drawLine(windows, place, go) {
  const most = Math.max(1, ...windows.map((window) => window.reports));
  keyed(
    byId("strip"),
    [...windows, null],
    (window) => window?.start ?? "newest",
    (window) => newWindow(window, go),
    (label, window, at) => updateWindow(label, window, windows[at - 1], most, place),
  );
}

function newWindow(window, go) {
  const value = window === null ? "" : String(window.start);
  const input = make("input", { type: "radio", name: "start", value });
  input.addEventListener("change", () => go({ start: value }));
  const column = make("span", { class: "column", "aria-hidden": "true" }, make("span", { class: "height" }));
  const parts = ["time", "kind", "day"].map((part) => make("span", { class: part, "aria-hidden": "true" }));
  return make("label", { class: window === null ? "newest" : null }, input, column, ...parts);
}

function updateWindow(label, window, earlier, most, place) {
  const [input, column, time, kind, day] = label.children;
  input.checked = input.value === place.start;
  if (window === null) {
    input.setAttribute("aria-label", "Always the newest window");
    write(time, "newest");
    write(kind, "follow");
    return;
  }
  const state = window.final ? "final" : "provisional";
  const gaps = window.complete ? "" : ", incomplete";
  input.setAttribute("aria-label", `${periodOf(window)}, ${state}${gaps}, ${count(window.reports)} reports`);
  label.title = `${periodOf(window)}\n${state}${gaps}, ${count(window.reports)} reports`;
  label.classList.toggle("provisional", !window.final);
  column.firstElementChild.style.height = `${Math.max(2, (100 * window.reports) / most)}%`;
  write(time, startOf(window));
  write(kind, window.complete ? state : `${state} ▲`);
  const known = earlier !== undefined && dayOf(earlier) === dayOf(window);
  write(day, known || startOf(window) === dayOf(window) ? "" : dayOf(window));
}
