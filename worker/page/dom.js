/** Elements made of text alone: nothing here parses markup. */

/** An element with attributes; those that are null, undefined or false are left out. Children are elements or text. */
export function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Sets a text, and nothing where it stands already: a selection stays, and a screen reader is silent. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Lets a parent have one child for each item, in order. A child stays the same element while its item's key is there,
 * so it keeps the focus, and its bars move from where they were.
 */
export function keyed(parent, items, key, born, renew) {
  const keys = items.map((item, at) => String(key(item, at)));
  const wanted = new Set(keys);
  const there = new Map();
  for (const node of [...parent.children]) {
    if (wanted.has(node.dataset.key)) there.set(node.dataset.key, node);
    else node.remove();
  }
  let at = parent.firstElementChild;
  items.forEach((item, place) => {
    const node = there.get(keys[place]) ?? born(item, place);
    node.dataset.key = keys[place];
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
    renew(node, item, place);
  });
}

/** Moves a strip that is longer than it is wide, and not the page, until what is chosen is on it. */
export function reveal(strip) {
  const chosen = strip.querySelector("label:has(:checked), [aria-current]");
  if (chosen === null) return;
  const left = chosen.getBoundingClientRect().left - strip.getBoundingClientRect().left;
  if (left < 0 || left + chosen.offsetWidth > strip.clientWidth) {
    strip.scrollLeft += left + (chosen.offsetWidth - strip.clientWidth) / 2;
  }
}

/** Fills a fieldset's box with native radios; options are {value, text, title?}. */
export function choices(fieldset, options, chosen, change) {
  const name = fieldset.id;
  fieldset.hidden = options.length < 2;
  keyed(
    fieldset.querySelector("div"),
    options,
    (option) => option.value,
    (option) => {
      const input = make("input", { type: "radio", name, value: option.value });
      input.addEventListener("change", () => change(option.value));
      return make("label", {}, input, make("span"));
    },
    (label, option) => {
      write(label.lastElementChild, option.text);
      label.title = option.title ?? "";
      label.firstElementChild.checked = option.value === chosen;
    },
  );
}
