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
 * Converts `PerformanceNavigationTiming.confidence` to a report of `response`, for the document with the browser's rate
 * 2(1 − p). The browser's rate may have been stored as float32.
 */
export function confidenceFrame(documents, { value, randomizedTriggerRate }) {
  const at = ["low", "high"].indexOf(value);
  if (at < 0) throw new RangeError("the confidence's value is not allowed; allowed are low and high");
  const rates = documents.map(rateOf);
  for (const round of [Number, Math.fround]) {
    const found = new Set(rates.filter((rate) => round(rate) === randomizedTriggerRate));
    if (found.size === 1) return frame(documents[rates.indexOf(...found)], [at]);
  }
  throw new RangeError(`randomizedTriggerRate is ${randomizedTriggerRate}; the documents' rates are ${rates.join(", ")}`);
}

/** Returns the probability 2(1 − p) with which a browser replaces its value by a fair coin flip. */
function rateOf({ protocol, domain_size: d, p }) {
  if (protocol !== "response" || d !== 2) {
    throw new TypeError(`a confidence is a report of response with 2 values; a document has ${protocol} with ${d}`);
  }
  const [above, below] = p.split("/").map(BigInt);
  return Number(2n * (below - above)) / Number(below);
}
