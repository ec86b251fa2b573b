/** What comes by itself: server-sent events, and where they cannot be had, asking every few seconds. */

import { parse } from "./json.js";

const AGAIN_MS = 3000;
const ANSWER_MS = 10_000;
const SILENT_MS = 25_000; // who has nothing to say says so every ten seconds

/**
 * Follows a stream's windows of one name. `on` has streams(list), snapshot(news), of what is new or gone, and state(word):
 * "connecting", "live", "asking" (no events, but answers) and "lost". A page that nobody sees holds no connection.
 */
export class Live {
  #on;
  #source = null;
  #timer = null;
  #silence = null;
  #query = "";

  constructor(on) {
    this.#on = on;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return this.#stop();
      this.#on.state("connecting");
      this.#start();
    });
  }

  /** Follows these from now on. */
  watch(stream, window) {
    const query = stream === "" ? "" : `?${new URLSearchParams({ stream, window })}`;
    if (query === this.#query && this.#source !== null) return;
    this.#query = query;
    if (!document.hidden) this.#start();
  }

  #stop() {
    clearTimeout(this.#timer);
    clearTimeout(this.#silence);
    this.#source?.close();
    this.#source = null;
  }

  #start() {
    this.#stop();
    const source = new EventSource(`events${this.#query}`);
    this.#source = source;
    const hear = (name, tell) =>
      source.addEventListener(name, (event) => {
        this.#heard();
        tell(event);
      });
    hear("open", () => this.#on.state("live"));
    hear("streams", (event) => this.#on.streams(parse(event.data)));
    hear("snapshot", (event) => this.#on.snapshot(parse(event.data)));
    hear("gone", (event) => this.#on.snapshot(parse(event.data)));
    hear("alive", () => {});
    source.addEventListener("error", () => {
      // the browser tries a broken connection again by itself, but not one that was refused
      if (source.readyState !== EventSource.CLOSED) return this.#on.state("lost");
      clearTimeout(this.#silence);
      this.#ask(source);
    });
    this.#heard();
  }

  /** Begins to wait for the next word; a worker that hangs, or a line that is cut, says none. */
  #heard() {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      this.#on.state("lost");
      this.#start();
    }, SILENT_MS);
  }

  async #ask(source) {
    let answered = false;
    try {
      const answer = await fetch("streams", { signal: AbortSignal.timeout(ANSWER_MS) });
      answered = answer.ok;
      if (answered && source === this.#source) this.#on.streams(parse(await answer.text()));
    } catch {
      answered = false;
    }
    if (source !== this.#source) return;
    this.#on.state(answered ? "asking" : "lost");
    this.#timer = setTimeout(() => this.#start(), AGAIN_MS);
  }
}
