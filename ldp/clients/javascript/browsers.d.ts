/** The document of a stream of browsers' own reports; `ldp-worker document` prints it. */
interface Common {
  /** d; the values are 0 to d−1. */
  domain_size: number;
  /** The name of each value, in order. */
  labels?: string[];
}

/** Unary encoding: probabilities (as "num/den") of a 1 for the value's bit (p) and other bits (q); f as in RAPPOR. */
export type UnaryDocument = Common & { protocol: "unary"; p: string; q: string; f?: string; epsilon?: "infinite" };

/** Binary response: the accepted rates as "num/den", ascending. */
export type RatedDocument = Common & { protocol: "response"; rates: string[] };

/** A document whose keys TypeScript does not check, such as an imported JSON file; the functions check it. */
type ParsedDocument = { [key: string]: unknown; protocol: string; domain_size: number };

/**
 * Returns a frame from a string of bits in Firefox's format.
 *
 * @throws RangeError for a wrong number of bits or other characters; the message does not contain the bits
 */
export function unaryFrame(document: UnaryDocument | ParsedDocument, bits: string): Uint8Array;

/**
 * Returns a frame from a navigation's confidence. A worker rejects undeclared rates with the reason `rate`.
 *
 * @throws RangeError for a value except "low" and "high"; the message does not contain the value
 */
export function confidenceFrame(
  document: RatedDocument | ParsedDocument,
  confidence: { value: string; randomizedTriggerRate: number },
): Uint8Array;
