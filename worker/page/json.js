/** JSON of others: its objects have no prototype, so that a key such as "constructor" finds nothing that is not there. */

export function parse(text) {
  return JSON.parse(text, (_, value) =>
    value === null || typeof value !== "object" || Array.isArray(value) ? value : Object.assign(Object.create(null), value),
  );
}
