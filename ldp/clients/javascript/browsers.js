/**
 * What browsers report by themselves, as frames of a stream; of a document that gives the browsers' own probabilities.
 * Nothing is drawn here. docs/reference/wire-format.md defines what a worker reads of it.
 */

import { fingerprintOf } from "./ldp-client.js";

const frame = (document, report) => Uint8Array.of(1, ...fingerprintOf(document), ...report);

/** Firefox's `unaryEncodeDiffPrivacy`: a text of a 0 or 1 for each value, as a report of `unary`. */
export function unaryFrame(document, bits) {
  if (bits.length !== document.domain_size || !/^[01]*$/.test(bits)) {
    throw new RangeError(`the text is not ${document.domain_size} characters of 0 and 1`);
  }
  const report = new Uint8Array(Math.ceil(bits.length / 8));
  for (let v = 0; v < bits.length; v++) report[v >> 3] |= +bits[v] << (v & 7);
  return frame(document, report);
}

/** `PerformanceNavigationTiming.confidence`, as a report of `response` with `rates`; 255 is a rate that is none of them. */
export function confidenceFrame(document, { value, randomizedTriggerRate }) {
  const at = ["low", "high"].indexOf(value);
  if (at < 0) throw new RangeError("the confidence's value is neither low nor high");
  const rates = document.rates.map((rate) => rate.split("/")).map(([above, below]) => above / below);
  const rate = rates.indexOf(randomizedTriggerRate);
  return frame(document, [rate < 0 ? 255 : rate, at]);
}
