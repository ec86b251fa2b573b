/** Receives updates by server-sent events, or by polling if event streams are refused. */

import { parse } from "./json.js";

const AGAIN_MS = 3000;
const ANSWER_MS = 10_000;
const SILENT_MS = 25_000; // the worker sends a keep-alive event every 10 s

/**
 * Follows a stream's windows of one name. `on` has the callbacks streams(list), snapshot(news) for new and deleted
 * snapshots, and state(word): "connecting", "live", "polling" or "lost". A hidden page holds no connection.
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

  /** Follows another stream or window name. */
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
    const listen = (name, handle) =>
      source.addEventListener(name, (event) => {
        this.#expectNext();
        handle(event);
      });
    listen("open", () => this.#on.state("live"));
    listen("streams", (event) => this.#on.streams(parse(event.data)));
    listen("snapshot", (event) => this.#on.snapshot(parse(event.data)));
    listen("gone", (event) => this.#on.snapshot(parse(event.data)));
    listen("alive", () => {});
    source.addEventListener("error", () => {
      // the browser reconnects after a broken connection, but not after a refused one
      if (source.readyState !== EventSource.CLOSED) return this.#on.state("lost");
      clearTimeout(this.#silence);
      this.#poll(source);
    });
    this.#expectNext();
  }

  /** Restarts the timeout of the next event; a hung worker or a broken connection sends none. */
  #expectNext() {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      this.#on.state("lost");
      this.#start();
    }, SILENT_MS);
  }

  async #poll(source) {
    let answered = false;
    try {
      const answer = await fetch("streams", { signal: AbortSignal.timeout(ANSWER_MS) });
      answered = answer.ok;
      if (answered && source === this.#source) this.#on.streams(parse(await answer.text()));
    } catch {
      answered = false;
    }
    if (source !== this.#source) return;
    this.#on.state(answered ? "polling" : "lost");
    this.#timer = setTimeout(() => this.#start(), AGAIN_MS);
  }
}
