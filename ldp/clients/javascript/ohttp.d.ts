/**
 * Returns a function that sends a `Request` through a relay and resolves to the gateway's `Response`, as `fetch` does.
 *
 * The relay sees the sender's address but not the request; the gateway sees the request but not the address (RFC 9458).
 *
 * @param relay URL of the relay
 * @param keys list of keys in the format `application/ohttp-keys`, or its URL. All clients must have the same list: a key that
 *   only one client has identifies its requests
 * @throws TypeError if the list is not valid or contains no supported key
 */
export function oblivious(relay: string | URL, keys: Uint8Array | string | URL): (request: Request) => Promise<Response>;
