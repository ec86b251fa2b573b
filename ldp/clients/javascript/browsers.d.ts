/** The document of a stream of browsers' own reports; `ldp-worker document` prints it. */
interface Common {
  /** d; the values are 0 to d−1. */
  domain_size: number;
  /** The name of each value, in order. */
  labels?: string[];
}

/** Unary encoding: "num/den" probabilities of a 1 for the value's bit (p) and other bits (q), f of permanent responses. */
export type UnaryDocument = Common & { protocol: "unary"; p: string; q: string; f?: string; epsilon?: "infinite" };

/** Binary response: the accepted rates, "num/den", ascending. */
export type RatedDocument = Common & { protocol: "response"; rates: string[] };

/** A document whose keys TypeScript does not check, such as an imported JSON file; the functions check it. */
type ParsedDocument = { [key: string]: unknown; protocol: string; domain_size: number };

/**
 * Returns the frame of a text of bits in Firefox's format.
 *
 * @throws RangeError for another number of bits or other characters; the message does not contain the text
 */
export function unaryFrame(document: UnaryDocument | ParsedDocument, bits: string): Uint8Array;

/**
 * Returns the frame of a navigation's confidence. A worker rejects undeclared rates with the reason `rate`.
 *
 * @throws RangeError for a value except "low" and "high"; the message does not contain the value
 */
export function confidenceFrame(
  document: RatedDocument | ParsedDocument,
  confidence: { value: string; randomizedTriggerRate: number },
): Uint8Array;
