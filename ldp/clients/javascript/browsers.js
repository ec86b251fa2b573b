/**
 * Converts reports that browsers have randomized to frames of a stream. The document must have the browsers' probabilities.
 * The module draws no coins. docs/reference/wire-format.md defines the frames.
 */

import { fingerprintOf } from "./ldp-client.js";

function frame(document, report) {
  if ("segment" in document) throw new RangeError("the document has the key segment; a browser's report has no segment");
  return Uint8Array.of(1, ...fingerprintOf(document), ...report);
}

/** Converts the output of Firefox's `unaryEncodeDiffPrivacy`, a 0 or 1 per value, to a report of `unary`. */
export function unaryFrame(document, bits) {
  if (bits.length !== document.domain_size || !/^[01]*$/.test(bits)) {
    throw new RangeError(`the text is not allowed; allowed are ${document.domain_size} characters of 0 and 1`);
  }
  const report = new Uint8Array(Math.ceil(bits.length / 8));
  for (let v = 0; v < bits.length; v++) report[v >> 3] |= +bits[v] << (v & 7);
  return frame(document, report);
}

/**
 * Converts `PerformanceNavigationTiming.confidence` to a report of `response`. A declared rate may have been stored as
 * float32; 255 stands for an undeclared rate.
 */
export function confidenceFrame(document, { value, randomizedTriggerRate }) {
  const at = ["low", "high"].indexOf(value);
  if (at < 0) throw new RangeError("the confidence's value is not allowed; allowed are low and high");
  const doubles = document.rates.map((rate) => rate.split("/")).map(([above, below]) => above / below);
  const alone = (rates, rate) => rates.indexOf(rate) === rates.lastIndexOf(rate);
  const found = [doubles, doubles.map(Math.fround)]
    .filter((rates) => alone(rates, randomizedTriggerRate))
    .map((rates) => rates.indexOf(randomizedTriggerRate));
  return frame(document, [found.find((index) => index >= 0) ?? 255, at]);
}
