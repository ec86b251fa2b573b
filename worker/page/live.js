/** What comes by itself: server-sent events, and where they cannot be had, asking every few seconds. */

const AGAIN_MS = 3000;

/**
 * Follows a stream's windows of one name. `on` has streams(list), snapshot(news) and state(word): "connecting", "live",
 * "asking" (no events, but answers) and "lost". A page that nobody sees holds no connection.
 */
export class Live {
  #on;
  #source = null;
  #timer = null;
  #query = "";

  constructor(on) {
    this.#on = on;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#stop() : this.#start()));
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
    this.#source?.close();
    this.#source = null;
  }

  #start() {
    this.#stop();
    const source = new EventSource(`events${this.#query}`);
    this.#source = source;
    source.addEventListener("open", () => this.#on.state("live"));
    source.addEventListener("streams", (event) => this.#on.streams(JSON.parse(event.data)));
    source.addEventListener("snapshot", (event) => this.#on.snapshot(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      // the browser tries a broken connection again by itself, but not one that was refused
      if (source.readyState === EventSource.CLOSED) this.#ask(source);
      else this.#on.state("lost");
    });
  }

  async #ask(source) {
    let answered = false;
    try {
      const answer = await fetch("streams");
      answered = answer.ok;
      if (answered && source === this.#source) this.#on.streams(await answer.json());
    } catch {
      answered = false;
    }
    if (source !== this.#source) return;
    this.#on.state(answered ? "asking" : "lost");
    this.#timer = setTimeout(() => this.#start(), AGAIN_MS);
  }
}
