// Deleting objects: some of them at once, whole folders by jobs, and the way back where versions are kept.

import { call } from "./api.js";
import { addTexts, counted, number, say } from "./messages.js";
import { base } from "./objectactions.js";
import { shown } from "./objectnames.js";
import { announce, Confirm, html } from "./ui.js";

addTexts({
  "objects.deleteOne": "Delete {name}",
  "objects.delete": "Delete {count} objects",
  "objects.deleteFolder": "Delete the folder {name}",
  "objects.deleteFolders": "Delete {what} with everything in them",
  "objects.deleteAll": "Delete everything below {prefix}",
  "objects.deleteText": "A bucket that keeps versions keeps what you delete as an older version.",
  "objects.deleteText.": "This bucket keeps no versions: what you delete cannot be restored.",
  "objects.deleteText.Enabled": "This bucket keeps versions: what you delete can be restored.",
  "objects.deleteText.Suspended": "Versions are suspended: what was stored since then cannot be restored.",
  "objects.deletedOne": "1 object deleted",
  "objects.deleted": "{count} objects deleted",
  "objects.undone": "{count} restored",
  "objects.restoring": "Restoring: {count} so far",
  "objects.restoredBelow": "{count} objects are restored",
  "objects.notDeleted": "{count} objects were not deleted: {first}",
});

const BATCH_OBJECTS = 1000;
const BATCH_CHARACTERS = 150000;
const MOST_UNTYPED = 100;

function* batches(items) {
  let batch = [];
  let length = 0;
  for (const item of items) {
    batch.push(item);
    length += item.key.length;
    if (batch.length === BATCH_OBJECTS || length > BATCH_CHARACTERS) {
      yield batch;
      batch = [];
      length = 0;
    }
  }
  if (batch.length) yield batch;
}

// Delete objects, or versions; items are {key, versionId}. Returns {failed, markers}: those that were refused,
// and the delete markers that were made.
export async function deleteObjects(bucket, items, bypass) {
  const failed = [];
  const markers = [];
  for (const batch of batches(items)) {
    const body = { items: batch, bypass: Boolean(bypass) };
    const done = await call("POST", base(bucket) + "/delete", { body });
    failed.push(...done.failed);
    markers.push(...done.markers);
  }
  return { failed, markers };
}

// Say what was deleted, with the way back where versions are kept.
export function announceDeleted(bucket, count, markers, reload) {
  const undo = markers.length > 0 && {
    label: say("objects.undo"),
    act: async () => {
      try {
        const { failed } = await deleteObjects(bucket, markers);
        announce(say("objects.undone", { count: number(markers.length - failed.length) }));
      } catch (error) {
        announce(error.message);
      }
      reload();
    },
  };
  announce(say(count === 1 ? "objects.deletedOne" : "objects.deleted", { count: number(count) }), undo);
}

// Bring back what was deleted below a prefix since a time.
export async function restoreBelow(bucket, prefix, sinceMs) {
  let count = 0;
  let page = null;
  do {
    const query = { prefix, limit: BATCH_OBJECTS };
    if (page) Object.assign(query, { after: page.next, versionAfter: page.nextVersion });
    page = await call("GET", base(bucket) + "/versions", { query });
    const markers = page.items.filter((each) => each.isDeleteMarker && each.isLatest && each.modifiedMs >= sinceMs);
    const { failed } = await deleteObjects(bucket, markers.map(({ key, versionId }) => ({ key, versionId })));
    count += markers.length - failed.length;
    if (page.next !== null) announce(say("objects.restoring", { count: number(count) }));
  } while (page.next !== null);
  announce(say("objects.restoredBelow", { count: number(count) }));
}

export function DeleteSelection({ bucket, info, prefix, selection, reload, onClose, onDone }) {
  const { all, names } = selection;
  const keys = [...names].filter((name) => !name.endsWith("/"));
  const folders = all ? [prefix] : [...names].filter((name) => name.endsWith("/"));
  async function act() {
    const jobs = [];
    const { failed, markers } = all || !keys.length
      ? { failed: [], markers: [] } : await deleteObjects(bucket, keys.map((key) => ({ key })));
    for (const folder of folders)
      try {
        jobs.push(await call("POST", "jobs", { body: { kind: "deletePrefix", bucket, prefix: folder } }));
      } catch (error) {
        // What was done is not done again.
        if (!jobs.length && !keys.length) throw error;
        failed.push({ key: folder, error: error.message });
      }
    const first = failed.length && shown(failed[0].key) + ": " + failed[0].error;
    if (failed.length) announce(say("objects.notDeleted", { count: number(failed.length), first }));
    else if (!all && keys.length) announceDeleted(bucket, keys.length, markers, reload);
    onDone(jobs, failed.map(({ key }) => key));
  }
  const count = number(keys.length);
  let title = keys.length === 1 ? say("objects.deleteOne", { name: shown(keys[0]) }) : say("objects.delete", { count });
  if (all) title = say("objects.deleteAll", { prefix: shown(prefix) || say("objects.wholeBucket") });
  else if (folders.length === 1 && !keys.length) title = say("objects.deleteFolder", { name: shown(folders[0]) });
  else if (folders.length)
    title = say("objects.deleteFolders", { what: [
      ...counted(folders.length, "objects.folderOne", "objects.folders"), ...counted(keys.length, "objects.one", "objects.many"),
    ].join(", ") });
  const text = info ? say("objects.deleteText." + info.versioning) : say("objects.deleteText");
  const canUndo = Boolean(info) && info.versioning === "Enabled";
  const isMuch = !canUndo && (folders.length > 0 || keys.length > MOST_UNTYPED);
  const isFolder = !all && folders.length === 1 && !keys.length && shown(folders[0]) === folders[0];
  return html`
    <${Confirm} title=${title} text=${text} name=${isMuch ? (isFolder ? folders[0] : bucket) : undefined} canUndo=${canUndo}
      act=${act} label=${say("app.delete")} onClose=${onClose} />
  `;
}
