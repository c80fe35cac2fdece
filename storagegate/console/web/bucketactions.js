// What is done with a whole bucket: its menu, and the dialogs that empty and delete it.

import { call, segment } from "./api.js";
import { addTexts, bytes, number, say } from "./messages.js";
import { announce, Confirm, html } from "./ui.js";

addTexts({
  "bucket.open": "Open",
  "bucket.settings": "Settings",
  "bucket.access": "Access",
  "bucket.empty": "Empty bucket…",
  "bucket.delete": "Delete bucket…",
  "bucket.emptyTitle": "Empty {name}",
  "bucket.emptyText": "Deletes {what}. Nothing of it can be restored.",
  "bucket.emptyLocked": "What a retention or a legal hold protects stays, and the job lists it.",
  "bucket.emptyJob": "A job on the server does it. It continues when you leave this page, and can be stopped.",
  "bucket.emptyNow": "Deletes {what}, as a job that can be stopped.",
  "bucket.emptyRun": "Empty bucket",
  "bucket.what": "{parts} ({size})",
  "bucket.what.object": "1 object",
  "bucket.what.objects": "{count} objects",
  "bucket.what.version": "1 older version",
  "bucket.what.versions": "{count} older versions",
  "bucket.what.marker": "all delete markers",
  "bucket.what.all": "all objects with all versions",
  "bucket.what.upload": "1 unfinished upload",
  "bucket.what.uploads": "{count} unfinished uploads",
  "bucket.deleteTitle": "Delete {name}",
  "bucket.deleteText": "Only an empty bucket can be deleted. This cannot be undone.",
  "bucket.deleteFull": "The bucket still holds {what}. Empty it first.",
  "bucket.deleted": "The bucket is deleted",
});

// Whether a key may remove every object: a key for some objects only may not.
export const mayEmpty = ({ may, keyPattern }) => may.write && may.list && !keyPattern;

const words = new Intl.ListFormat("en");
const counted = (name, count) => (count === 1 ? say("bucket.what." + name) : say("bucket.what." + name + "s", { count: number(count) }));

// All that a bucket holds, as a part of a sentence.
export function contentOf({ versioning, objects, older, bytes: size, uploads, uploadBytes }) {
  const parts = older === null ? [say("bucket.what.all")] : [counted("object", objects - older)];
  if (older) parts.push(counted("version", older));
  if (versioning) parts.push(say("bucket.what.marker"));
  if (uploads) parts.push(counted("upload", uploads));
  return say("bucket.what", { parts: words.format(parts), size: size === null ? "–" : bytes(size + uploadBytes) });
}

// `onDone(job)` gets the job that empties the bucket.
export function EmptyBucket({ bucket, onClose, onDone }) {
  const { name, lockEnabled } = bucket;
  const text = [
    say("bucket.emptyText", { what: contentOf(bucket) }), lockEnabled && say("bucket.emptyLocked"), say("bucket.emptyJob"),
  ].filter(Boolean).join(" ");
  return html`
    <${Confirm} title=${say("bucket.emptyTitle", { name })} text=${text} name=${name} label=${say("bucket.emptyRun")} onClose=${onClose}
      act=${async () => onDone(await call("POST", "jobs", { body: { kind: "emptyBucket", bucket: name } }))} />
  `;
}

export function DeleteBucket({ bucket, onClose, onDone }) {
  const { name } = bucket;
  async function remove() {
    try {
      await call("DELETE", "buckets/" + segment(name));
    } catch (error) {
      if (error.code === "BUCKET_NOT_EMPTY") error.message = say("bucket.deleteFull", { what: contentOf(bucket) });
      throw error;
    }
    announce(say("bucket.deleted"));
    onDone();
  }
  return html`
    <${Confirm} title=${say("bucket.deleteTitle", { name })} text=${say("bucket.deleteText")} name=${name} act=${remove}
      label=${say("app.delete")} onClose=${onClose} />
  `;
}

// The items of the menu of a bucket, of which a key gets those that it may use. `go(part)` opens a part of it; `ask(dialog)` a dialog.
export function itemsOf(bucket, go, ask) {
  const item = (label, icon, act, more) => ({ label: say("bucket." + label), icon, act, ...more });
  const items = [item("open", "bucket", () => go("objects"))];
  if (bucket.may.admin) items.push(item("settings", "settings", () => go("settings")), item("access", "shield", () => go("access")));
  const removing = [];
  if (mayEmpty(bucket)) removing.push(item("empty", "close", () => ask("EmptyBucket")));
  if (bucket.may.admin) removing.push(item("delete", "trash", () => ask("DeleteBucket"), { isBad: true }));
  return removing.length ? [...items, null, ...removing] : items;
}
