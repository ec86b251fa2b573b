/** The document of a stream whose clients are browsers, as `ldp-worker document` prints it. */
interface Given {
  /** d; the values are 0 to d−1. */
  domain_size: number;
  /** The name of each value, in order. */
  labels?: string[];
}

/** Of unary encoding: the probabilities of a 1 for the own bit and for another, "num/den"; f of a permanent response. */
export type UnaryDocument = Given & { protocol: "unary"; p: string; q: string; f?: string; epsilon?: "infinite" };

/** Of a binary response: the rates that are taken, "num/den", ascending. */
export type RatedDocument = Given & { protocol: "response"; rates: string[] };

/**
 * The frame of a text of bits, as Firefox makes it.
 *
 * @throws RangeError of another number of bits, or of other characters; it repeats none
 */
export function unaryFrame(document: UnaryDocument, bits: string): Uint8Array;

/**
 * The frame of a navigation's confidence; of a rate that the document does not declare one that a worker rejects as `rate`.
 *
 * @throws RangeError of another value than "low" or "high", which it does not repeat
 */
export function confidenceFrame(
  document: RatedDocument,
  confidence: { value: string; randomizedTriggerRate: number },
): Uint8Array;
