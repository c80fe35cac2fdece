// How much each folder of a list holds: a scan of all names below, which has a bound and can be stopped.

import { call } from "./api.js";
import { addTexts } from "./messages.js";
import { base } from "./objectactions.js";

addTexts({
  "objects.measure.running": "Adding up folders: {count} names read…",
  "objects.measure.done": "Folders hold the current objects of {count} names",
  "objects.measure.stopped": "Stopped after {count} names: folders hold at least as much as shown",
});

const LIMIT = 1000;
const MOST_SCANNED = 1000000;

// Calls `show({sizes, count, state})` with each page; `sizes` maps folders to bytes; the state is "running", "stopped" or "done".
export async function measureFolders(bucket, folder, show, signal) {
  const sizes = new Map();
  let count = 0;
  let after = "";
  try {
    while (after !== null && count < MOST_SCANNED) {
      const page = await call("GET", base(bucket) + "/objects", { query: { prefix: folder, limit: LIMIT, after }, signal });
      for (const [name, size] of page.objects) {
        const end = name.indexOf("/", folder.length);
        if (end >= 0) sizes.set(name.slice(0, end + 1), (sizes.get(name.slice(0, end + 1)) || 0) + size);
      }
      count += page.objects.length;
      after = page.next;
      show({ sizes: new Map(sizes), count, state: after === null ? "done" : "running" });
    }
    if (after !== null) show({ sizes, count, state: "stopped" });
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    show({ sizes, count, state: "stopped" });
  }
}
