/** A table with bars in its cells: what is asked for, its bar and interval, and the same as numbers. */

import { keyed, make, write } from "./dom.js";
import { drawBar, drawWhisker, ruled, scaleOver } from "./scale.js";
import { between, count, percent, shown } from "./text.js";

const COLUMNS = [
  { name: "rank", title: "#" },
  { name: "label", title: "Value" },
  { name: "plot", title: "Estimate and interval, drawn" },
  { name: "number", title: "%" },
  { name: "interval", title: "Interval, %" },
  { name: "fakes", title: "Forged" },
  { name: "recommended", title: "Recommended" },
];

/**
 * Draws rows {key, rank?, label, said?, fraction, low?, high?, fakes?, recommended?}; fractions, or null. A column that
 * no row has anything of is not there.
 */
export function drawBars(table, { rows, digits, caption, what = "Value", interval = "Interval, %" }) {
  const scale = scaleOver(rows.flatMap((row) => [row.fraction, row.low, row.high]));
  const has = {
    rank: rows.some((row) => row.rank !== undefined),
    interval: rows.some((row) => row.low !== undefined && row.low !== null),
    fakes: rows.some((row) => row.fakes !== undefined),
    recommended: rows.some((row) => row.recommended !== undefined),
  };
  const columns = COLUMNS.filter(({ name }) => has[name] ?? true);
  if (table.dataset.columns !== columns.map(({ name }) => name).join(" ")) begin(table, columns);
  write(table.querySelector("caption"), caption);
  write(table.querySelector("th.label"), what);
  if (has.interval) write(table.querySelector("th.interval"), interval);
  drawAxis(table.querySelector(".axis"), scale);
  keyed(
    table.tBodies[0],
    rows,
    (row) => row.key,
    () => bornRow(columns),
    (node, row) => renewRow(node, row, scale, digits),
  );
}

function begin(table, columns) {
  table.dataset.columns = columns.map(({ name }) => name).join(" ");
  const heads = columns.map(({ name, title }) => {
    const head = make("th", { scope: "col", role: "columnheader", class: name });
    if (name === "plot") head.append(make("span", { class: "sr" }, title), make("span", { class: "axis", "aria-hidden": "true" }));
    else head.append(title);
    return head;
  });
  table.replaceChildren(
    make("caption", { class: "sr" }),
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...heads)),
    make("tbody", { role: "rowgroup" }),
  );
}

function drawAxis(axis, scale) {
  ruled(axis, scale);
  keyed(
    axis,
    scale.ticks,
    (_, place) => place,
    () => make("span", { class: "tick" }),
    (tick, fraction) => {
      const at = scale.at(fraction);
      tick.style.left = `${at}%`;
      tick.classList.toggle("begins", at < 3);
      tick.classList.toggle("ends", at > 95);
      write(tick, `${percent(fraction, scale.digits)} %`);
    },
  );
}

function bornRow(columns) {
  const cells = columns.map(({ name }) => {
    if (name === "label") {
      return make("th", { scope: "row", role: "rowheader", class: name }, make("bdi"), make("span", { class: "of" }));
    }
    const cell = make("td", { role: "cell", class: name });
    if (name === "plot") {
      const parts = ["bar", "whisker"].map((part) => make("span", { class: part }));
      cell.append(make("span", { class: "drawn", "aria-hidden": "true" }, ...parts));
    }
    return cell;
  });
  return make("tr", { role: "row" }, ...cells);
}

function renewRow(node, row, scale, digits) {
  for (const cell of node.cells) {
    switch (cell.classList[0]) {
      case "rank":
        write(cell, String(row.rank));
        break;
      case "label":
        write(cell.firstElementChild, shown(row.label));
        cell.title = row.label.length > 24 ? shown(row.label) : "";
        saySet(cell.lastElementChild, row.said);
        break;
      case "plot":
        ruled(cell.firstElementChild, scale);
        drawBar(cell.querySelector(".bar"), scale, row.fraction);
        drawWhisker(cell.querySelector(".whisker"), scale, row.low, row.high);
        break;
      case "number":
        write(cell, percent(row.fraction, digits));
        break;
      case "interval":
        write(cell, between(row.low, row.high, digits));
        break;
      case "fakes":
        write(cell, count(row.fakes));
        break;
      default:
        write(cell, row.recommended ?? "none");
    }
  }
}

/** Says which values a set has: {labels, size}. */
function saySet(node, set) {
  node.hidden = set === undefined;
  if (set === undefined) return;
  keyed(
    node,
    set.size > set.labels.length ? [...set.labels, null] : set.labels,
    (_, place) => place,
    () => make("bdi"),
    (bdi, label) => write(bdi, label === null ? `and ${count(set.size - set.labels.length)} more` : shown(label)),
  );
}
