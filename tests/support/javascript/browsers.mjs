// Noise of two browsers, written from their published definitions, and the frames that the page's adapter makes of it.
//
//   node browsers.mjs firefox N p q       per line, a value 0..N−1: the bits that Firefox would send
//   node browsers.mjs navigation          per line, "low" or "high", a space and a rate: the confidence as JSON
//   node browsers.mjs weights             of all lines, confidences: the mean weight of "low" and of "high"
//   node browsers.mjs frames DOCUMENT     per line, bits or (with a list of documents) a confidence: the frame in
//                                         hexadecimal, or the error

import { readFileSync } from "node:fs";
import { confidenceFrame, unaryFrame } from "../../../ldp/clients/javascript/browsers.js";

const [what, ...given] = process.argv.slice(2);
const lines = readFileSync(0, "utf8").split("\n").slice(0, -1);

/** A number in [0, 1]: a word of 32 bits over the largest one, as Firefox compares it with a probability by <=. */
const word = () => crypto.getRandomValues(new Uint32Array(1))[0] / 0xffffffff;

function firefox(value, [n, p, q]) {
  const bits = Array.from({ length: Number(n) }, (_, v) => word() <= Number(v === value ? p : q));
  return bits.map(Number).join("");
}

/** With the rate as probability, one of both values drawn evenly; else the user's value. A double, as in a browser. */
function confidence(value, rate) {
  const uniform = () => crypto.getRandomValues(new Uint32Array(2)).reduce((sum, half) => (sum + half) / 2 ** 32, 0);
  const said = uniform() < rate ? ["low", "high"][crypto.getRandomValues(new Uint8Array(1))[0] & 1] : value;
  return { value: said, randomizedTriggerRate: rate };
}

/** Debiasing by the W3C: R is 1 for the requested value; every record counts, even below 0. */
function meanWeight(records, asked) {
  let [sum, rest] = [0, 0]; // with the rounding error (Neumaier), so that the order of many records has no effect
  for (const { value, randomizedTriggerRate: rate } of records) {
    const weight = (Number(value === asked) - rate / 2) / (1 - rate);
    const next = sum + weight;
    rest += Math.abs(sum) >= Math.abs(weight) ? sum - next + weight : weight - next + sum;
    sum = next;
  }
  return (sum + rest) / records.length;
}

const answers = {
  firefox: () => lines.map((line) => firefox(Number(line), given)),
  navigation: () =>
    lines.map((line) => line.split(" ")).map(([value, rate]) => JSON.stringify(confidence(value, Number(rate)))),
  weights() {
    const records = lines.map((line) => JSON.parse(line));
    return ["low", "high"].map((asked) => JSON.stringify(meanWeight(records, asked)));
  },
  frames() {
    const document = JSON.parse(readFileSync(given[0], "utf8"));
    const wrap = Array.isArray(document)
      ? (line) => confidenceFrame(document, JSON.parse(line))
      : (line) => unaryFrame(document, line);
    return lines.map((line) => {
      try {
        return Buffer.from(wrap(line)).toString("hex");
      } catch (error) {
        return error.message;
      }
    });
  },
};
process.stdout.write(answers[what]().map((line) => `${line}\n`).join(""));
