// What is done with many objects: deleting, with jobs for whole folders, and zips.

import { useEffect, useState } from "preact/hooks";
import { call, segment } from "./api.js";
import { number, say } from "./messages.js";
import { shown } from "./objectnames.js";
import { announce, Button, Confirm, html, Problem, useLoad } from "./ui.js";

const BATCH_OBJECTS = 1000;
const BATCH_CHARACTERS = 150000;
const MOST_UNTYPED = 100;
const POLL_MS = 1000;

export const base = (bucket) => "buckets/" + segment(bucket);

export const objectPath = (bucket, key) => base(bucket) + "/objects/" + segment(key);

// Let the browser fetch what a ticket is for, as a file.
export async function download(ticket, name) {
  const { url } = await call("POST", "tickets", { body: ticket });
  const anchor = document.createElement("a");
  anchor.href = new URL(url, document.baseURI).href;
  anchor.download = name;
  anchor.click();
}

// A selection is {all, names}: names of folders end with a slash.
export function downloadSelection(bucket, prefix, { all, names }) {
  const keys = [...names].filter((name) => !name.endsWith("/"));
  const prefixes = [...names].filter((name) => name.endsWith("/"));
  if (!all && keys.length === 1 && !prefixes.length)
    return download({ bucket, key: keys[0], purpose: "download" }, keys[0].split("/").pop());
  const what = all ? { prefix } : { keys, prefixes };
  const folder = prefix.slice(0, prefix.lastIndexOf("/") + 1);
  return download({ bucket, purpose: "zip", base: folder, ...what }, "");
}

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

export function DeleteSelection({ bucket, prefix, selection, reload, onClose, onDone }) {
  const { all, names } = selection;
  const keys = [...names].filter((name) => !name.endsWith("/"));
  const folders = all ? [prefix] : [...names].filter((name) => name.endsWith("/"));
  async function act() {
    const jobs = [];
    const { failed, markers } = all || !keys.length
      ? { failed: [], markers: [] } : await deleteObjects(bucket, keys.map((key) => ({ key })));
    for (const folder of folders)
      jobs.push(await call("POST", "jobs", { body: { kind: "deletePrefix", bucket, prefix: folder } }));
    const first = failed.length && shown(failed[0].key) + ": " + failed[0].error;
    if (failed.length) announce(say("objects.notDeleted", { count: number(failed.length), first }));
    else if (!all && keys.length) announceDeleted(bucket, keys.length, markers, reload);
    onDone(jobs, failed.map(({ key }) => key));
  }
  const count = number(keys.length);
  let title = keys.length === 1 ? say("objects.deleteOne", { name: shown(keys[0]) }) : say("objects.delete", { count });
  if (all) title = say("objects.deleteAll", { prefix: shown(prefix) || say("objects.wholeBucket") });
  else if (folders.length) title = say("objects.deleteFolders", { count, folders: number(folders.length) });
  const isMuch = folders.length > 0 || keys.length > MOST_UNTYPED;
  return html`
    <${Confirm} title=${title} text=${say("objects.deleteText")} name=${isMuch ? bucket : undefined}
      act=${act} label=${say("app.delete")} onClose=${onClose} />
  `;
}

// A job while it runs, and how it has ended.
export function JobProgress({ job, onEnd, onClose }) {
  const [now, setNow] = useState(job);
  const isRunning = now.state === "running";
  const found = useLoad(async (signal) => {
    const { items } = await call("GET", "jobs", { signal });
    return items.find((each) => each.id === job.id) || { ...now, state: "interrupted" };
  }, []);
  useEffect(() => {
    if (found.data) setNow(found.data);
    if (found.data && found.data.state !== "running") onEnd();
    if (!isRunning || found.error) return undefined;
    const timer = setTimeout(found.reload, POLL_MS);
    return () => clearTimeout(timer);
  }, [found.atMs, found.error]);
  const values = {
    prefix: shown(now.prefix) || say("objects.wholeBucket"),
    count: number(now.done - now.failures),
  };
  const [first] = now.failed;
  return html`
    <div class="notice" role="status">
      <span class="fill">${isRunning
        ? say("objects.job", values)
        : say("objects.jobEnded", { ...values, state: say("objects.jobState." + now.state) })}
        ${first && html` <span class="bad">${say("objects.jobFailed", {
          count: number(now.failures), first: shown(first.key) + ": " + first.error,
        })}</span>`}</span>
      ${isRunning
        ? html`<${Button} onClick=${() => call("DELETE", "jobs/" + segment(now.id))}>${say("app.cancel")}<//>`
        : html`<${Button} onClick=${onClose}>${say("app.close")}<//>`}
    </div>
    ${found.error && html`<${Problem} error=${found.error} retry=${found.reload} />`}
  `;
}
