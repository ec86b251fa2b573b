/** The gateway refused an upload; another try would fail, too. */
export class Refused extends Error {
  constructor(status: number, reason: string);
  readonly status: number;
  /** Reason of a status 400, such as `fingerprint`, or the name of its problem type; else empty. */
  readonly reason: string;
}

/**
 * Uploads a frame; resolves when the gateway has stored it. Tries again for 30 minutes with the same `Idempotency-Key`.
 *
 * @param url `https://HOST/v1/streams/NAME/reports`
 * @param frame from `Client`
 * @param send sends each try, `fetch` by default; `oblivious` of `ldp-client/ohttp` sends through a relay
 * @throws Refused if the gateway refused the upload
 * @throws DOMException with the name TimeoutError if no try succeeded; another call could count the upload twice
 */
export function upload(url: string | URL, frame: Uint8Array, send?: (request: Request) => Promise<Response>): Promise<void>;
