/** What is looked at, as it stands in the page's address behind the #. */

const KEYS = ["stream", "window", "start", "view", "method", "interval", "sort", "find", "offset"];

/** What an address that does not say looks at. */
export const FIRST = {
  stream: "",
  window: "all",
  start: "",
  view: "one",
  method: "base",
  interval: "pointwise",
  sort: "base",
  find: "",
  offset: "0",
};

const MOST_FOUND = 200; // characters of a text that is looked for, as its field takes
const ALLOWED = {
  start: /^\d{0,15}$/,
  view: /^(one|all)$/,
  interval: /^(pointwise|anytime)$/,
  sort: /^(base|value)$/,
  offset: /^\d{1,9}$/,
};

/** Reads the address; what it does not say, or says as nobody could mean it, is as in FIRST. */
export function read() {
  const said = new URLSearchParams(location.hash.slice(1));
  const place = Object.fromEntries(KEYS.map((key) => [key, said.get(key) ?? FIRST[key]]));
  place.find = place.find.slice(0, MOST_FOUND);
  for (const [key, allowed] of Object.entries(ALLOWED)) if (!allowed.test(place[key])) place[key] = FIRST[key];
  return place;
}

/** The address of a place, as a link has it. */
export function href(place) {
  const said = KEYS.filter((key) => place[key] !== FIRST[key]).map((key) => [key, place[key]]);
  return `#${new URLSearchParams(said)}`;
}
