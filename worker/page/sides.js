/** Table of all methods: a row per value, a column of bars per method, and one scale. */

import { keyed, make, write } from "./dom.js";
import { drawBar, ruled, scaleOver } from "./scale.js";
import { count, percent, shown } from "./text.js";

/** Draws rows {key, label, frequencies: {method: fraction}}; `sums` adds a last row with each method's sum. */
export function drawSides(table, { rows, methods, digits, caption, what = "Value", sums = null, domain = 0 }) {
  const scale = scaleOver(rows.flatMap((row) => methods.map((method) => row.frequencies[method])));
  if (table.dataset.methods !== methods.join(" ")) begin(table, methods);
  write(table.querySelector("caption"), caption);
  write(table.querySelector("th.label"), what);
  keyed(
    table.tBodies[0],
    rows,
    (row) => row.key,
    () => newRow(methods),
    (node, row) => {
      write(node.firstElementChild.firstElementChild, shown(row.label));
      node.firstElementChild.title = row.label.length > 24 ? shown(row.label) : "";
      methods.forEach((method, place) => updateCell(node.cells[place + 1], row.frequencies[method], scale, digits));
    },
  );
  const [last] = table.tFoot.rows;
  last.hidden = sums === null;
  if (sums === null) return;
  write(last.cells[0], `Sum of all ${count(domain)}`);
  methods.forEach((method, place) => write(last.cells[place + 1], percent(sums[method], digits)));
}

function begin(table, methods) {
  table.dataset.methods = methods.join(" ");
  table.style.setProperty("--methods", String(methods.length)); // columns of equal width share the scale
  const heads = methods.map((method) => make("th", { scope: "col", role: "columnheader" }, method));
  const corner = make("th", { scope: "col", role: "columnheader", class: "label" });
  const foot = methods.map(() => make("td", { role: "cell" }));
  table.replaceChildren(
    make("caption", { class: "sr" }),
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, corner, ...heads)),
    make("tbody", { role: "rowgroup" }),
    make(
      "tfoot",
      { role: "rowgroup" },
      make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader", class: "label" }), ...foot),
    ),
  );
}

function newRow(methods) {
  const cells = methods.map(() =>
    make(
      "td",
      { role: "cell" },
      make("span", { class: "figure" }),
      make("span", { class: "drawn", "aria-hidden": "true" }, make("span", { class: "bar" })),
    ),
  );
  return make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader", class: "label" }, make("bdi")), ...cells);
}

function updateCell(cell, fraction, scale, digits) {
  const [figure, drawn] = cell.children;
  write(figure, percent(fraction, digits));
  ruled(drawn, scale);
  drawBar(drawn.firstElementChild, scale, fraction);
}
