/** Table of values or queries, with a bar, an interval and numbers in each row. */

import { keyed, make, write } from "./dom.js";
import { drawBar, drawWhisker, ruled, scaleOver } from "./scale.js";
import { between, count, percent, share, shown } from "./text.js";

const MOST_NAMED = 6;
const COLUMNS = [
  { name: "rank", title: "#" },
  { name: "label", title: "Value" },
  { name: "plot" },
  { name: "number", title: "Estimate" },
  { name: "users", title: "Estimated users" },
  { name: "known", title: "Reports, n" },
  { name: "interval", title: "Interval" },
  { name: "tolerance", title: "Poisoning tolerance" },
  { name: "recommended", title: "Recommended" },
];

/**
 * Draws rows {key, rank?, label, set?, fraction, users, known?, low?, high?, tolerance?, recommended?}, with fractions or null.
 * Columns without contents are omitted. Bars repeat the numbers, so screen readers skip the bars.
 */
export function drawBars(table, { rows, digits, caption, interval, what = "Value" }) {
  const scale = scaleOver(rows.flatMap((row) => [row.fraction, row.low, row.high]));
  const has = {
    rank: rows.some((row) => row.rank !== undefined),
    known: rows.some((row) => row.known !== undefined),
    interval: rows.some((row) => row.low !== undefined && row.low !== null),
    tolerance: rows.some((row) => row.tolerance !== undefined),
    recommended: rows.some((row) => row.recommended !== undefined),
  };
  const columns = COLUMNS.filter(({ name }) => has[name] ?? true);
  if (table.dataset.columns !== columns.map(({ name }) => name).join(" ")) begin(table, columns);
  write(table.querySelector("caption"), caption);
  write(table.querySelector("th.label"), what);
  if (has.interval) write(table.querySelector("th.interval"), interval);
  table.dataset.interval = interval;
  drawAxis(table.querySelector(".axis"), scale);
  keyed(
    table.tBodies[0],
    rows,
    (row) => row.key,
    () => newRow(columns),
    (node, row) => updateRow(node, row, scale, digits),
  );
}

function begin(table, columns) {
  table.dataset.columns = columns.map(({ name }) => name).join(" ");
  const heads = columns.map(({ name, title }) => {
    const head = make("th", { scope: "col", role: "columnheader", class: name });
    if (name !== "plot") head.append(title);
    else {
      head.setAttribute("aria-hidden", "true");
      head.append(make("span", { class: "axis" }));
    }
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

function newRow(columns) {
  const cells = columns.map(({ name }) => {
    if (name === "label") {
      return make("th", { scope: "row", role: "rowheader", class: name }, make("bdi"), make("span", { class: "of" }));
    }
    const cell = make("td", { role: "cell", class: name });
    if (name === "plot") {
      const parts = ["bar", "whisker"].map((part) => make("span", { class: part }));
      cell.setAttribute("aria-hidden", "true");
      cell.append(make("span", { class: "drawn" }, ...parts));
    }
    return cell;
  });
  return make("tr", { role: "row" }, ...cells);
}

function updateRow(node, row, scale, digits) {
  for (const cell of node.cells) {
    switch (cell.classList[0]) {
      case "rank":
        write(cell, String(row.rank));
        break;
      case "label":
        write(cell.firstElementChild, shown(row.label));
        cell.title = row.label.length > 24 ? shown(row.label) : "";
        writeSet(cell.lastElementChild, row.set);
        break;
      case "plot":
        ruled(cell, scale);
        drawBar(cell.querySelector(".bar"), scale, row.fraction);
        drawWhisker(cell.querySelector(".whisker"), scale, row.low, row.high);
        break;
      case "number":
        write(cell, row.known === 0 ? "unknown" : share(row.fraction, digits));
        break;
      case "users":
        write(cell, row.users);
        break;
      case "known":
        write(cell, count(row.known));
        break;
      case "interval":
        write(cell, between(row.low, row.high, digits));
        cell.dataset.of = node.closest("table").dataset.interval;
        break;
      case "tolerance":
        write(cell, count(row.tolerance));
        break;
      default:
        write(cell, row.recommended ?? "none");
    }
  }
}

/** Writes the labels of a set's first values, and the number of the others; a set is {labels, size}. */
function writeSet(node, set) {
  node.hidden = set === undefined;
  if (set === undefined) return;
  const labels = set.labels.slice(0, MOST_NAMED);
  keyed(
    node,
    set.size > labels.length ? [...labels, null] : labels,
    (_, place) => place,
    () => make("bdi"),
    (bdi, label) => write(bdi, label === null ? `and ${count(set.size - labels.length)} more` : shown(label)),
  );
}
