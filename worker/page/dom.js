/** Makes and updates elements. Content is set as text only, never parsed as markup. */

/** Makes an element. Attributes that are null, undefined or false are omitted; children are elements or text. */
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

/** Sets a text if it differs, so that an equal text keeps its selection and screen readers do not repeat it. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Gives a parent one child per item, in order. An item's element is reused while the item's key exists, so the element
 * keeps the focus, and its bars animate from their last position.
 */
export function keyed(parent, items, key, create, update) {
  const keys = items.map((item, at) => String(key(item, at)));
  const wanted = new Set(keys);
  const there = new Map();
  for (const node of [...parent.children]) {
    if (wanted.has(node.dataset.key)) there.set(node.dataset.key, node);
    else node.remove();
  }
  let at = parent.firstElementChild;
  items.forEach((item, place) => {
    const node = there.get(keys[place]) ?? create(item, place);
    node.dataset.key = keys[place];
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
    update(node, item, place);
  });
}

/** Scrolls an overflowing strip, but not the page, so that the selected item is visible. */
export function reveal(strip) {
  const chosen = strip.querySelector("label:has(:checked), [aria-current]");
  if (chosen === null) return;
  const left = chosen.getBoundingClientRect().left - strip.getBoundingClientRect().left;
  if (left < 0 || left + chosen.offsetWidth > strip.clientWidth) {
    strip.scrollLeft += left + (chosen.offsetWidth - strip.clientWidth) / 2;
  }
}

/** Fills a fieldset with native radio buttons; options are {value, text, means?}. */
export function choices(fieldset, options, chosen, change) {
  const name = fieldset.id;
  fieldset.hidden = options.length < 2;
  keyed(
    fieldset.querySelector("div"),
    options,
    (option) => option.value,
    (option) => {
      const described = option.means === undefined ? null : `${name}-${option.value}`;
      const named = { "aria-label": described && option.text, "aria-describedby": described };
      const input = make("input", { type: "radio", name, value: option.value, ...named });
      input.addEventListener("change", () => change(option.value));
      return make("label", {}, input, make("span"), ...(described ? [make("small", { id: described }, option.means)] : []));
    },
    (label, option) => {
      write(label.children[1], option.text);
      label.firstElementChild.checked = option.value === chosen;
    },
  );
}
