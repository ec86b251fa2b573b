/** The current view, encoded in the fragment (#) of the page's URL. */

const KEYS = ["stream", "window", "start", "view", "method", "interval", "of", "sort", "find", "offset"];

/** Values of keys that the URL omits. */
export const FIRST = {
  stream: "",
  window: "all",
  start: "",
  view: "one",
  method: "norm-sub",
  interval: "pointwise",
  of: "reports",
  sort: "base",
  find: "",
  offset: "0",
};

const MOST_FOUND = 200; // characters of a search text; the search field has the same limit
const ALLOWED = {
  start: /^\d{0,15}$/,
  view: /^(one|all)$/,
  interval: /^(pointwise|anytime)$/,
  of: /^(reports|population)$/,
  sort: /^(base|value)$/,
  offset: /^\d{1,9}$/,
};

/** Reads the view from the URL; missing and invalid keys have the values of FIRST. */
export function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  const place = Object.fromEntries(KEYS.map((key) => [key, given.get(key) ?? FIRST[key]]));
  place.find = place.find.slice(0, MOST_FOUND);
  for (const [key, allowed] of Object.entries(ALLOWED)) if (!allowed.test(place[key])) place[key] = FIRST[key];
  return place;
}

/** Returns the URL fragment of a view, for links. */
export function href(place) {
  const given = KEYS.filter((key) => place[key] !== FIRST[key]).map((key) => [key, place[key]]);
  return `#${new URLSearchParams(given)}`;
}
