// The JavaScript client as a command: values from stdin, a line each, to frames in hexadecimal; for ldp audit-client.
//   node perturb.mjs document.json

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Client } from "../../../ldp/clients/javascript/ldp-client.js";

const document = JSON.parse(readFileSync(process.argv[2], "utf8"));
const client = new Client(document);
for await (const line of createInterface({ input: process.stdin })) {
  const frame = client.report("labels" in document ? line : Number(line));
  process.stdout.write(Buffer.from(frame).toString("hex") + "\n");
}
