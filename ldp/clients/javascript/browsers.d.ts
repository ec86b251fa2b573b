/** The document of a stream of browsers' own reports; `ldp-worker document` prints it. */
interface Common {
  /** d; the values are 0 to d−1. */
  domain_size: number;
  /** The name of each value, in order. */
  labels?: string[];
}

/** Unary encoding: probabilities (as "num/den") of a 1 for the value's bit (p) and other bits (q); f as in RAPPOR. */
export type UnaryDocument = Common & { protocol: "unary"; p: string; q: string; f?: string; epsilon?: "infinite" };

/** Randomized response of two values, with p = 1 − rate/2 as "num/den". */
export type ResponseDocument = Common & { protocol: "response"; p: string };

/** A document whose keys TypeScript does not check, such as an imported JSON file; the functions check it. */
type ParsedDocument = { [key: string]: unknown; protocol: string; domain_size: number };

/**
 * Returns a frame from a string of bits in Firefox's format.
 *
 * @throws RangeError for a wrong number of bits or other characters; the message does not contain the bits
 */
export function unaryFrame(document: UnaryDocument | ParsedDocument, bits: string): Uint8Array;

/**
 * Returns a frame from a navigation's confidence, for the document with the browser's rate.
 *
 * @param documents one document for each rate, as the stream lists them; the first one, if two have the same rate
 * @throws TypeError for a document that is not a response of two values
 * @throws RangeError for a rate that no document has, or a value except "low" and "high"; the message does not contain
 *   the value
 */
export function confidenceFrame(
  documents: readonly (ResponseDocument | ParsedDocument)[],
  confidence: { value: string; randomizedTriggerRate: number },
): Uint8Array;
