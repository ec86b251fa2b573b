/**
 * Converts reports that browsers have randomized to frames of a stream. The document must have the browsers' probabilities.
 * The module draws no coins. docs/reference/wire-format.md defines the frames.
 */

import { fingerprintOf } from "./ldp-client.js";

const frame = (document, report) => Uint8Array.of(1, ...fingerprintOf(document), ...report);

/** Converts the output of Firefox's `unaryEncodeDiffPrivacy`, a 0 or 1 per value, to a report of `unary`. */
export function unaryFrame(document, bits) {
  if (bits.length !== document.domain_size || !/^[01]*$/.test(bits)) {
    throw new RangeError(`the text is not allowed; allowed are ${document.domain_size} characters of 0 and 1`);
  }
  const report = new Uint8Array(Math.ceil(bits.length / 8));
  for (let v = 0; v < bits.length; v++) report[v >> 3] |= +bits[v] << (v & 7);
  return frame(document, report);
}

/** Converts `PerformanceNavigationTiming.confidence` to a report of `response`; 255 stands for an undeclared rate. */
export function confidenceFrame(document, { value, randomizedTriggerRate }) {
  const at = ["low", "high"].indexOf(value);
  if (at < 0) throw new RangeError("the confidence's value is not allowed; allowed are low and high");
  const rates = document.rates.map((rate) => rate.split("/")).map(([above, below]) => above / below);
  const rate = rates.indexOf(randomizedTriggerRate);
  return frame(document, [rate < 0 ? 255 : rate, at]);
}
