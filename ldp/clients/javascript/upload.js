/** Uploads frames to a gateway over HTTP, from browsers and Node. */

const RETRY_FOR = 1_800_000; // milliseconds; the shuffler drops duplicates for longer
const TIMEOUT = 30_000; // one try; the gateway's own time-outs are shorter
const LONGEST_PAUSE = 60_000;

/** The gateway refused an upload; another try would fail, too. */
export class Refused extends Error {
  constructor(status, reason) {
    super(`the gateway answered ${status}${reason && ` (${reason})`}; 202 means that it has the upload`);
    this.name = "Refused";
    this.status = status;
    this.reason = reason;
  }
}

/**
 * Uploads a frame; resolves when the gateway has stored it.
 *
 * Tries again for 30 minutes after network errors and after answers with status 408, 429 and 5xx. All tries have the same
 * random `Idempotency-Key`, so that the upload counts once. A page that closes ends the tries.
 *
 * @param url `https://HOST/v1/streams/NAME/reports`
 * @param frame from `Client`
 * @param send sends each try; `oblivious` of `ohttp.js` sends through a relay
 * @throws Refused if the gateway refused the upload
 * @throws DOMException with the name TimeoutError if no try succeeded; another call could count the upload twice
 * @throws TypeError if the URL is not valid
 */
export async function upload(url, frame, send = fetch) {
  const id = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0"));
  const options = {
    method: "POST",
    headers: { "Content-Type": "application/octet-stream", "Idempotency-Key": id.join("") },
    body: frame,
    credentials: "omit",
    redirect: "manual",
    referrerPolicy: "no-referrer",
  };
  const first = Date.now();
  const inTime = (elapsed) => elapsed >= 0 && elapsed < RETRY_FOR; // a clock that went back does not extend the time
  for (let pause = 1000; inTime(Date.now() - first); pause *= 2) {
    const request = new Request(url, { ...options, signal: AbortSignal.timeout(TIMEOUT) });
    const answer = await send(request).catch(() => null);
    if (answer?.status === 202) return;
    if (answer && answer.status !== 408 && answer.status !== 429 && answer.status < 500) {
      const problem = await answer.json().catch(() => null);
      throw new Refused(answer.status, problem?.reason ?? String(problem?.type).split("#")[1] ?? "");
    }
    const asked = 1000 * (Number(answer?.headers.get("Retry-After")) || 0);
    const wait = Math.min(LONGEST_PAUSE, Math.max(asked, pause * (0.5 + Math.random() / 2)));
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
  throw new DOMException("the gateway did not acknowledge the upload in 30 minutes, but may have it", "TimeoutError");
}
