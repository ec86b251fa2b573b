/** A larger frame does not fit into a record under Kafka's default limits, in bytes. */
export const LARGEST_FRAME: number;

interface Common {
  /** d, 1 ≤ d ≤ 2²⁴; the values are 0 to d−1. */
  domain_size: number;
  /** The name of each value, in order. */
  labels?: string[];
}

/** A stream's public document, as `ldp-worker document` and `ldp document` print it. */
export type StreamDocument = Common & (OfEpsilon | Given);

/** ε is "num/den" in lowest terms, 0 < ε ≤ 64. */
type OfEpsilon = { epsilon: string } & (
  | { protocol: "grr" | "oue" | "sue" | "hadamard" }
  | { protocol: "olh"; g: number; hash: "mul32" | "xxh32" }
  | { protocol: "subset"; k: number }
  | { protocol: "pgr"; prime: number; dimension: number }
);

/** A channel that is given by its probabilities, each "num/den" in lowest terms. */
type Given =
  | { protocol: "response"; p: string }
  | { protocol: "response"; rates: string[] }
  | { protocol: "unary"; p: string; q: string; f?: string; epsilon?: "infinite" };

/** Makes the reports of one stream. */
export class Client {
  /**
   * @param document the stream's public document, as parsed from its JSON
   * @throws TypeError of a part that has the wrong type
   * @throws RangeError of a key that is missing or unknown, or a value that is not allowed
   */
  constructor(document: StreamDocument);

  /** The document's fingerprint, in hexadecimal. */
  get fingerprint(): string;

  /** The size of a report in a binary frame, in bytes. */
  get reportBytes(): number;

  /**
   * One whole frame with one fresh report of a value; it spends the stream's ε.
   *
   * @param value the value's label, or its index
   * @returns what a record of the stream's topic holds
   * @throws TypeError or RangeError of what is no value of the stream; no error repeats it
   */
  report(value: string | number): Uint8Array;

  /**
   * The reports of many frames in as few frames as may be, in their order; it draws no coins and spends no ε.
   *
   * @param frames frames of this stream, as `report` and this make them
   * @param mostReports how many reports a frame may have: the operator says it (`streams.most_reports`)
   * @returns frames of at most so many reports and `LARGEST_FRAME` bytes; a longer report has a frame of its own
   * @throws TypeError or RangeError of what is no frame of this stream; the message says which and why
   */
  pack(frames: Iterable<Uint8Array>, mostReports: number): Uint8Array[];

  /** Is `pack` with frames in JSON, for what carries nothing but text; they are several times as long. */
  packJSON(frames: Iterable<Uint8Array>, mostReports: number): string[];
}
