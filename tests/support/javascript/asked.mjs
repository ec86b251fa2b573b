// The JavaScript client, called from Python through Node (node.mjs) or a browser (tests/support/chromium.py): a request in, an
// answer out, in JSON's types. The code runs in both.
//
//   {"ask": "vectors", "streams": [...]}         each case's frame, its coins from its seed
//   {"ask": "laws", "documents": [...]}          for each value of each stream, every report with its probability; and
//                                                how many draws there were, as a list of each number that occurred
//   {"ask": "masks", "cases": [[a, b, n, [word, ...]], ...]}   the coins that come out of these digits
//   {"ask": "coins", "cases": [[name, [argument, ...], bytes], ...]}   the draws from these system bytes
//   {"ask": "calls", "calls": [[document, [method, ...arguments], options], ...]}   what each call gives or throws
//
// For the first three the coins are replaced in a copy of the module, between two of its lines: it has no switch for it.
// For the fourth it is the system that is replaced.

import { Client } from "../../../ldp/clients/javascript/ldp-client.js";

const [BEGIN, END] = ["// Coins: only this section draws randomness.", "// Randomizers."];

let made = 0;
/** A module of a text, and another one the next time. */
const imported = (text) => import(`data:text/javascript;charset=utf-8,${encodeURIComponent(`${text}\n// ${made++}`)}`);

async function scripted(source, coins) {
  const [before, rest] = source.split(BEGIN);
  const [, after] = rest.split(END);
  globalThis.coins = coins;
  const names = `const { ${Object.keys(coins).join(", ")} } = globalThis.coins;\n`;
  // given names replace functions of the file
  const own = "manyCoins" in coins ? after.replace("function manyCoins(", "function replaced(") : after;
  return imported(`${before}${names}${END}${own}\nexport { manyCoins };\n`);
}

const DIGITS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
const hex = (bytes) => {
  let text = "";
  for (const byte of bytes) text += DIGITS[byte];
  return text;
};
const unhex = (text) => {
  const bytes = new Uint8Array(text.length / 2);
  for (let i = 0; i < bytes.length; i++) bytes[i] = parseInt(text.slice(2 * i, 2 * i + 2), 16);
  return bytes;
};
const padded = (bytes, n) => {
  const whole = new Uint8Array(4 * Math.ceil(n / 32));
  whole.set(bytes);
  return new Uint32Array(whole.buffer);
};
const each = (below) => (first, last) =>
  Uint32Array.from({ length: last - first + 1 }, (_, i) => below(first + i));

class Short extends Error {}

/** The coins of a seed, as tests/vectors/README.md defines them; `Short` if this number of blocks does not suffice. */
async function seeded(seed, blocks) {
  const ready = new Uint8Array(32 * blocks);
  const block = (i) => {
    const text = new Uint8Array(seed.length + 4);
    text.set(seed);
    new DataView(text.buffer).setUint32(seed.length, i, true);
    return crypto.subtle.digest("SHA-256", text);
  };
  const made = await Promise.all(Array.from({ length: blocks }, (_, i) => block(i)));
  made.forEach((digest, i) => ready.set(new Uint8Array(digest), 32 * i));
  let at = 0;
  const take = (size) => {
    if (at + size > ready.length) throw new Short();
    return ready.subarray(at, (at += size));
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

async function vectors({ streams }, source) {
  let coins;
  const { Client } = await scripted(source, {
    below: (m) => coins.below(m),
    belowEach: (first, last) => coins.belowEach(first, last),
    coin: (a, b) => coins.coin(a, b),
    words: (n) => coins.words(n),
  });
  async function sent(client, { value, seed }) {
    for (let blocks = 64; ; blocks *= 4) {
      coins = await seeded(unhex(seed), blocks);
      try {
        return client.report(value);
      } catch (error) {
        if (!(error instanceof Short)) throw error;
      }
    }
  }
  const answers = [];
  for (const { document, cases } of streams) {
    const client = new Client(document);
    const frames = [];
    for (const each of cases) frames.push(await sent(client, each));
    answers.push({
      fingerprint: client.fingerprint,
      bytes: client.reportBytes,
      frames: frames.map(hex),
      json: frames.map((frame) => client.packJSON([frame], 1)[0]),
    });
  }
  return answers;
}

/** Draws every way that there is, one run after the other, each with its probability. */
class Ways {
  constructor() {
    this.path = []; // per draw: the branch, and the number of branches
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

  /** Advances to the next path; returns whether there is one. */
  next() {
    while (this.path.length && this.path.at(-1)[0] === this.path.at(-1)[1] - 1) this.path.pop();
    if (this.path.length) this.path.at(-1)[0]++;
    return this.path.length > 0;
  }
}

const SEEDS = [0, 12_345, 2 ** 32 - 1]; // three of the 2³² seeds of OLH; the law must hold for each

async function laws({ documents }, source) {
  let ways;
  const below = (m) =>
    m === 2 ** 32 ? SEEDS[ways.draw([1n, 1n, 1n])] : ways.draw(Array(m).fill(1n));
  const coin = (a, b) => ways.draw([b - a, a]) === 1;
  const { Client } = await scripted(source, {
    below,
    belowEach: each(below),
    coin,
    // each of many coins is a single coin; another test covers how digits make them
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

async function masks({ cases }, source) {
  let pending;
  const { manyCoins } = await scripted(source, { words: (n) => padded(unhex(pending.shift() ?? ""), n) });
  return cases.map(([a, b, n, given]) => {
    pending = [...given];
    return { bits: hex(manyCoins(BigInt(a), BigInt(b), n)), left: pending.length };
  });
}

async function coins({ cases }, source) {
  let given;
  const getRandomValues = (array) => {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    bytes.set(given.subarray(0, bytes.length));
    given = given.subarray(bytes.length);
    return array;
  };
  const system = Object.getOwnPropertyDescriptor(globalThis, "crypto");
  Object.defineProperty(globalThis, "crypto", { value: { getRandomValues }, configurable: true });
  const module = await imported(`${source}\nexport { below, belowEach, coin };\n`);
  const answers = cases.map(([name, rest, bytes]) => {
    given = unhex(bytes);
    const drawn = module[name](...rest.map((each) => (typeof each === "string" ? BigInt(each) : each)));
    return { drawn: name === "belowEach" ? [...drawn] : drawn, left: given.length };
  });
  Object.defineProperty(globalThis, "crypto", system); // a page serves further requests
  return answers;
}

async function calls({ calls: given }) {
  const read = (argument) => {
    if (argument?.hex !== undefined) return unhex(argument.hex);
    if (argument?.number !== undefined) return Number(argument.number);
    return Array.isArray(argument) ? argument.map(read) : argument;
  };
  const written = (result) => {
    if (result instanceof Uint8Array) return hex(result);
    return Array.isArray(result) ? result.map(written) : result;
  };
  return given.map(([document, [method, ...rest], options]) => {
    try {
      const client = new Client(document, null, options);
      return { result: method ? written(client[method](...rest.map(read))) : null };
    } catch (error) {
      return { error: error.name, says: error.message };
    }
  });
}

/** The answer to a request; `source` is the module's text. */
export const answer = (request, source) => ({ vectors, laws, masks, coins, calls })[request.ask](request, source);
