/**
 * A stream's client: turns values into reports with secret and exact coins, and packs frames.
 *
 * The module has no dependencies and runs in browsers and in Node. docs/reference/wire-format.md defines the frames.
 * Coins are integers from `crypto.getRandomValues`, compared with exact rationals: no probability is a float.
 * The client stores and logs nothing, and no error contains the user's value.
 */

/** The largest frame in bytes that fits into a record under Kafka's default limits. */
export const LARGEST_FRAME = 1_000_000;

const VERSION = 1;
const SEGMENT_VERSION = 2;
const HEADER_BYTES = 5;
const MAX_DOMAIN = 2 ** 24;
const MAX_POINTS = 4 * MAX_DOMAIN;
const W = 1n << 64n;
const FINITE = "epsilon is finite; leave out the key epsilon";

// Coins: only this section draws randomness.

/** Returns n secret random bytes; each call of the system returns at most 65,536. */
function randomBytes(n) {
  const bytes = new Uint8Array(n);
  for (let at = 0; at < n; at += 65_536) crypto.getRandomValues(bytes.subarray(at, at + 65_536));
  return bytes;
}

/** Returns a uniform integer in 0..m−1 for each m of first..last ≤ 2³²; rejects words in the last incomplete round. */
function belowEach(first, last) {
  const drawn = new Uint32Array(randomBytes(4 * (last - first + 1)).buffer);
  for (let i = 0; i < drawn.length; i++) {
    const m = first + i;
    const whole = 2 ** 32 - (2 ** 32 % m);
    while (drawn[i] >= whole) crypto.getRandomValues(drawn.subarray(i, i + 1));
    drawn[i] %= m;
  }
  return drawn;
}

/** Returns a uniform integer in 0..m−1. */
function below(m) {
  return belowEach(m, m)[0];
}

/** Returns true with probability exactly a/b: compares a uniform number in [0, 1) with a/b, 64 bits at a time. */
function coin(a, b) {
  for (;;) {
    a <<= 64n;
    const digit = a / b;
    a %= b;
    const [word] = crypto.getRandomValues(new BigUint64Array(1));
    // at the end of the digits of a/b, the number is not below a/b; a tie has probability 2⁻⁶⁴
    if (word !== digit || a === 0n) return word < digit;
  }
}

/** Returns at least n random bits, as words. */
function words(n) {
  return new Uint32Array(randomBytes(4 * Math.ceil(n / 32)).buffer);
}

// Randomizers. Each makes all its draws in any case, so that the work does not depend on the outcome.

/** Randomized response: returns the symbol with probability E/(E+m−1), each other with 1/(E+m−1); E = n/2⁶⁴. */
function respond(symbol, m, n) {
  const keep = coin(n - W, n + BigInt(m - 1) * W);
  const other = below(m);
  return [other, symbol][+keep];
}

/**
 * Returns n independent coins as bits, each 1 with probability a/b. Compares the binary digits of one uniform number per
 * coin with the digits of a/b until all differ, and for at least 64 digits plus n's length in bits. So the work almost
 * never depends on the coins.
 */
function manyCoins(a, b, n) {
  const heads = new Uint32Array(Math.ceil(n / 32));
  const tied = new Uint32Array(heads.length);
  const bits = new Uint8Array(tied.buffer).fill(255, 0, n >> 3);
  if (n % 8) bits[n >> 3] = (1 << (n % 8)) - 1;
  let digits = 64 + n.toString(2).length;
  for (let left = true; (digits > 0 || left) && a > 0n; digits--) {
    a *= 2n;
    const digit = a >= b;
    if (digit) a -= b;
    const word = words(n);
    let rest = 0;
    for (let i = 0; i < heads.length; i++) {
      if (digit) {
        heads[i] |= tied[i] & ~word[i];
        tied[i] &= word[i];
      } else {
        tied[i] &= ~word[i];
      }
      rest |= tied[i];
    }
    left = rest !== 0;
  }
  return new Uint8Array(heads.buffer, 0, Math.ceil(n / 8));
}

/** Returns ⌊e^(numerator/denominator)·2⁶⁴⌋, from lower and upper bounds by partial sums of the series. */
function expBelow(numerator, denominator) {
  for (let bits = 128n; ; bits *= 2n) {
    let [low, high, termLow, termHigh] = Array(4).fill(1n << bits);
    for (let k = 1n; (k - 1n) * denominator < 2n * numerator || termHigh > 1n; k++) {
      const divisor = denominator * k;
      termLow = (termLow * numerator) / divisor;
      termHigh = (termHigh * numerator + divisor - 1n) / divisor;
      low += termLow;
      high += termHigh;
    }
    high += termHigh;
    if (low >> (bits - 64n) === high >> (bits - 64n)) return low >> (bits - 64n);
  }
}

// The protocols of an ε. `make` returns the format of a report and the function that draws a report:
//   fields    exclusive upper bounds of a report's integers; a vector has one bound for all elements
//   length    number of elements of a vector; 0 if the report is not a vector
//   perturb   value -> the integers of a report
//   memoise   value -> the noise that a client stores, as integers; a report unless there is a permanent response
//   recall    the stored noise -> the integers of a report

const PROTOCOLS = {
  grr: {
    keys: [],
    make: ({ domain_size: d, n }) => ({ fields: [d], length: 0, perturb: (value) => [respond(value, d, n)] }),
  },
  olh: {
    keys: ["g", "hash"],
    make({ domain_size: d, n, g, hash }) {
      integer("g", g, 2, 2 ** 16);
      if (typeof hash !== "string" || !Object.hasOwn(HASHES, hash)) {
        throw new RangeError(`hash is ${shown(hash)}; allowed are ${Object.keys(HASHES).join(", ")}`);
      }
      const perturb = (value) => {
        const seed = below(2 ** 32);
        return [seed, respond(HASHES[hash](seed, value, g, d), g, n)];
      };
      return { fields: [2 ** 32, g], length: 0, perturb };
    },
  },
  oue: {
    keys: [],
    make: ({ domain_size: d, n }) => unary(d, 1n, 2n, W, n + W),
  },
  sue: {
    keys: [],
    make({ domain_size: d, epsilon: [numerator, denominator] }) {
      const half = expBelow(numerator, 2n * denominator);
      return unary(d, half, half + W, W, half + W);
    },
  },
  subset: {
    keys: ["k"],
    make({ domain_size: d, n, k }) {
      integer("domain_size", d, 2, MAX_DOMAIN);
      integer("k", k, 1, d - 1);
      const bits = Math.ceil(d / 8);
      const asIndices = k * bytesBelow(d) <= bits;
      const perturb = (value) => {
        const members = subset(value, d, k, n);
        if (asIndices) return members;
        const report = new Uint8Array(bits);
        for (const member of members) report[member >> 3] |= 1 << (member & 7);
        return report;
      };
      return asIndices ? { fields: [d], length: k, perturb } : { fields: [256], length: bits, perturb };
    },
  },
  hadamard: {
    keys: [],
    make({ domain_size: d, n }) {
      const columns = 2 ** d.toString(2).length;
      const perturb = (value) => {
        const row = value + 1;
        const column = below(columns);
        const own = coin(n, n + W);
        // flipping the row's lowest set bit in the column flips the sign, which pairs the columns of both signs
        return [column ^ ((row & -row) * (parity(column & row) === +own))];
      };
      return { fields: [columns], length: 0, perturb };
    },
  },
  pgr: {
    keys: ["dimension", "prime"],
    make({ domain_size: d, n, prime, dimension }) {
      integer("prime", prime, 2, MAX_POINTS);
      integer("dimension", dimension, 2, 27);
      if (!isPrime(prime)) throw new RangeError(`prime is ${prime}; a prime number is required`);
      const all = points(prime, dimension);
      if (!(d <= all && all <= MAX_POINTS)) {
        throw new RangeError(
          `prime ${prime} and dimension ${dimension} have ${all} points; allowed is domain_size = ${d} to ${MAX_POINTS}`,
        );
      }
      const plane = points(prime, dimension - 1);
      const odds = (n - W) * BigInt(plane);
      const perturb = (value) => {
        const near = coin(odds, odds + BigInt(all) * W);
        const place = below(plane);
        const other = below(all);
        return [[other, orthogonal(value, place, prime, dimension)][+near]];
      };
      return { fields: [all], length: 0, perturb };
    },
  },
};

// The explicit channels, by their keys. A probability is a numerator and a denominator.

const CHANNELS = {
  response: [
    { keys: ["p"], make: ({ domain_size: d, p }) => ({ fields: [d], length: 0, perturb: response(d, p) }) },
  ],
  unary: [
    { keys: ["p", "q"], make: ({ domain_size: d, p, q, infinite }) => explicit(d, p, q, infinite) },
    {
      keys: ["f", "p", "q"],
      make({ domain_size: d, f: [turned, whole], p: [a, b], q: [others, most], infinite }) {
        if (turned === 0n || turned === whole) {
          throw new RangeError(`f is ${turned}/${whole}; it must be above 0 and below 1`);
        }
        const [one, zero, all] = [a * most, others * b, 2n * whole * b * most];
        if (one <= zero) throw new RangeError("p must be above q");
        const stays = 2n * whole - turned;
        const both = explicit(d, [stays * one + turned * zero, all], [turned * one + stays * zero, all], infinite);
        const permanent = unary(d, stays, 2n * whole, turned, 2n * whole).perturb;
        const fresh = (bits) => {
          const [set, unset] = [manyCoins(a, b, d), manyCoins(others, most, d)];
          return bits.map((byte, i) => (byte & set[i]) | (~byte & unset[i]));
        };
        return { ...both, memoise: permanent, recall: fresh };
      },
    },
  ],
};

/** Randomized response with p = a/b: keeps the value with probability p − q, else draws any value. */
function response(d, [a, b]) {
  integer("domain_size", d, 2, MAX_DOMAIN);
  const [odds, of] = [a * BigInt(d) - b, b * BigInt(d - 1)];
  if (odds <= 0n) throw new RangeError(`p is ${a}/${b}; it must be above 1/${d}`);
  if (a === b) throw new RangeError("q is 0; it must be above 0");
  return (value) => {
    const keep = coin(odds, of);
    return [[below(d), value][+keep]];
  };
}

/** Unary encoding with explicit probabilities; `infinite` means that the document declares an infinite ε. */
function explicit(d, [a, b], [others, most], infinite) {
  if (a * most <= others * b) throw new RangeError("p must be above q");
  if (others === 0n) throw new RangeError("q is 0; it must be above 0");
  if ((a === b) !== infinite) {
    throw new RangeError(infinite ? FINITE : 'epsilon is infinite; the document needs "epsilon": "infinite"');
  }
  return unary(d, a, b, others, most);
}

/** Unary encoding: the value's bit is 1 with probability a/b, every other bit with others/most. */
function unary(d, a, b, others, most) {
  const perturb = (value) => {
    const own = coin(a, b);
    const bits = manyCoins(others, most, d);
    const at = value >> 3;
    bits[at] = (bits[at] & ~(1 << (value & 7))) | (own << (value & 7));
    return bits;
  };
  return { fields: [256], length: Math.ceil(d / 8), perturb };
}

/** Returns k of d values in ascending order. Subsets with the given value are E times as likely as others. */
function subset(value, d, k, n) {
  const own = coin(BigInt(k) * n, BigInt(k) * n + BigInt(d - k) * W);
  // if own, the value replaces the first draw: d − 1 stands for it, because no other draw is d − 1
  const others = new Set();
  belowEach(d - k, d - 1).forEach((drawn, i) => {
    const first = [drawn, d - 1][+own];
    others.add([[drawn, d - k + i - 1][+others.has(drawn)], first][+(i === 0)]);
  });
  const ordered = Array.from(Uint32Array.from(others).sort());
  let at = 0;
  for (const other of ordered) at += +(other < value);
  const members = ordered.map((other) => other + +(other >= value));
  return [members, [...members.slice(0, at), value, ...members.slice(at, -1)]][+own];
}

/** Returns 1 if an odd number of bits is set, else 0. */
function parity(word) {
  for (const by of [16, 8, 4, 2, 1]) word ^= word >>> by;
  return word & 1;
}

// Hash functions of OLH: the bucket of a value under a seed, with the same work for each value.

const HASHES = {
  mul32(seed, value, g) {
    const e = mixed(value + 0x9e3779b1);
    const b = mixed(e + 0x9e3779b1);
    const c = (mixed(b + 0x9e3779b1) & 0xcccccccc) | 0x11111111;
    let x = Math.imul(seed ^ e, 0xc2b2ae3d + Math.imul(0x78dde6c4, value));
    x ^= (x >>> 11) ^ b;
    return Math.floor(((Math.imul(x, c) >>> 0) * g) / 2 ** 32);
  },
  /** xxHash32 of the decimal string, modulo g. Hashes one string of each length, so that the work is constant. */
  xxh32(seed, value, g, d) {
    const digits = String(value).length;
    let found = 0;
    for (let length = 1; length <= String(d - 1).length; length++) {
      const own = +(length === digits);
      found += own * (xxHash32(String([10 ** (length - 1), value][own]), seed) % g);
    }
    return found;
  },
};

/** Mixes a word: a bijection in which every bit depends on every bit of x. */
function mixed(x) {
  x ^= x >>> 16;
  x = Math.imul(x, 0x7feb352d);
  x ^= x >>> 15;
  x = Math.imul(x, 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}

/** Returns xxHash32 of fewer than 16 ASCII characters. */
function xxHash32(text, seed) {
  const rotated = (x, by) => (x << by) | (x >>> (32 - by));
  const byte = (i) => text.charCodeAt(i);
  const lanes = text.length & ~3;
  let h = (seed + 0x165667b1 + text.length) | 0;
  for (let i = 0; i < lanes; i += 4) {
    const lane = byte(i) | (byte(i + 1) << 8) | (byte(i + 2) << 16) | (byte(i + 3) << 24);
    h = Math.imul(rotated((h + Math.imul(lane, 0xc2b2ae3d)) | 0, 17), 0x27d4eb2f);
  }
  for (let i = lanes; i < text.length; i++) {
    h = Math.imul(rotated((h + Math.imul(byte(i), 0x165667b1)) | 0, 11), 0x9e3779b1);
  }
  h = Math.imul(h ^ (h >>> 15), 0x85ebca77);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae3d);
  return (h ^ (h >>> 16)) >>> 0;
}

// The points of PGR. All numbers are below 2⁵³: a word is below 2·2²⁶·q̄, a product of two coordinates below 2⁵².

function points(prime, dimension) {
  let sum = 0;
  for (let m = 0, power = 1; m < dimension; m++, power *= prime) sum += power;
  return sum;
}

function isPrime(number) {
  for (let divisor = 2; divisor * divisor <= number; divisor++) if (number % divisor === 0) return false;
  return number >= 2;
}

/** Returns a point's word, in constant work: the coordinates are its digits in base q̄. */
function wordOf(index, prime, dimension) {
  let [found, head, first] = [index + 1, 1, 1];
  for (let m = 1; m < dimension; m++) {
    found += (prime - 2) * head * +(index >= first);
    head *= prime;
    first += head;
  }
  return found;
}

/** Returns the number of the point with a word, in constant work. */
function numberOf(word, prime, dimension) {
  let [found, head] = [word - 1, 1];
  for (let m = 1; m < dimension; m++) {
    found -= (prime - 2) * head * +(word >= head * prime);
    head *= prime;
  }
  return found;
}

/** Returns the point at a place of a value's hyperplane; no branch depends on the value, which is secret. */
function orthogonal(value, place, prime, dimension) {
  let own = wordOf(value, prime, dimension);
  let others = wordOf(place, prime, dimension - 1);
  // after: the coordinate of the place's point in the previous step
  let [passed, last, at, product, found, unit, after] = [0, 0, 0, 0, 0, 1, 0];
  for (let m = 0; m < dimension; m++) {
    const [a, b] = [own % prime, others % prime];
    own = (own - a) / prime;
    others = (others - b) / prime;
    const before = passed; // 1 after the value's last nonzero coordinate
    const here = +(a !== 0) * (1 - passed); // 1 at the value's last nonzero coordinate
    passed |= here;
    last += a * here;
    at += unit * here;
    product = (product + a * after * before) % prime;
    found += unit * (after * before + b * (1 - passed));
    unit *= prime;
    after = b;
  }
  const between = ((prime - product) * inverse(last, prime)) % prime;
  return numberOf(found + between * at, prime, dimension);
}

/** Returns 1/a modulo a prime, as a^(q̄−2). */
function inverse(a, prime) {
  let [result, power] = [1, a];
  for (let exponent = prime - 2; exponent > 0; exponent = Math.floor(exponent / 2)) {
    if (exponent % 2) result = (result * power) % prime;
    power = (power * power) % prime;
  }
  return result % prime;
}

// The wire

function bytesBelow(bound) {
  return bound <= 2 ** 8 ? 1 : bound <= 2 ** 16 ? 2 : 4;
}

const HEX = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

const K = [];
for (let prime = 2; K.length < 64; prime++) if (isPrime(prime)) K.push(fraction(prime, 3n));
const H = [2, 3, 5, 7, 11, 13, 17, 19].map((prime) => fraction(prime, 2n));

/** Returns the first 32 fractional bits of a number's square or cube root: SHA-256's constants. */
function fraction(number, root) {
  let [low, high] = [0n, 1n << 40n];
  const scaled = BigInt(number) << (32n * root);
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (middle ** root <= scaled) low = middle;
    else high = middle;
  }
  return Number(low & 0xffffffffn);
}

/** Returns SHA-256 of the public document. Browsers' own SHA-256 is asynchronous and needs a secure context. */
function sha256(text) {
  const given = new TextEncoder().encode(text);
  const data = new Uint8Array((((given.length + 8) >> 6) + 1) << 6);
  data.set(given);
  data[given.length] = 0x80;
  const view = new DataView(data.buffer);
  view.setUint32(data.length - 8, Math.floor(given.length / 2 ** 29));
  view.setUint32(data.length - 4, given.length << 3);
  const hash = Int32Array.from(H);
  const w = new Int32Array(64);
  const rotated = (x, by) => (x >>> by) | (x << (32 - by));
  for (let block = 0; block < data.length; block += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(block + 4 * i);
    for (let i = 16; i < 64; i++) {
      const s0 = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ (w[i - 15] >>> 3);
      const s1 = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ (w[i - 2] >>> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    let [a, b, c, d, e, f, g, h] = hash;
    for (let i = 0; i < 64; i++) {
      const s1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const s0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((x, i) => (hash[i] += x));
  }
  const out = new DataView(new ArrayBuffer(32));
  hash.forEach((x, i) => out.setInt32(4 * i, x));
  return new Uint8Array(out.buffer);
}

/** Copies a document's own keys without a prototype, because other scripts of a page may have changed Object.prototype. */
function ownParts(document) {
  return Object.assign(Object.create(null), document);
}

/** Returns canonical JSON. JSON.stringify would call a `toJSON` that an array or object inherits. */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const members = Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`);
  return `{${members.join()}}`;
}

/** Returns the first 4 bytes of SHA-256 of the document in canonical form. */
export function fingerprintOf(document) {
  const parts = ownParts(document);
  if ("labels" in parts) parts.labels = HEX(sha256(canonical(parts.labels)));
  return sha256(canonical(parts)).slice(0, 4);
}

// The document

function shown(value) {
  return JSON.stringify(value) ?? String(value);
}

function integer(name, value, least, most) {
  if (!Number.isInteger(value)) throw new TypeError(`${name} is ${shown(value)}; an integer is required`);
  if (value < least || value > most) {
    throw new RangeError(`${name} is ${value}; allowed is ${least} to ${most}`);
  }
}

/** Parses a number in lowest terms; returns its numerator and denominator. */
function exactOf(name, text) {
  if (typeof text !== "string") throw new TypeError(`${name} is ${shown(text)}; a string "num/den" is required`);
  const found = /^(0|[1-9][0-9]{0,35})\/([1-9][0-9]{0,35})$/.exec(text);
  if (!found) throw new RangeError(`${name} is ${shown(text.slice(0, 80))}; write it as "1/2"`);
  const [numerator, denominator] = [BigInt(found[1]), BigInt(found[2])];
  let [a, b] = [numerator, denominator];
  while (b) [a, b] = [b, a % b];
  if (a !== 1n) throw new RangeError(`${name} is ${text}; lowest terms are required`);
  return [numerator, denominator];
}

function probabilityOf(name, text) {
  const [numerator, denominator] = exactOf(name, text);
  if (numerator > denominator) throw new RangeError(`${name} is ${text}; allowed is 0 to 1`);
  return [numerator, denominator];
}

/** Checks that a document has exactly these keys, and optionally labels, privacy and segment. */
function expectKeys(document, keys) {
  const found = Object.keys(document).sort();
  const allowed = ["protocol", "domain_size", ...keys].sort();
  if (found.filter((key) => !["labels", "privacy", "segment"].includes(key)).join() !== allowed.join()) {
    throw new RangeError(
      `the document has the keys ${found.join(", ")}; ${document.protocol} needs exactly ${allowed.join(", ")}; labels, privacy and segment are optional`,
    );
  }
}

/** Returns the report format and randomizer of a protocol with an ε. */
function ofEpsilon(document) {
  const { protocol, epsilon, domain_size: d } = document;
  expectKeys(document, ["epsilon", ...PROTOCOLS[protocol].keys]);
  const [numerator, denominator] = epsilonOf(epsilon);
  integer("domain_size", d, 1, MAX_DOMAIN);
  const n = expBelow(numerator, denominator);
  if (n <= W) throw new RangeError(`epsilon is ${epsilon}, which is too small; at 64 bits, e^epsilon must be above 1`);
  return PROTOCOLS[protocol].make({ ...document, epsilon: [numerator, denominator], n });
}

/** Returns the report format and randomizer of an explicit channel. */
function ofChannel(document) {
  const { protocol, domain_size: d } = document;
  const infinite = document.epsilon === "infinite";
  const ways = CHANNELS[protocol];
  const found = (key) => key in document;
  const { keys, make } = ways.findLast((way) => way.keys.every(found)) ?? ways[0];
  expectKeys(document, infinite ? [...keys, "epsilon"] : keys);
  integer("domain_size", d, 1, MAX_DOMAIN);
  const exact = Object.fromEntries(keys.map((key) => [key, probabilityOf(key, document[key])]));
  if (infinite && protocol === "response") throw new RangeError(FINITE);
  return make({ domain_size: d, infinite, ...exact });
}

/** Parses an ε with 0 < ε ≤ 64. */
function epsilonOf(text) {
  const [numerator, denominator] = exactOf("epsilon", text);
  if (numerator <= 0n || numerator > 64n * denominator) {
    throw new RangeError(`epsilon is ${text}; allowed is 0 < epsilon <= 64`);
  }
  return [numerator, denominator];
}

/** The device has sent all reports of the period; it may report again at `until`. */
export class Spent extends Error {
  constructor(until) {
    super(`all reports of this period are spent; the next period begins at ${until.toISOString()}`);
    this.name = "Spent";
    this.until = until;
  }
}

const SECONDS = { s: 1, m: 60, h: 3600, d: 86400 };

function secondsOf(name, text) {
  if (typeof text !== "string") throw new TypeError(`${name} is ${shown(text)}; a string is required`);
  const found = /^([1-9][0-9]{0,5})([smhd])$/.exec(text);
  if (!found) throw new RangeError(`${name} is ${shown(text)}; allowed is a number from 1 to 999999 with s, m, h or d`);
  return found[1] * SECONDS[found[2]];
}

function expectText(name, text) {
  if (typeof text !== "string") throw new TypeError(`${name} is ${shown(text)}; a string is required`);
  if (!text) throw new RangeError(`${name} is empty; it needs at least one character`);
  if (/\p{Cc}/u.test(text)) throw new RangeError(`${name} is ${shown(text)}; control characters are not allowed`);
  if (/\p{Surrogate}/u.test(text)) throw new RangeError(`${name} is ${shown(text)}; UTF-8 cannot encode it`);
}

/** Checks a segment, or the names of a document's levels. */
function expectSegment(name, text) {
  if (typeof text !== "string") throw new TypeError(`${name} is ${shown(text)}; a string is required`);
  if (text.length > 64 || !/^[A-Za-z0-9._-]{1,32}(:[A-Za-z0-9._-]{1,32})*$/.test(text)) {
    throw new RangeError(
      `${name} is ${shown(text.slice(0, 80))}; allowed are levels of 1 to 32 of A-Z a-z 0-9 . _ -, joined by ":", 64 in all`,
    );
  }
}

/** Returns the bytes of a frame between fingerprint and reports, after a check of the segment against the document. */
function segmentBytes(document, segment) {
  if (!("segment" in document)) {
    if (segment !== null) throw new RangeError("a segment is given; the document needs the key segment, which names its levels");
    return [];
  }
  const levels = document.segment;
  expectSegment("segment of the document", levels);
  if (segment === null) throw new RangeError(`no segment is given; the document has the levels ${levels}`);
  expectSegment("segment", segment);
  if (segment.split(":").length !== levels.split(":").length) {
    throw new RangeError(`segment is ${shown(segment)}; the document has the levels ${levels}`);
  }
  return [segment.length, ...new TextEncoder().encode(segment)];
}

/** Checks the declaration of the reports of a unit. */
function expectPrivacy(privacy) {
  if (typeof privacy !== "object" || privacy === null || Array.isArray(privacy)) {
    throw new TypeError(`privacy is ${shown(privacy)}; an object is required`);
  }
  const found = Object.keys(privacy).sort().join(", ");
  const keys = "horizon, noise, period, reports, unit";
  if (found !== keys) throw new RangeError(`privacy has the keys ${found}; it needs exactly ${keys}`);
  const { unit, reports, period, noise, horizon } = privacy;
  expectText("privacy.unit", unit);
  integer("privacy.reports", reports, 1, 1e6);
  const lengths = [secondsOf("privacy.period", period), secondsOf("privacy.horizon", horizon)];
  if (typeof noise !== "string") throw new TypeError(`privacy.noise is ${shown(noise)}; a string is required`);
  if (noise !== "fresh" && noise !== "memoised") {
    throw new RangeError(`privacy.noise is ${shown(noise)}; allowed are fresh and memoised`);
  }
  if (lengths[1] < lengths[0]) {
    throw new RangeError(`privacy.horizon is ${horizon}; it must be at least the period, ${period}`);
  }
}

function indicesOf(labels, d) {
  if (!Array.isArray(labels)) throw new TypeError(`labels is ${shown(labels)}; a list is required`);
  if (labels.length !== d) throw new RangeError(`labels has ${labels.length} entries; domain_size is ${d}`);
  const indices = new Map();
  [...labels].forEach((label, i) => {
    expectText(`label ${i}`, label);
    if (indices.has(label)) {
      throw new RangeError(`labels ${indices.get(label)} and ${i} are both ${shown(label)}; labels must be unique`);
    }
    indices.set(label, i);
  });
  return indices;
}

/** Makes the reports of one stream. */
export class Client {
  #domain;
  #fields;
  #header;
  #segment;
  #indices;
  #length;
  #perturb;
  #memoise;
  #recall;
  #privacy;
  #store;
  #clock;

  /**
   * @param document the stream's public document, as parsed from its JSON
   * @param store where the client counts reports and stores memoised noise, as the document declares; see stores.js
   * @param options.segment the segment of all reports, with a value for each level of the document's key `segment`; the
   *   server sees it in the clear, so it must not depend on the secret value. A document without the key allows none.
   * @param options.clock returns milliseconds since 1970-01-01T00:00Z
   * @throws TypeError if a key has the wrong type
   * @throws RangeError if a key is missing or unknown, or has a value that is not allowed
   */
  constructor(document, store = null, { segment = null, clock = Date.now } = {}) {
    if (typeof document !== "object" || document === null || Array.isArray(document)) {
      throw new TypeError("the document is not an object; pass the result of JSON.parse");
    }
    document = ownParts(document);
    if ("version" in document) {
      throw new RangeError(`the document has version ${shown(document.version)}; this client supports version 1`);
    }
    const { protocol, domain_size: d } = document;
    const known = Object.keys({ ...PROTOCOLS, ...CHANNELS });
    if (!known.includes(protocol)) throw new RangeError(`protocol is ${shown(protocol)}; allowed are ${known.join(", ")}`);
    const made = Object.hasOwn(CHANNELS, protocol) ? ofChannel(document) : ofEpsilon(document);
    this.#domain = d;
    this.#fields = made.fields;
    this.#length = made.length;
    this.#perturb = made.perturb;
    const { memoise, recall } = { memoise: made.perturb, recall: (noise) => noise, ...made };
    this.#memoise = memoise;
    this.#recall = recall;
    this.#privacy = document.privacy;
    this.#store = store;
    this.#clock = clock;
    if ("privacy" in document) expectPrivacy(document.privacy);
    else if (store) throw new RangeError("a store is given; the document needs the key privacy");
    if (store && typeof store.update !== "function") throw new TypeError("the store has no method update; see stores.js");
    this.#indices = "labels" in document ? indicesOf(document.labels, d) : new Map();
    const between = segmentBytes(document, segment);
    this.#segment = segment;
    const version = segment === null ? VERSION : SEGMENT_VERSION;
    this.#header = Uint8Array.of(version, ...fingerprintOf(document), ...between);
    if (this.#privacy && !store) {
      console.warn("the document declares how often a device reports, but the client has no store");
    }
  }

  /** The document's fingerprint, in hexadecimal. */
  get fingerprint() {
    return HEX(this.#header.subarray(1, HEADER_BYTES));
  }

  /** The size of a report in a binary frame in bytes. */
  get reportBytes() {
    return (this.#length || 1) * this.#fields.reduce((sum, bound) => sum + bytesBelow(bound), 0);
  }

  /**
   * Returns a frame with one report of a value. Each call spends the stream's ε. With a store, returns a promise of the
   * frame; the store records the report before it is made.
   *
   * @param value the value's label or index
   * @returns the value of a record on the stream's topic
   * @throws TypeError or RangeError for anything that is not a value of the stream; the message does not contain it
   * @throws Spent if the device has sent all reports of the period
   */
  report(value) {
    return this.#store ? this.#stored(value) : this.#frame(this.#perturb(this.#index(value)));
  }

  async #stored(value) {
    const index = this.#index(value);
    const memoised = this.#privacy.noise === "memoised";
    const length = 1000 * secondsOf("privacy.period", this.#privacy.period);
    const text = await this.#store.update(`ldp-client-${this.fingerprint}`, (before) => {
      const state = before === null ? { period: -1, reports: 0, noise: {} } : JSON.parse(before);
      const now = Math.floor(this.#clock() / length);
      if (now > state.period) Object.assign(state, { period: now, reports: 0 });
      if (state.reports >= this.#privacy.reports) throw new Spent(new Date((state.period + 1) * length));
      state.reports++;
      if (memoised) state.noise[index] ??= [...this.#memoise(index)];
      return JSON.stringify(state);
    });
    const report = memoised ? this.#recall(JSON.parse(text).noise[index]) : this.#perturb(index);
    return this.#frame(report);
  }

  /** Encodes a report's integers. */
  #frame(report) {
    const frame = new Uint8Array(this.#header.length + this.reportBytes);
    frame.set(this.#header);
    const view = new DataView(frame.buffer);
    let at = this.#header.length;
    report.forEach((number, i) => {
      const size = bytesBelow(this.#fields[this.#length ? 0 : i]);
      if (size === 1) view.setUint8(at, number);
      else if (size === 2) view.setUint16(at, number, true);
      else view.setUint32(at, number, true);
      at += size;
    });
    return frame;
  }

  /**
   * Packs the reports of many frames into as few frames as possible, in order. Draws no coins and spends no ε.
   *
   * @param frames frames of this stream, from `report` or `pack`
   * @param mostReports the largest number of reports per frame, which the operator sets
   * @returns frames of at most mostReports reports and 10⁶ bytes; a longer report gets its own frame
   */
  pack(frames, mostReports) {
    const begin = this.#header.length;
    return this.#joined(frames, mostReports, begin, (report) => report.length).map((reports) => {
      const frame = new Uint8Array(begin + reports.length * this.reportBytes);
      frame.set(this.#header);
      reports.forEach((report, i) => frame.set(report, begin + i * report.length));
      return frame;
    });
  }

  /** Packs as `pack` does, into JSON frames for text-only transports; JSON frames are several times as long. */
  packJSON(frames, mostReports) {
    const head = `{"fingerprint":"${this.fingerprint}","reports":[`;
    const tail = this.#segment === null ? "]}" : `],"segment":"${this.#segment}"}`;
    const text = (report) => this.#asJSON(report);
    const size = (report) => text(report).length + 1;
    return this.#joined(frames, mostReports, head.length + tail.length, size).map(
      (reports) => `${head}${reports.map(text).join(",")}${tail}`,
    );
  }

  /** Groups reports by mostReports and `LARGEST_FRAME`; `overhead` is the size of a frame without reports. */
  #joined(frames, mostReports, overhead, size) {
    integer("mostReports", mostReports, 1, 2 ** 31 - 1);
    const groups = [];
    let bytes = Infinity;
    for (const report of this.#reports(frames)) {
      const more = size(report);
      if (bytes + more > LARGEST_FRAME || groups.at(-1).length === mostReports) {
        groups.push([]);
        bytes = overhead;
      }
      groups.at(-1).push(report);
      bytes += more;
    }
    return groups;
  }

  /** Yields the reports of frames, and checks that each frame is complete and belongs to this stream. */
  *#reports(frames) {
    const [size, begin] = [this.reportBytes, this.#header.length];
    let i = 0;
    for (const frame of frames) {
      if (!(frame instanceof Uint8Array)) {
        throw new TypeError(`frame ${i} is not a Uint8Array; pass frames that report returned`);
      }
      if (!this.#header.every((byte, at) => byte === frame[at])) {
        // the message has the fingerprint of another stream's frame, but no other bytes, which could be the user's value
        const given =
          frame[0] === this.#header[0] ? `has the fingerprint ${HEX(frame.subarray(1, HEADER_BYTES))}` : "has an unknown format";
        throw new RangeError(`frame ${i} ${given}; a frame of this stream begins with ${HEX(this.#header)}`);
      }
      if (frame.length === begin || (frame.length - begin) % size) {
        throw new RangeError(
          `frame ${i} has ${frame.length} bytes; allowed are ${begin}, plus ${size} for each of one or more reports`,
        );
      }
      for (let at = begin; at < frame.length; at += size) yield frame.subarray(at, at + size);
      i++;
    }
  }

  /** Returns a report in the form of a JSON frame. */
  #asJSON(report) {
    if (this.#length) return `"${base64(report)}"`;
    const view = new DataView(report.buffer, report.byteOffset);
    let at = 0;
    const numbers = this.#fields.map((bound) => {
      const size = bytesBelow(bound);
      at += size;
      if (size === 1) return view.getUint8(at - 1);
      return size === 2 ? view.getUint16(at - 2, true) : view.getUint32(at - 4, true);
    });
    return numbers.length === 1 ? `${numbers[0]}` : `[${numbers.join()}]`;
  }

  #index(value) {
    if (typeof value === "string") {
      if (!this.#indices.has(value)) {
        throw new RangeError(`the value is not one of the stream's ${this.#indices.size} labels`);
      }
      return this.#indices.get(value);
    }
    if (!Number.isInteger(value)) throw new TypeError("the value has the wrong type; pass a label or an index");
    if (value < 0 || value >= this.#domain) throw new RangeError(`the index is not in 0 to ${this.#domain - 1}`);
    return value;
  }
}

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8190) {
    text += btoa(String.fromCharCode(...bytes.subarray(at, at + 8190))); // a multiple of 3, so only the end has padding
  }
  return text;
}
