/** The worker's clock, which can differ from the clock of the browser. */

const STALE_MS = 2000; // the header Date has whole seconds, and is up to a second old

let least = -Infinity;
let most = Infinity;

/** Narrows the difference of the clocks by an answer that was requested at `asked`. */
export function noteDate(answer, asked) {
  const sent = Date.parse(answer.headers.get("Date"));
  if (Number.isNaN(sent)) return;
  const [low, high] = [sent - Date.now(), sent + STALE_MS - asked];
  const changed = low > most || high < least; // one of the clocks was set
  [least, most] = changed ? [low, high] : [Math.max(least, low), Math.min(most, high)];
}

/** Returns the worker's time in milliseconds since the epoch. */
export function now() {
  return Date.now() + (least === -Infinity ? 0 : (least + most) / 2);
}
