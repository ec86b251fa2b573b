/** Formats labels, numbers and times. */

const MOST_SHOWN = 160;
const STALE_S = 5; // smaller differences of clocks are normal
// Characters that move, hide or end text. Joiners are kept, because emoji and some scripts need them.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const LONE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

function pictured(character) {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "␡";
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** Makes an untrusted text visible: control characters as symbols, spaces at the ends as ␠. */
export function shown(text) {
  const whole = String(text);
  if (whole === "") return "(empty)";
  const clear = whole
    .replace(LONE, "\ufffd")
    .replace(UNSEEN, pictured)
    .replace(/^ +| +$/g, (spaces) => "␠".repeat(spaces.length));
  return clear.length > MOST_SHOWN ? `${[...clear].slice(0, MOST_SHOWN).join("")}…` : clear;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Formats a count with thousands separators, or a dash. */
export function count(number) {
  return number === null || number === undefined ? "—" : whole.format(number);
}

/** Formats a rate, with a decimal below 10. */
export function rate(number) {
  if (number === null || number === undefined) return "—";
  return `${number > 0 && number < 10 ? number.toFixed(1) : whole.format(number)}/s`;
}

/** Number of decimals at which a standard error in percent has two significant digits. */
export function digitsOf(error) {
  if (!(error > 0)) return 2;
  return Math.min(8, Math.max(0, 1 - Math.floor(Math.log10(100 * error))));
}

/** Formats a fraction in percent without the sign %, with a real minus sign. */
export function percent(fraction, digits) {
  if (fraction === null || fraction === undefined) return "—";
  const format = { minimumFractionDigits: digits, maximumFractionDigits: digits, signDisplay: "negative" };
  return (100 * fraction).toLocaleString("en", format).replace("-", "−");
}

/** Formats a fraction in percent with the sign %. */
export function share(fraction, digits) {
  return fraction === null || fraction === undefined ? "—" : `${percent(fraction, digits)}\u00a0%`;
}

/** Formats an interval in percent. */
export function between(low, high, digits) {
  return low === null || low === undefined ? "—" : `${percent(low, digits)}\u00a0… ${share(high, digits)}`;
}

/** Formats the number of users with a value, to two significant digits of its standard error. */
export function users(fraction, reports, error) {
  if (fraction === null || fraction === undefined) return "—";
  const step = error > 0 ? 10 ** Math.max(0, Math.floor(Math.log10(error * reports)) - 1) : 1;
  return whole.format(Math.round((fraction * reports) / step) * step + 0).replace("-", "−");
}

const UNITS = [
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
];

/** Formats an age; the clocks of two workers may differ by some seconds. */
export function age(milliseconds) {
  const seconds = Math.floor(milliseconds / 1000);
  if (seconds < -STALE_S) return `${count(-seconds)}\u00a0s ahead of this worker’s clock`;
  const [length, unit] = UNITS.find(([one]) => seconds >= 2 * one) ?? [1, "s"];
  return `${count(Math.max(0, Math.floor(seconds / length)))}\u00a0${unit} ago`;
}

const DAY_MS = 86_400_000;

function inUtc(options) {
  const format = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...options });
  return (milliseconds) => format.format(milliseconds);
}

const day = inUtc({ day: "numeric", month: "short" });
const dayAndYear = inUtc({ day: "numeric", month: "short", year: "numeric" });
const time = inUtc({ hour: "2-digit", minute: "2-digit" });
const seconds = inUtc({ hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** Formats a window's start, as short as its length allows. */
export function startOf({ start, end }) {
  const length = end - start;
  if (length % DAY_MS === 0 && start % DAY_MS === 0) return day(start);
  return length % 60_000 === 0 ? time(start) : seconds(start);
}

export function dayOf({ start }) {
  return day(start);
}

/** Formats a window's period. */
export function periodOf({ start, end }) {
  if ((end - start) % DAY_MS === 0 && start % DAY_MS === 0) {
    return end - start === DAY_MS ? dayAndYear(start) : `${dayAndYear(start)} – ${dayAndYear(end - DAY_MS)}`;
  }
  const clock = (end - start) % 60_000 === 0 ? time : seconds;
  const last = day(start) === day(end) || (end % DAY_MS === 0 && end - start < DAY_MS) ? "" : `${day(end)}, `;
  return `${dayAndYear(start)}, ${clock(start)} – ${last}${end % DAY_MS === 0 && last === "" ? "24:00" : clock(end)} UTC`;
}
