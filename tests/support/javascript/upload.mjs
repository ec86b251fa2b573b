// An upload with upload.js on a virtual clock: `node upload.mjs URL STEP < frame`; prints the outcome and the pauses as JSON.
//
// STEP: seconds that each pause takes; its own length if empty.

import { readFileSync } from "node:fs";

const [url, step] = process.argv.slice(2);
const pauses = [];
let now = 1_800_000_000_000;
globalThis.virtual = {
  Date: { now: () => now },
  setTimeout(resolve, wait) {
    pauses.push(wait / 1000);
    now += step ? 1000 * Number(step) : wait;
    resolve();
  },
};
const source = readFileSync(new URL("../../../ldp/clients/javascript/upload.js", import.meta.url), "utf8");
const text = `const { Date, setTimeout } = globalThis.virtual;\n${source}`;
const { Refused, upload } = await import(`data:text/javascript;charset=utf-8,${encodeURIComponent(text)}`);
let outcome = "stored";
try {
  await upload(url, new Uint8Array(readFileSync(0)));
} catch (error) {
  outcome = error instanceof Refused ? [error.status, error.reason] : error.name;
}
console.log(JSON.stringify({ outcome, pauses }));
