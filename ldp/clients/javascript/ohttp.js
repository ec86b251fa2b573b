/** Sends requests to a gateway through a relay with Oblivious HTTP (RFC 9458). Needs the package `@hpke/core`. */

import { Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from "@hpke/core";

const KEM = 0x0020; // X25519 with HKDF-SHA256
const ALGORITHMS = 0x00010001; // HKDF-SHA256 and AES-128-GCM
const SUITE = new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Aes128Gcm() });
const PROBLEMS = "https://iana.org/assignments/http-problem-types#";
const PRIVATE = { credentials: "omit", redirect: "manual", referrerPolicy: "no-referrer" };
const BLOCK = 256; // the length of a request is a multiple of this number of bytes
const utf8 = new TextEncoder();

/**
 * Returns a function that sends a `Request` through a relay and resolves to the gateway's `Response`, as `fetch` does.
 *
 * The relay sees the sender's address but not the request; the gateway sees the request but not the address. Each call
 * encrypts the request with a fresh key, adds the header `Date`, and pads the request to a multiple of 256 bytes.
 *
 * @param relay URL of the relay
 * @param keys list of keys in the format `application/ohttp-keys`, or its URL. All clients must have the same list: a key that
 *   only one client has identifies its requests. A list from a URL is fetched again when the gateway rejects the key
 * @throws TypeError if the list is not valid or contains no supported key
 */
export function oblivious(relay, keys) {
  const included = keys instanceof Uint8Array;
  let key = included ? firstKey(keys) : null;
  const fetchKey = async (signal) => firstKey(await bytesOf(await fetch(keys, { ...PRIVATE, cache: "no-store", signal })));
  return async (request) => {
    const { method, url, signal } = request;
    const content = await bytesOf(request);
    let date = null; // time of the gateway, for this request only
    let renewed = included;
    for (;;) {
      const used = (key ??= await fetchKey(signal));
      const fields = [...request.headers, ["date", (date ?? new Date()).toUTCString()]];
      const { body, open } = await encapsulate(used, padded(encodeRequest(method, url, fields, content)));
      const headers = { "Content-Type": "message/ohttp-req" };
      const outer = await fetch(relay, { ...PRIVATE, method: "POST", headers, body, signal });
      const inner = outer.ok ? decodeResponse(await open(await bytesOf(outer))) : null;
      if (!renewed && (await problem(outer)) === "ohttp-key") {
        renewed = true;
        key = await fetchKey(signal);
        if (String(key) !== String(used)) continue;
      } else if (inner && !date && (await problem(inner)) === "date") {
        date = new Date(inner.headers.get("Date"));
        await new Promise((resolve) => setTimeout(resolve, 1000 * Math.random())); // hides the round-trip time
        continue;
      }
      return inner ?? outer;
    }
  };
}

async function bytesOf(message) {
  return new Uint8Array(await message.arrayBuffer());
}

async function problem(answer) {
  const type = answer.status === 400 && (await answer.clone().json().catch(() => null))?.type;
  return String(type).startsWith(PROBLEMS) ? type.slice(PROBLEMS.length) : "";
}

/** Returns the first supported key of a list in the format `application/ohttp-keys`: its id, then the 32 public bytes. */
export function firstKey(list) {
  const reader = new Reader(list);
  let found = null;
  while (reader.rest.length) {
    const entry = new Reader(reader.take(reader.number(2)));
    const id = entry.take(1);
    if (entry.number(2) !== KEM) continue; // the length of its public key is unknown
    const publicKey = entry.take(32);
    const count = entry.number(2) / 4;
    const algorithms = Array.from({ length: Math.ceil(count) }, () => entry.number(4));
    if (count < 1 || !Number.isInteger(count) || entry.rest.length) throw new TypeError("a key has a wrong length");
    if (algorithms.includes(ALGORITHMS)) found ??= Uint8Array.of(...id, ...publicKey);
  }
  if (!found) throw new TypeError("no key supports X25519, HKDF-SHA256 and AES-128-GCM; one is required");
  return found;
}

/** Encapsulates a request: its body (RFC 9458 section 4.3), and a function that decrypts the response (section 4.4). */
export async function encapsulate(key, message) {
  const header = [key[0], 0, KEM, 0, 1, 0, 1];
  const recipientPublicKey = await SUITE.kem.deserializePublicKey(key.slice(1));
  const info = Uint8Array.of(...utf8.encode("message/bhttp request\0"), ...header);
  const context = await SUITE.createSenderContext({ recipientPublicKey, info });
  const enc = new Uint8Array(context.enc);
  const body = Uint8Array.from([...header, ...enc, ...new Uint8Array(await context.seal(message))]);
  const open = async (answer) => {
    const secret = await context.export(utf8.encode("message/bhttp response"), 16);
    const base = await crypto.subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
    const salt = Uint8Array.of(...enc, ...answer.subarray(0, 16));
    const derive = (info, length) =>
      crypto.subtle.deriveBits({ name: "HKDF", hash: "SHA-256", salt, info: utf8.encode(info) }, base, 8 * length);
    const raw = await crypto.subtle.importKey("raw", await derive("key", 16), "AES-GCM", false, ["decrypt"]);
    const algorithm = { name: "AES-GCM", iv: await derive("nonce", 12) };
    return new Uint8Array(await crypto.subtle.decrypt(algorithm, raw, answer.subarray(16)));
  };
  return { body, open };
}

function padded(message) {
  const longer = new Uint8Array(BLOCK * Math.ceil(message.length / BLOCK));
  longer.set(message);
  return longer;
}

/** Encodes a request as Binary HTTP (RFC 9292) of known length. */
export function encodeRequest(method, url, fields, content) {
  const { protocol, host, pathname, search } = new URL(url);
  const control = [method, protocol.slice(0, -1), host, pathname + search].flatMap(prefixed);
  return Uint8Array.from([0, ...control, ...prefixed(fields.flat().flatMap(prefixed)), ...prefixed(content), 0]);
}

function prefixed(data) {
  const bytes = typeof data === "string" ? utf8.encode(data) : data;
  const n = bytes.length;
  const [size, mark] = n < 2 ** 6 ? [1, 0] : n < 2 ** 14 ? [2, 2 ** 14] : [4, 2 ** 31];
  const length = Array.from({ length: size }, (_, i) => ((n + mark) >>> (8 * (size - 1 - i))) & 255);
  return [...length, ...bytes];
}

/** Decodes a Binary HTTP response of known or indeterminate length. */
export function decodeResponse(message) {
  const reader = new Reader(message);
  const framing = reader.integer();
  if (framing !== 1 && framing !== 3) throw new TypeError(`the framing indicator is ${framing}; 1 or 3 is expected`);
  const start = () => (reader.rest.length ? reader.integer() : 0); // empty parts at the end can be missing
  const section = () => {
    const fields = new Headers();
    const read = (lines, length) => fields.append(text(lines.take(length)), text(lines.take(lines.integer())));
    const known = framing === 1 && new Reader(reader.take(start()));
    if (known) while (known.rest.length) read(known, known.integer());
    else for (let length = start(); length; length = reader.integer()) read(reader, length);
    return fields;
  };
  let status, headers;
  do {
    status = reader.integer();
    if (status < 100 || status > 599) throw new TypeError(`the status is ${status}; 100 to 599 is expected`);
    headers = section();
  } while (status < 200);
  const chunks = [];
  if (framing === 1) chunks.push(reader.take(start()));
  else for (let length = start(); length; length = reader.integer()) chunks.push(reader.take(length));
  section(); // trailers
  if (reader.rest.some(Boolean)) throw new TypeError("the padding is not zero");
  const content = new Blob(chunks);
  return new Response(content.size ? content : null, { status, headers });
}

function text(bytes) {
  return String.fromCharCode(...bytes);
}

/** Reads bytes in order; throws a TypeError at their end. */
class Reader {
  constructor(bytes) {
    this.rest = bytes;
  }

  take(length) {
    if (length > this.rest.length) throw new TypeError(`${this.rest.length} bytes are left; ${length} are expected`);
    const taken = this.rest.subarray(0, length);
    this.rest = this.rest.subarray(length);
    return taken;
  }

  /** An integer of `length` bytes. */
  number(length) {
    return this.take(length).reduce((value, byte) => 256 * value + byte, 0);
  }

  /** An integer that states its length (RFC 9000 section 16). */
  integer() {
    const [first] = this.take(1);
    return this.take((1 << (first >> 6)) - 1).reduce((value, byte) => 256 * value + byte, first & 63);
  }
}
