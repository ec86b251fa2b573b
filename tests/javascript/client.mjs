// The JavaScript client, asked from Python: a request as JSON on stdin, the answer as JSON on stdout.
//
//   {"ask": "vectors", "streams": [...]}         each case's frame, its coins from its seed
//   {"ask": "laws", "documents": [...]}          for each value of each stream, every report with its probability; and
//                                                how many draws there were, as a list of each number that occurred
//   {"ask": "masks", "cases": [[a, b, n, [word, ...]], ...]}   the coins that come out of these digits
//   {"ask": "coins", "cases": [[name, [argument, ...], bytes], ...]}   what is drawn where the system gives these bytes
//   {"ask": "calls", "calls": [[document, [method, ...arguments]], ...]}   what each call gives or throws
//
// For the first three the coins are replaced in a copy of the module, between two of its lines: it has no switch for it.
// For the fourth it is the system that is replaced.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const FILE = fileURLToPath(new URL("../../ldp/clients/javascript/ldp-client.js", import.meta.url));
const [BEGIN, END] = ["// The coins. What is drawn is drawn here alone.", "// What is made of them."];

async function scripted(coins) {
  const [before, rest] = readFileSync(FILE, "utf8").split(BEGIN);
  const [, after] = rest.split(END);
  const folder = mkdtempSync(join(tmpdir(), "ldp-client."));
  const file = join(folder, "ldp-client.mjs");
  globalThis.coins = coins;
  const names = `const { ${Object.keys(coins).join(", ")} } = globalThis.coins;\n`;
  // those of a name that is given are not taken from the file
  const own = "manyCoins" in coins ? after.replace("function manyCoins(", "function replaced(") : after;
  writeFileSync(file, `${before}${names}${END}${own}\nexport { manyCoins };\n`);
  try {
    return await import(pathToFileURL(file).href);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const padded = (bytes, n) => {
  const whole = new Uint8Array(4 * Math.ceil(n / 32));
  whole.set(bytes);
  return new Uint32Array(whole.buffer);
};
const each = (below) => (first, last) =>
  Uint32Array.from({ length: last - first + 1 }, (_, i) => below(first + i));

/** The coins of a seed, as tests/vectors/README.md defines them. */
function seeded(seed) {
  let [block, ready] = [0, Buffer.alloc(0)];
  const take = (size) => {
    while (ready.length < size) {
      const index = Buffer.alloc(4);
      index.writeUInt32LE(block++);
      ready = Buffer.concat([ready, createHash("sha256").update(seed).update(index).digest()]);
    }
    const taken = ready.subarray(0, size);
    ready = ready.subarray(size);
    return taken;
  };
  const big = (m) => (take(32).reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n) * m) >> 256n;
  const below = (m) => Number(big(BigInt(m)));
  return {
    below,
    belowEach: each(below),
    coin: (a, b) => big(b) < a,
    words: (n) => padded(take(Math.ceil(n / 8)), n),
  };
}

async function vectors({ streams }) {
  let coins;
  const { Client } = await scripted({
    below: (m) => coins.below(m),
    belowEach: (first, last) => coins.belowEach(first, last),
    coin: (a, b) => coins.coin(a, b),
    words: (n) => coins.words(n),
  });
  return streams.map(({ document, cases }) => {
    const client = new Client(document);
    const frames = cases.map(({ value, seed }) => {
      coins = seeded(Buffer.from(seed, "hex"));
      return client.report(value);
    });
    return {
      fingerprint: client.fingerprint,
      bytes: client.reportBytes,
      frames: frames.map(hex),
      json: frames.map((frame) => client.packJSON([frame], 1)[0]),
    };
  });
}

/** Draws every way that there is, one run after the other, each with its probability. */
class Ways {
  constructor() {
    this.path = []; // of each draw: which way, of how many
  }

  begin() {
    [this.at, this.over, this.under] = [0, 1n, 1n];
  }

  /** One of some ways, each of a weight. */
  draw(weights) {
    if (this.at === this.path.length) this.path.push([0, weights.length]);
    const [way] = this.path[this.at++];
    this.over *= weights[way];
    this.under *= weights.reduce((sum, weight) => sum + weight, 0n);
    return way;
  }

  /** Goes on to the next; returns whether there is one. */
  next() {
    while (this.path.length && this.path.at(-1)[0] === this.path.at(-1)[1] - 1) this.path.pop();
    if (this.path.length) this.path.at(-1)[0]++;
    return this.path.length > 0;
  }
}

const SEEDS = [0, 12_345, 2 ** 32 - 1]; // of the 2³² of OLH, in each of which the law must hold

async function laws({ documents }) {
  let ways;
  const below = (m) =>
    m === 2 ** 32 ? SEEDS[ways.draw([1n, 1n, 1n])] : ways.draw(Array(m).fill(1n));
  const coin = (a, b) => ways.draw([b - a, a]) === 1;
  const { Client } = await scripted({
    below,
    belowEach: each(below),
    coin,
    // of many coins each is one: how they are made of digits is asked for by itself
    manyCoins: (a, b, n) => {
      const bits = new Uint8Array(Math.ceil(n / 8));
      for (let v = 0; v < n; v++) bits[v >> 3] |= coin(a, b) << (v & 7);
      return bits;
    },
  });
  return documents.map((document) => {
    const client = new Client(document);
    const draws = new Set();
    const laws = Array.from({ length: document.domain_size }, (_, value) => {
      const law = {};
      ways = new Ways();
      do {
        ways.begin();
        const report = hex(client.report(value)).slice(10);
        (law[report] ??= []).push([String(ways.over), String(ways.under)]);
        draws.add(ways.at);
      } while (ways.next());
      return law;
    });
    return { laws, draws: [...draws] };
  });
}

async function masks({ cases }) {
  let pending;
  const { manyCoins } = await scripted({ words: (n) => padded(Buffer.from(pending.shift() ?? "", "hex"), n) });
  return cases.map(([a, b, n, given]) => {
    pending = [...given];
    return { bits: hex(manyCoins(BigInt(a), BigInt(b), n)), left: pending.length };
  });
}

async function coins({ cases }) {
  let given;
  const getRandomValues = (array) => {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    bytes.set(given.subarray(0, bytes.length));
    given = given.subarray(bytes.length);
    return array;
  };
  Object.defineProperty(globalThis, "crypto", { value: { getRandomValues } });
  const file = join(mkdtempSync(join(tmpdir(), "ldp-client.")), "ldp-client.mjs");
  writeFileSync(file, `${readFileSync(FILE, "utf8")}\nexport { below, belowEach, coin };\n`);
  const module = await import(pathToFileURL(file).href);
  rmSync(dirname(file), { recursive: true });
  return cases.map(([name, rest, bytes]) => {
    given = Buffer.from(bytes, "hex");
    const drawn = module[name](...rest.map((each) => (typeof each === "string" ? BigInt(each) : each)));
    return { drawn: name === "belowEach" ? [...drawn] : drawn, left: given.length };
  });
}

async function calls({ calls: given }) {
  const { Client } = await import(pathToFileURL(FILE).href);
  const read = (argument) => {
    if (argument?.hex !== undefined) return new Uint8Array(Buffer.from(argument.hex, "hex"));
    if (argument?.number !== undefined) return Number(argument.number);
    return Array.isArray(argument) ? argument.map(read) : argument;
  };
  const written = (result) => {
    if (result instanceof Uint8Array) return hex(result);
    return Array.isArray(result) ? result.map(written) : result;
  };
  return given.map(([document, [method, ...rest]]) => {
    try {
      const client = new Client(document);
      return { result: method ? written(client[method](...rest.map(read))) : null };
    } catch (error) {
      return { error: error.name, says: error.message };
    }
  });
}

const request = JSON.parse(readFileSync(0, "utf8"));
const answer = await { vectors, laws, masks, coins, calls }[request.ask](request);
process.stdout.write(JSON.stringify(answer));
