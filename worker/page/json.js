/** Parses untrusted JSON into objects without a prototype, so that a missing key such as "constructor" is undefined. */

export function parse(text) {
  return JSON.parse(text, (_, value) =>
    value === null || typeof value !== "object" || Array.isArray(value) ? value : Object.assign(Object.create(null), value),
  );
}
