/** Parts of a stream: a bar of shares by document, and a list of segments. Each part is selected like a stream. */

import { FIRST, href } from "./address.js";
import { byId, keyed, make, write } from "./dom.js";
import { count, share, shown } from "./text.js";

/** Returns the stream of a part's name, or the name itself. */
export function wholeOf(name) {
  return name.split(/[@:]/, 1)[0];
}

/** Returns the stream of a name; for a part, with the windows of the part. */
export function find(streams, name) {
  const whole = streams.find((stream) => stream.name === wholeOf(name));
  if (whole === undefined || whole.name === name) return whole;
  return { ...whole, available: whole.part?.name === name ? whole.part.available : {} };
}

/** Draws the parts of a stream; `chosen` is the name of the stream or part that is shown. */
export function drawParts({ name, parts, hidden }, chosen) {
  const documents = parts.filter(({ document }) => document !== undefined);
  const segments = parts.filter(({ segment }) => segment !== undefined);
  byId("parts").hidden = parts.length === 0;
  byId("shares").hidden = documents.length === 0;
  const sum = Math.max(1, documents.reduce((all, { reports }) => all + reports, 0));
  keyed(
    byId("shares"),
    documents,
    (part) => part.name,
    () => make("span"),
    (span, { reports }) => {
      span.style.width = `${(100 * reports) / sum}%`;
    },
  );
  const all = { name, title: "All reports" };
  const ofDocument = ({ document, reports, retired, ...part }) => {
    const facts = [share(reports / sum, 1), `${count(reports)} reports`, ...(retired ? ["retired"] : [])];
    return { ...part, title: document, text: facts.join(" · ") };
  };
  const ofSegment = ({ segment, reports, ...part }) => ({ ...part, title: segment, text: `${count(reports)} reports` });
  drawLinks(byId("documents"), [all, ...documents.map(ofDocument)], chosen);
  drawLinks(byId("segments"), segments.map(ofSegment), chosen);
  const others = segments.length > 0 ? `${count(hidden)} reports are in no segment of this list.` : "";
  write(byId("parts-means"), others);
}

function drawLinks(list, items, chosen) {
  list.hidden = items.length === 0;
  keyed(
    list,
    items,
    ({ name }) => name,
    ({ name }) => make("li", {}, make("a", { href: href({ ...FIRST, stream: name }) }, make("bdi")), " ", make("span")),
    (item, { name, title, text = "" }) => {
      const [link, facts] = item.children;
      if (name === chosen) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
      write(link.firstElementChild, shown(title));
      write(facts, text);
    },
  );
}
