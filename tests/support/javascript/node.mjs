// asked.mjs in Node: a request as JSON on stdin, the answer as JSON on stdout.

import { readFileSync } from "node:fs";
import { answer } from "./asked.mjs";

const source = readFileSync(new URL("../../../ldp/clients/javascript/ldp-client.js", import.meta.url), "utf8");
process.stdout.write(JSON.stringify(await answer(JSON.parse(readFileSync(0, "utf8")), source)));
