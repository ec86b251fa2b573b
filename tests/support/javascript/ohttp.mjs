// ohttp.js together with @hpke/core and bhttp-js in Node: a request as JSON on stdin, the answer as JSON on stdout. Bytes are hexadecimal.

import { createCipheriv, hkdfSync, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from "@hpke/core";
import { BHttpDecoder, BHttpEncoder } from "bhttp-js";
import { decodeResponse, encapsulate, encodeRequest, firstKey, oblivious } from "./ohttp.js";
import { Refused, upload } from "./upload.js";

const suite = new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Aes128Gcm() });
const bytes = (text) => new Uint8Array(Buffer.from(text, "hex"));
const hex = (data) => Buffer.from(data).toString("hex");
const plain = async (message) => [message.status, Object.fromEntries(message.headers), hex(await message.arrayBuffer())];
const attempt = async (action) => {
  try {
    return await action();
  } catch (error) {
    return error.name;
  }
};

/** The key pair of a secret and a public key. */
async function pairOf({ secret, open }) {
  const jwk = { kty: "OKP", crv: "X25519", x: Buffer.from(open, "hex").toString("base64url") };
  const d = Buffer.from(secret, "hex").toString("base64url");
  return {
    publicKey: await crypto.subtle.importKey("jwk", jwk, "X25519", true, []),
    privateKey: await crypto.subtle.importKey("jwk", { ...jwk, d }, "X25519", true, ["deriveBits"]),
  };
}

/** A gateway with a new key, made of @hpke/core, bhttp-js and Node's own HKDF and AES. */
class Gateway {
  async renew(id) {
    this.id = id;
    this.pair = await suite.kem.generateKeyPair();
    const key = hex(await suite.kem.serializePublicKey(this.pair.publicKey));
    this.keys = bytes(`002d${hex([id])}0020${key}00080001000100010003`);
  }

  /** Decrypts a request; returns it, and a function that encrypts a Binary HTTP response. */
  async open(body) {
    const [header, enc, sealed] = [body.slice(0, 7), body.slice(7, 39), body.slice(39)];
    const info = new Uint8Array(Buffer.concat([Buffer.from("message/bhttp request\0"), header]));
    const context = await suite.createRecipientContext({ recipientKey: this.pair, enc, info });
    const message = new Uint8Array(await context.open(sealed));
    const secret = await context.export(Buffer.from("message/bhttp response"), 16);
    const seal = (response) => {
      const nonce = randomBytes(16);
      const derive = (label, n) => Buffer.from(hkdfSync("sha256", secret, Buffer.concat([enc, nonce]), label, n));
      const cipher = createCipheriv("aes-128-gcm", derive("key", 16), derive("nonce", 12));
      return new Uint8Array(Buffer.concat([nonce, cipher.update(response), cipher.final(), cipher.getAuthTag()]));
    };
    return { message, seal };
  }
}

/** Uploads a frame to a gateway with prepared answers; returns the outcome and everything that was sent. */
async function uploaded({ answers, included, ids }) {
  const gateway = new Gateway();
  const [first, ...later] = ids;
  await gateway.renew(first);
  const [sent, fetched, pauses] = [[], [], []];
  let now = Date.now();
  Date.now = () => now;
  globalThis.setTimeout = (resolve, wait) => {
    pauses.push(wait / 1000);
    now += wait;
    queueMicrotask(resolve);
  };
  globalThis.fetch = async (url, options) => {
    if (url === "https://keys.example/") {
      fetched.push([options.cache, options.credentials, options.redirect]);
      return new Response(gateway.keys);
    }
    const { body, headers, credentials, redirect, referrerPolicy, signal } = options;
    const seen = { url, headers, credentials, redirect, referrerPolicy, timed: signal instanceof AbortSignal };
    sent.push({ ...seen, id: body[0], length: body.length, enc: hex(body.slice(7, 39)) });
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    if (answer.renew) await gateway.renew(later.shift());
    if (answer.outer) return new Response(answer.body ?? null, { status: answer.outer, headers: answer.headers });
    if (!answer.inner) throw new TypeError("fetch failed");
    const { message, seal } = await gateway.open(body);
    const request = new BHttpDecoder().decodeRequest(message);
    const inner = { method: request.method, url: request.url, headers: Object.fromEntries(request.headers) };
    Object.assign(sent.at(-1), inner, { outside: Object.keys(headers), message: message.length });
    sent.at(-1).body = hex(await request.arrayBuffer());
    const response = new Response(answer.body ?? null, { status: answer.inner, headers: answer.headers });
    return new Response(seal(await new BHttpEncoder().encodeResponse(response)));
  };
  const keys = included ? gateway.keys : "https://keys.example/";
  const send = oblivious("https://relay.example/", keys);
  let outcome = "stored";
  try {
    await upload("https://gateway.example/v1/streams/colours/reports", bytes("00ff10"), send);
  } catch (error) {
    outcome = error instanceof Refused ? [error.status, error.reason] : error.name;
  }
  return { outcome, sent, fetched, pauses };
}

const asked = {
  /** Encapsulates a request with an ephemeral key pair, and opens responses. */
  async encapsulate({ list, ephemeral, request, responses }) {
    const pair = await pairOf(ephemeral);
    crypto.subtle.generateKey = async () => pair;
    const { body, open } = await encapsulate(firstKey(bytes(list)), bytes(request));
    const opened = responses.map((response) => attempt(async () => hex(await open(bytes(response)))));
    return [hex(body), ...(await Promise.all(opened))];
  },
  keys: ({ lists }) => Promise.all(lists.map((list) => attempt(() => hex(firstKey(bytes(list)))))),
  /** Encodes requests with ohttp.js and with bhttp-js. */
  encode: ({ requests }) =>
    Promise.all(
      requests.map(async ([method, url, headers, content]) => {
        const request = new Request(url, { method, headers, body: content ? bytes(content) : undefined });
        const theirs = await new BHttpEncoder().encodeRequest(request.clone());
        return [hex(encodeRequest(method, url, [...request.headers], bytes(content))), hex(theirs)];
      }),
    ),
  decode: ({ messages }) => Promise.all(messages.map((message) => attempt(() => plain(decodeResponse(bytes(message)))))),
  decode_theirs: ({ messages }) =>
    Promise.all(messages.map((message) => attempt(() => plain(new BHttpDecoder().decodeResponse(bytes(message)))))),
  async upload({ cases }) {
    const found = [];
    for (const one of cases) found.push(await uploaded(one));
    return found;
  },
};

const { ask, ...rest } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(await asked[ask](rest)));
