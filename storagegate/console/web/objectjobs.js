// What is done with a whole folder: copied, moved, renamed or deleted by a job of the daemon, which is shown while it
// runs, can be stopped, and can be run again for the rest.

import { useEffect, useRef, useState } from "preact/hooks";
import { APIError, call, segment } from "./api.js";
import { addTexts, counted, number, say } from "./messages.js";
import { base, objectPath } from "./objectactions.js";
import { folderOf, shown } from "./objectnames.js";
import { TargetFields } from "./objecttree.js";
import { Pairs } from "./pairs.js";
import { link } from "./router.js";
import { announce, Button, Dialog, Field, Form, html, Icon, Problem, useAction, useLoad } from "./ui.js";

addTexts({
  "objects.job.deletePrefix": "Deleting {prefix}",
  "objects.job.copyPrefix": "Copying {prefix} to {to}",
  "objects.job.movePrefix": "Moving {prefix} to {to}",
  "objects.job.tagObjects": "Adding the tags {tags}",
  "objects.jobDone.tagObjects": "Added the tags {tags}",
  "objects.job.emptyBucket": "Emptying {bucket}",
  "objects.jobDone.emptyBucket": "Emptied {bucket}",
  "objects.jobItems": "{count} versions, markers and uploads",
  "objects.jobDone.deletePrefix": "Deleted {prefix}",
  "objects.jobDone.copyPrefix": "Copied {prefix} to {to}",
  "objects.jobDone.movePrefix": "Moved {prefix} to {to}",
  "objects.jobRuns": "{what}: {count} done",
  "objects.jobEnded": "{what}: {state}, {count} done",
  "objects.jobDone": "{what}: {objects}",
  "objects.jobFailed": "{count} failed, the first: {first}",
  "objects.jobShow": "All jobs",
  "objects.jobAgain": "Run again",
  "objects.jobAgainText": "Run it again to process the rest.",
  "objects.jobState.done": "finished with failures",
  "objects.jobState.cancelled": "stopped",
  "objects.jobState.failed": "failed",
  "objects.jobState.interrupted": "interrupted",
  "folder.copyTitle": "Copy the folder {name}",
  "folder.moveTitle": "Move the folder {name}",
  "folder.renameTitle": "Rename the folder {name}",
  "folder.copy": "Copy folder",
  "folder.move": "Move folder",
  "folder.rename": "Rename folder",
  "folder.toFolder": "To folder",
  "folder.newPath": "New path of the folder",
  "folder.newPathHelp": "With the folder's own name at the end: {name}",
  "folder.spills": "Without a path, the content of the folder goes to the top of {name} and replaces objects with the same names.",
  "folder.toFolderHelp": "The selection goes into this folder. Empty for the top of the bucket.",
  "folder.name": "New name",
  "folder.taken": "{name} already has objects. Choose another name, or use Move to merge both.",
  "folder.merges": "{name} already has objects: those with the same names are replaced.",
  "folder.inside": "A folder cannot be copied or moved into itself",
  "selection.copyTitle": "Copy {count} selected",
  "selection.moveTitle": "Move {count} selected",
  "selection.copied": "{count} copied to {to}",
  "selection.moved": "{count} moved to {to}",
  "selection.running": "{done} of {count}",
  "selection.tag": "Add tags",
  "selection.tags": "Tags",
  "selection.tagTitle": "Add tags to {count} selected",
  "selection.tagAll": "Add tags to all below {prefix}",
  "selection.tagText": "A tag replaces the one with the same name; other tags stay. An object has at most 10 tags.",
  "folder.jobText": "The job runs on the server, and continues when you leave this page.",
});

const POLL_MS = 1000;

const lastOf = (folder) => shown(folder.slice(0, -1).split("/").pop()) + "/";

// An error that a field shows.
const placed = (text, code = "") => Object.assign(new APIError(0, code, text), { isShown: true });

const hasObjects = async (bucket, prefix) => {
  const page = await call("GET", base(bucket) + "/objects", { query: { prefix, limit: 1 } });
  return page.objects.length > 0;
};

// The job keeps its body, to be run again: what it names is not in the list of jobs.
async function start(body) {
  try {
    return { ...await call("POST", "jobs", { body }), body };
  } catch (error) {
    if (error.status === 400 || error.status === 404) error.isShown = true;
    throw error;
  }
}

function FolderForm({ bucket, folder, kind, onClose, onDone }) {
  const [toBucket, setToBucket] = useState(bucket);
  const [typed, setTyped] = useState(folder);
  const [merges, setMerges] = useState("");
  const verb = kind === "copyPrefix" ? "copy" : "move";
  const toPrefix = typed && !typed.endsWith("/") ? typed + "/" : typed;
  const change = (set) => (value) => {
    set(value);
    setMerges("");
  };
  async function submit() {
    if (toBucket === bucket && toPrefix.startsWith(folder)) throw placed(say("folder.inside"));
    if (!merges && (!toPrefix || await hasObjects(toBucket, toPrefix))) {
      setMerges(say(toPrefix ? "folder.merges" : "folder.spills", { name: toBucket + "/" + shown(toPrefix) }));
      return;
    }
    const replaces = merges !== "";
    onDone([await start({ kind, bucket, prefix: folder, toBucket: toBucket === bucket ? "" : toBucket, toPrefix, replaces })]);
  }
  return html`
    <${Dialog} title=${say("folder." + verb + "Title", { name: lastOf(folder) })} onClose=${onClose}>
      <${Form} label=${say("folder." + verb)} onCancel=${onClose} submit=${submit} kind=${merges ? "danger" : "primary"}
        disabled=${toBucket === bucket && toPrefix === folder}>
        ${(error) => html`
          <${TargetFields} bucket=${toBucket} changeBucket=${change(setToBucket)} own=${folder.slice(folderOf(folder.slice(0, -1)).length)} label=${say("folder.newPath")}
            help=${say("folder.newPathHelp", { name: "Archive/" + lastOf(folder) })} name="toFolder" autofocus value=${typed}
            error=${error && error.isShown ? error.message : ""} change=${change(setTyped)} />
          ${merges ? html`<p class="warning" role="alert"><${Icon} name="warning" /> ${merges}</p>` : html`<p class="quiet">${say("folder.jobText")}</p>`}
        `}
      <//>
    <//>
  `;
}

export const CopyFolder = (given) => html`<${FolderForm} ...${given} kind="copyPrefix" />`;

export const MoveFolder = (given) => html`<${FolderForm} ...${given} kind="movePrefix" />`;

// Another name in the same folder, which must be free.
export function RenameFolder({ bucket, folder, onClose, onDone }) {
  const before = folder.slice(0, -1).split("/").pop();
  const [typed, setTyped] = useState(before);
  async function submit() {
    if (typed.includes("/")) throw placed(say("object.noSlash"));
    const toPrefix = folderOf(folder.slice(0, -1)) + typed + "/";
    if (await hasObjects(bucket, toPrefix)) throw placed(say("folder.taken", { name: shown(typed) + "/" }), "ALREADY_EXISTS");
    onDone([await start({ kind: "movePrefix", bucket, prefix: folder, toPrefix, replaces: false })]);
  }
  return html`
    <${Dialog} title=${say("folder.renameTitle", { name: lastOf(folder) })} onClose=${onClose}>
      <${Form} label=${say("folder.rename")} onCancel=${onClose} submit=${submit} disabled=${!typed || typed === before}>
        ${(error) => html`
          <${Field} label=${say("folder.name")} name="name" required autofocus value=${typed}
            error=${error && error.isShown ? error.message : ""} onInput=${(event) => setTyped(event.target.value)} />
          <p class="quiet">${say("folder.jobText")}</p>
        `}
      <//>
    <//>
  `;
}

// A selection to another folder: objects one after the other, and folders by jobs. Nothing is replaced.
function SelectionForm({ bucket, prefix, selection, move, onClose, onDone }) {
  const [toBucket, setToBucket] = useState(bucket);
  const [typed, setTyped] = useState(folderOf(prefix));
  const [done, setDone] = useState(0);
  const isClosed = useRef(false);
  useEffect(() => () => {
    isClosed.current = true;
  }, []);
  const names = [...selection.names];
  const count = number(names.length);
  const folder = typed && !typed.endsWith("/") ? typed + "/" : typed;
  const targetOf = (name) => folder + name.slice(name.lastIndexOf("/", name.length - 2) + 1);
  async function begin(name) {
    const to = targetOf(name);
    if (toBucket === bucket && to.startsWith(name)) throw placed(say("folder.inside"));
    if (await hasObjects(toBucket, to)) throw placed(say("folder.taken", { name: shown(to) }), "ALREADY_EXISTS");
    const kind = move ? "movePrefix" : "copyPrefix";
    return start({ kind, bucket, prefix: name, toBucket: toBucket === bucket ? "" : toBucket, toPrefix: to, replaces: false });
  }
  async function submit() {
    const jobs = [];
    const failed = [];
    // Folders first: what is wrong with their target is shown before anything has begun.
    for (const name of names.sort((a, b) => b.endsWith("/") - a.endsWith("/"))) {
      if (isClosed.current) return;
      try {
        if (name.endsWith("/")) jobs.push(await begin(name));
        else await call("POST", objectPath(bucket, name) + "/copy", { body: { toBucket, toKey: targetOf(name), move } });
      } catch (error) {
        if (name.endsWith("/") && !jobs.length) throw error;
        failed.push([name, error.message]);
      }
      setDone((before) => before + 1);
    }
    announce(failed.length
      ? say("objects.jobFailed", { count: number(failed.length), first: shown(failed[0][0]) + ": " + failed[0][1] })
      : say(move ? "selection.moved" : "selection.copied", { count, to: toBucket + "/" + shown(folder) }));
    onDone(jobs, failed.map(([name]) => name));
  }
  return html`
    <${Dialog} title=${say(move ? "selection.moveTitle" : "selection.copyTitle", { count })} onClose=${onClose}>
      <${Form} label=${say(move ? "objects.move" : "objects.copy")} onCancel=${onClose} submit=${submit}
        disabled=${toBucket === bucket && folder === folderOf(prefix)}>
        ${(error) => html`
          <${TargetFields} bucket=${toBucket} changeBucket=${setToBucket} label=${say("folder.toFolder")} help=${say("folder.toFolderHelp")} name="toFolder" autofocus value=${typed}
            error=${error && error.isShown ? error.message : ""} change=${setTyped} />
          ${done > 0 && html`<p class="quiet" role="status">${say("selection.running", { done: number(done), count })}</p>`}
        `}
      <//>
    <//>
  `;
}

// Tags for all that is selected, objects and folders, by one job.
export function TagSelection({ bucket, prefix, selection, onClose, onDone }) {
  const [pairs, setPairs] = useState([["", ""]]);
  const { all, names } = selection;
  const tags = Object.fromEntries(pairs.filter(([name]) => name));
  async function submit() {
    const keys = [...names].filter((name) => !name.endsWith("/"));
    const prefixes = [...names].filter((name) => name.endsWith("/"));
    onDone([await start({ kind: "tagObjects", bucket, tags, ...all ? { prefix } : { keys, prefixes } })], []);
  }
  return html`
    <${Dialog} title=${all ? say("selection.tagAll", { prefix: shown(prefix) || say("objects.wholeBucket") }) : say("selection.tagTitle", { count: number(names.size) })} onClose=${onClose}>
      <${Form} label=${say("selection.tag")} onCancel=${onClose} submit=${submit} disabled=${!Object.keys(tags).length}>
        ${(error) => html`
          <p>${say("selection.tagText")}</p>
          <${Pairs} label=${say("selection.tags")} pairs=${pairs} change=${setPairs} error=${error && error.isShown ? error.message : ""} />
          <p class="quiet">${say("folder.jobText")}</p>
        `}
      <//>
    <//>
  `;
}

export const CopySelection = (given) => html`<${SelectionForm} ...${given} move=${false} />`;

export const MoveSelection = (given) => html`<${SelectionForm} ...${given} move />`;

// A job while it runs, and how it has ended. `onAgain(job)` replaces it by a new one.
export function JobProgress({ job, canUndo, onEnd, onClose, onAgain }) {
  const [now, setNow] = useState(job);
  const isRunning = now.state === "running";
  const found = useLoad(async (signal) => {
    const { items } = await call("GET", "jobs", { signal });
    return items.find((each) => each.id === job.id) || { ...now, state: "interrupted" };
  }, []);
  const [again, busy, error] = useAction(async () => {
    const { kind, bucket, prefix, toBucket, toPrefix, replaces } = now;
    onAgain(await start(job.body || { kind, bucket, prefix, toBucket, toPrefix, replaces }));
  });
  const [stop, stopping, problem] = useAction(() => call("DELETE", "jobs/" + segment(now.id)));
  useEffect(() => {
    if (found.data) setNow(found.data);
    if (found.data && found.data.state !== "running") onEnd();
    if (!isRunning || found.error) return undefined;
    const timer = setTimeout(found.reload, POLL_MS);
    return () => clearTimeout(timer);
  }, [found.atMs, found.error]);
  const isShort = !isRunning && (now.state !== "done" || now.failures > 0);
  const isDone = !isRunning && !isShort;
  const [undo, undoing, refusal] = useAction(async () => {
    const { restoreBelow } = await import("./objectdeletion.js");
    await restoreBelow(now.bucket, now.prefix, now.startedMs);
    onEnd();
    onClose();
  });
  const where = {
    bucket: now.bucket,
    prefix: shown(now.prefix) || say("objects.wholeBucket"),
    tags: Object.keys(now.tags || {}).map(shown).join(", "),
    to: (now.toBucket ? now.toBucket + "/" : "") + (shown(now.toPrefix) || say("objects.wholeBucket")),
  };
  const what = isDone ? say("objects.jobDone." + now.kind, where) : say("objects.job." + now.kind, where);
  const count = now.done - now.failures;
  const objects = now.kind === "emptyBucket" ? say("objects.jobItems", { count: number(count) }) : counted(count, "objects.one", "objects.many")[0] || say("objects.none");
  const values = { what, count: number(count), objects, state: say("objects.jobState." + now.state) };
  const [first] = now.failed;
  return html`
    <div class=${isShort ? "notice job warn" : "notice job"} role="status">
      <span class="fill">${say(isRunning ? "objects.jobRuns" : isDone ? "objects.jobDone" : "objects.jobEnded", values)}
        ${now.error && html` <span class="bad">${now.error}</span>`}
        ${first && html` <span class="bad">${say("objects.jobFailed", {
          count: number(now.failures), first: shown(first.key) + ": " + first.error,
        })}</span>`}
        ${isShort && " " + say("objects.jobAgainText")}
        ${isRunning && html`<progress aria-label=${what}></progress>`}</span>
      <a href=${link(["jobs"])}>${say("objects.jobShow")}</a>
      ${isRunning && html`<${Button} kind="small" busy=${stopping} onClick=${stop}>${say("objects.stop")}<//>`}
      ${isShort && html`<${Button} kind="small" icon="retry" busy=${busy} onClick=${again}>${say("objects.jobAgain")}<//>`}
      ${!isRunning && canUndo && now.kind === "deletePrefix" && count > 0 && html`
        <${Button} kind="small" icon="restore" busy=${undoing} onClick=${undo}>${say("objects.undo")}<//>`}
      ${!isRunning && html`<${Button} kind="small" onClick=${onClose}>${say("app.close")}<//>`}
    </div>
    ${(found.error || error || problem || refusal) && html`<${Problem} error=${found.error || error || problem || refusal} retry=${found.error && found.reload} />`}
  `;
}
