import type { Store } from "./ldp-client.js";

/** Stores texts in IndexedDB, for pages and workers. Exact across tabs and crashes of the browser. */
export function indexedDBStore(name?: string): Store;

/** An object such as `localStorage`, or one whose methods return promises. */
export interface Items {
  getItem(key: string): string | null | Promise<string | null>;
  setItem(key: string, text: string): unknown;
}

/** Stores texts in such an object. A crash of the browser can lose the last reports of `localStorage`. */
export function webStore(storage?: Items, locks?: { request<T>(name: string, call: () => Promise<T>): Promise<T> }): Store;

/** Stores texts in a folder, for Node. Exact across processes and kills. */
export function folderStore(folder: string): Store;
