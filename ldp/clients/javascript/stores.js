/**
 * Stores for `Client`: each keeps a text by key, and replaces it in one atomic step.
 *
 * `update(key, change)` calls `change` with the text, or null, and resolves to the new text when it is durable. If
 * `change` throws, the text stays. `change` can be called again if another process was faster. The texts contain the
 * user's values if noise is memoised.
 */

/** Stores texts in IndexedDB, for pages and workers. Exact across tabs and crashes of the browser. */
export function indexedDBStore(name = "ldp-client") {
  const opened = () =>
    new Promise((resolve, reject) => {
      const request = indexedDB.open(name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore("texts");
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  const replaced = (database, key, change) =>
    new Promise((resolve, reject) => {
      const transaction = database.transaction("texts", "readwrite", { durability: "strict" });
      const texts = transaction.objectStore("texts");
      const found = texts.get(key);
      let [text, error] = [];
      found.onsuccess = () => {
        try {
          text = change(found.result ?? null);
          texts.put(text, key);
        } catch (thrown) {
          error = thrown;
          transaction.abort();
        }
      };
      transaction.oncomplete = () => resolve(text);
      transaction.onabort = () => reject(error ?? transaction.error);
    });
  return {
    async update(key, change) {
      const database = await opened();
      try {
        return await replaced(database, key, change);
      } finally {
        database.close();
      }
    },
  };
}

/**
 * Stores texts in an object with `getItem` and `setItem`, such as `localStorage`. A lock of the browser makes it exact
 * across tabs. Browsers write `localStorage` to disk later, so that a crash of the browser can lose the last reports.
 */
export function webStore(storage = localStorage, locks = navigator.locks) {
  return {
    update: (key, change) =>
      locks.request(key, async () => {
        const text = change(await storage.getItem(key));
        await storage.setItem(key, text);
        return text;
      }),
  };
}

const KEPT = 8; // older texts, so that a slow listing of the folder sees one of the newest

/**
 * Stores texts in a folder, for Node. Exact across processes and kills.
 *
 * The newest text is in the file with the highest number. A process links a new text to the next number, which fails if
 * the number exists. If a higher number exists after the link, another process was faster, and the process tries again.
 */
export function folderStore(folder) {
  return {
    async update(key, change) {
      const { link, mkdir, open, readFile, readdir, rm } = await import("node:fs/promises");
      const path = (number) => `${folder}/${key}.${number}`;
      const unless = (code) => (error) => {
        if (error.code !== code) throw error;
        return null;
      };
      const numbers = async () =>
        (await readdir(folder)).filter((file) => file.startsWith(`${key}.`)).map((file) => Number(file.slice(key.length + 1)));
      const synced = async (file, flags, text) => {
        const handle = await open(file, flags, 0o600);
        try {
          if (text !== undefined) await handle.writeFile(text);
          await handle.sync();
        } finally {
          await handle.close();
        }
      };
      await mkdir(folder, { recursive: true, mode: 0o700 });
      for (;;) {
        const newest = Math.max(0, ...(await numbers()));
        const before = newest ? await readFile(path(newest), "utf8").catch(unless("ENOENT")) : null;
        if (newest && before === null) continue;
        const text = change(before);
        const draft = `${folder}/draft-${crypto.randomUUID()}`;
        await synced(draft, "wx", text);
        const linked = await link(draft, path(newest + 1)).then(() => true, unless("EEXIST"));
        await rm(draft);
        if (!linked) continue;
        const found = await numbers();
        if (Math.max(...found) > newest + 1) {
          await rm(path(newest + 1), { force: true });
          continue;
        }
        await synced(folder, "r");
        for (const number of found) if (number <= newest - KEPT) await rm(path(number), { force: true });
        return text;
      }
    },
  };
}
