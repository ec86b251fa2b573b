// A client with a folder as its store, killed or slowed at a step of the file system.
//
//   node budget.mjs FOLDER STEP NOISE REPORTS TIMES        reports the value 7 TIMES times; a frame or "spent" per line
//   node budget.mjs simulate USERS < stores' source        devices with crashes and jumps of the clock; faults as JSON

import { createRequire, syncBuiltinESMExports } from "node:module";
import { readFileSync } from "node:fs";

const DAY = 86_400_000;
const declared = (noise, reports) => ({ unit: "device", reports, period: "24h", noise, horizon: "30d" });
const document = (noise, reports) => ({
  protocol: "grr", epsilon: "1/1", domain_size: 256, privacy: declared(noise, reports),
});
const hex = (bytes) => Buffer.from(bytes).toString("hex");

async function report(folder, step, noise, reports, times) {
  const promises = createRequire(import.meta.url)("node:fs/promises");
  const count = () => --step === 0 && process.kill(process.pid, "SIGKILL");
  for (const name of ["link", "mkdir", "open", "readFile", "readdir", "rm"]) {
    const original = promises[name];
    promises[name] = async (...given) => {
      count();
      const result = await original(...given);
      count();
      return result;
    };
  }
  syncBuiltinESMExports();
  const { Client, Spent } = await import("../../../ldp/clients/javascript/ldp-client.js");
  const { folderStore } = await import("../../../ldp/clients/javascript/stores.js");
  const client = new Client(document(noise, reports), folderStore(folder), { clock: () => 0 });
  for (let i = 0; i < times; i++) {
    try {
      const frame = hex(await client.report(7));
      count();
      console.log(frame);
    } catch (error) {
      if (!(error instanceof Spent)) throw error;
      console.log("spent");
    }
  }
}

/** Pseudorandom numbers in [0, 1). */
function random(seed) {
  return () => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    return seed / 2 ** 32;
  };
}

class Crash extends Error {}

/** A device whose store crashes before or after its text is replaced; returns the faults. */
async function device(Client, Spent, seed, noise) {
  const draw = random(seed);
  const most = 1 + (seed % 3);
  let [now, newest, text, crash] = [20_000 * DAY + draw() * DAY, 0, null, 0];
  const store = {
    async update(key, change) {
      const after = change(text);
      if (crash === 1) throw new Crash();
      if (after !== text) newest = Math.max(newest, now);
      text = after;
      if (crash === 2) throw new Crash();
      return text;
    },
  };
  const [counted, kept, faults] = [new Map(), new Map(), []];
  const period = () => Math.floor(newest / DAY);
  const add = () => counted.set(period(), (counted.get(period()) ?? 0) + 1);
  for (let day = 0; day < 30; day++) {
    for (let i = 0; i <= most; i++) {
      crash = Math.floor(draw() * 8);
      const value = Math.floor(draw() * 3);
      const before = text;
      try {
        const frame = hex(await new Client(document(noise, most), store, { clock: () => now }).report(value));
        add();
        if (noise === "memoised" && (kept.get(value) ?? frame) !== frame) faults.push("forgets noise");
        kept.set(value, frame);
      } catch (error) {
        if (error instanceof Crash) {
          if (text !== before) add();
        } else if (error instanceof Spent) {
          if (error.until.getTime() !== (period() + 1) * DAY) faults.push("another end of the period");
          if ((counted.get(period()) ?? 0) < most) faults.push("refuses a report that is left");
        } else throw error;
      }
      if ((counted.get(period()) ?? 0) > most) faults.push("over budget");
      now += (draw() * DAY) / 4;
    }
    if (draw() < 0.15) now += (draw() - 0.5) * 6 * DAY;
    now += (draw() * DAY) / 4;
  }
  return faults;
}

async function simulate(users) {
  const source = readFileSync(0, "utf8");
  const { Client, Spent } = await import(`data:text/javascript;base64,${Buffer.from(source).toString("base64")}`);
  const faults = {};
  for (let user = 0; user < users; user++) {
    const found = await device(Client, Spent, user, ["fresh", "memoised"][user % 2]);
    for (const fault of found) faults[fault] = (faults[fault] ?? 0) + 1;
  }
  console.log(JSON.stringify(faults));
}

const [what, ...given] = process.argv.slice(2);
if (what === "simulate") await simulate(Number(given[0]));
else await report(what, Number(given[0]), given[1], Number(given[2]), Number(given[3]));
