/** The largest frame in bytes that fits into a record under Kafka's default limits. */
export const LARGEST_FRAME: number;

interface Common {
  /** d, 1 ≤ d ≤ 2²⁴; the values are 0 to d−1. */
  domain_size: number;
  /** The name of each value, in order. */
  labels?: string[];
  /** Limit on the reports of a unit, and their noise. */
  privacy?: Privacy;
  /** The names of the levels of a report's segment, such as "country:app". */
  segment?: string;
}

/** The declaration of the reports of a unit; wire-format.md defines the keys. */
export interface Privacy {
  unit: string;
  reports: number;
  period: string;
  noise: "fresh" | "memoised";
  horizon: string;
}

/** A stream's public document; `ldp-worker document` and `ldp document` print it. */
export type StreamDocument = Common & (OfEpsilon | Explicit);

/** ε is "num/den" in lowest terms, 0 < ε ≤ 64. */
type OfEpsilon = { epsilon: string } & (
  | { protocol: "grr" | "oue" | "sue" | "hadamard" }
  | { protocol: "olh"; g: number; hash: "mul32" | "xxh32" }
  | { protocol: "subset"; k: number }
  | { protocol: "pgr"; prime: number; dimension: number }
);

/** An explicit channel: probabilities as "num/den" in lowest terms. */
type Explicit =
  | { protocol: "response"; p: string }
  | { protocol: "unary"; p: string; q: string; f?: string; epsilon?: "infinite" };

/** A document whose keys TypeScript does not check, such as an imported JSON file; the client checks it. */
export type ParsedDocument = { [key: string]: unknown; protocol: string; domain_size: number };

/** Returns the first 4 bytes of SHA-256 of the document in canonical form, which begin each frame after its version. */
export function fingerprintOf(document: StreamDocument | ParsedDocument): Uint8Array;

/** Where a client counts its reports; stores.js has stores for IndexedDB, `localStorage` and Node. */
export interface Store {
  /**
   * Replaces a key's text in one atomic step, and resolves to the new text when it is durable.
   *
   * @param change maps the text, or null, to the new text; if it throws, the text stays
   */
  update(key: string, change: (before: string | null) => string): Promise<string>;
}

/** The device has sent all reports of the period; it may report again at `until`. */
export class Spent extends Error {
  constructor(until: Date);
  readonly until: Date;
}

/** Makes the reports of one stream. */
export class Client<S extends Store | null = null> {
  /**
   * @param document the stream's public document, as parsed from its JSON
   * @param store where the client counts reports and stores memoised noise, as the document declares
   * @param options.segment the segment of all reports, with a value for each level of the document's key `segment`; the
   *   server sees it in the clear, so it must not depend on the secret value. A document without the key allows none.
   * @param options.clock returns milliseconds since 1970-01-01T00:00Z
   * @throws TypeError if a key has the wrong type
   * @throws RangeError if a key is missing or unknown, or has a value that is not allowed
   */
  constructor(
    document: StreamDocument | ParsedDocument,
    store?: S,
    options?: { segment?: string | null; clock?: () => number },
  );

  /** The document's fingerprint, in hexadecimal. */
  get fingerprint(): string;

  /** The size of a report in a binary frame in bytes. */
  get reportBytes(): number;

  /**
   * Returns a frame with one report of a value. Each call spends the stream's ε. With a store, returns a promise of the
   * frame; the store records the report before it is made.
   *
   * @param value the value's label or index
   * @returns the value of a record on the stream's topic
   * @throws TypeError or RangeError for anything that is not a value of the stream; the message does not contain it
   * @throws Spent if the device has sent all reports of the period
   */
  report(value: string | number): S extends Store ? Promise<Uint8Array> : Uint8Array;

  /**
   * Packs the reports of many frames into as few frames as possible, in order. Draws no coins and spends no ε.
   *
   * @param frames frames of this stream, from `report` or `pack`
   * @param mostReports the largest number of reports per frame, which the operator sets (`streams.most_reports`)
   * @returns frames of at most mostReports reports and `LARGEST_FRAME` bytes; a longer report gets its own frame
   * @throws TypeError or RangeError if a frame is invalid or belongs to another stream
   */
  pack(frames: Iterable<Uint8Array>, mostReports: number): Uint8Array[];

  /** Packs as `pack` does, into JSON frames for text-only transports; JSON frames are several times as long. */
  packJSON(frames: Iterable<Uint8Array>, mostReports: number): string[];
}
