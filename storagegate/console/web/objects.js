// The objects of a bucket: one folder of them, of any length, and what is done with them.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, state } from "./api.js";
import { chooseFiles } from "./droptarget.js";
import { number, say } from "./messages.js";
import { base } from "./objectactions.js";
import { ObjectArray, sorted } from "./objectgrid.js";
import { Lazy, ObjectList } from "./objectlist.js";
import { folderOf, justBefore, shown } from "./objectnames.js";
import { merged, ObjectPages } from "./objectpages.js";
import "./objecttexts.js";
import { go, link } from "./router.js";
import { announce, Button, Empty, html, Icon, Loaded, Problem, Search, useLoad } from "./ui.js";

const LIMIT = 1000;
const MOST_SORTED = 20000;
const RETRY_MS = 2000;
const BY_NAME = ["name", 1];

const loader = (bucket, prefix) => (after, signal) =>
  call("GET", base(bucket) + "/objects", { query: { prefix, delimiter: "/", limit: LIMIT, after }, signal });

// All rows of a folder in another order than that of names: [rows, count]. The rows are null while they are fetched, of
// which there are `count` so far.
function useSorted(load, first, sort, sizes, refuse) {
  const [rows, setRows] = useState(null);
  const [count, setCount] = useState(0);
  useEffect(() => {
    setRows(null);
    if (sort === BY_NAME) return undefined;
    const aborter = new AbortController();
    (async () => {
      let page = first.page;
      const found = merged(page);
      while (page.next !== null && found.length <= MOST_SORTED) {
        setCount(found.length);
        page = await load(page.next, aborter.signal);
        found.push(...merged(page));
      }
      if (aborter.signal.aborted) return;
      if (page.next !== null) refuse();
      else setRows(new ObjectArray(sorted(found, sort, sizes)));
    })().catch((error) => error.name !== "AbortError" && announce(error.message));
    return () => aborter.abort();
  }, [first, sort, sort[0] === "size" && sizes]);
  return [rows, count];
}

// What folders hold: [{sizes, count, state}, {start, stop}], once it is wanted.
function useMeasured(bucket, folder, first) {
  const [measured, setMeasured] = useState(null);
  const aborter = useRef(null);
  const stop = () => aborter.current && aborter.current.abort();
  useEffect(() => () => {
    stop();
    setMeasured(null);
  }, [first]);
  const start = async () => {
    const controller = new AbortController();
    aborter.current = controller;
    try {
      const { measureFolders } = await import("./objectsizes.js");
      await measureFolders(bucket, folder, setMeasured, controller.signal);
    } catch (error) {
      announce(error.message);
    }
  };
  return [measured, { start, stop }];
}

// The list of a folder from its first page on.
function Folder({ bucket, prefix, from, first, load, may, ...rest }) {
  const [, redraw] = useState(0);
  const [sort, setSort] = useState(BY_NAME);
  const [isTooLong, setIsTooLong] = useState(false);
  const pages = useMemo(
    () => new ObjectPages(load, first.after, first.page, () => redraw((round) => round + 1)), [first]);
  useEffect(() => () => pages.close(), [pages]);
  const [measured, measure] = useMeasured(bucket, folderOf(prefix), first);
  const [inOrder, fetched] = useSorted(load, first, sort, measured && measured.state !== "running" && measured.sizes, () => {
    setIsTooLong(true);
    setSort(BY_NAME);
  });
  const isSorting = sort !== BY_NAME && !inOrder;
  // A list that is whole is in the order of people; a longer one comes in the order of the store.
  const whole = useMemo(() => first.isWhole && !from && new ObjectArray(sorted(merged(first.page), BY_NAME)), [first]);
  const { error } = pages;
  const retry = () => {
    pages.retry();
    redraw((round) => round + 1);
  };
  useEffect(() => {
    if (!error || error.code !== "OFFLINE") return undefined;
    const timer = setTimeout(retry, RETRY_MS);
    return () => clearTimeout(timer);
  }, [error]);
  const where = ["buckets", bucket, "objects"];
  const folder = folderOf(prefix);
  const isFound = prefix !== folder || from;
  const typed = prefix.slice(folder.length);
  const all = link(where, { prefix: folder });
  const start = typed
    ? html`<a class="button" href=${link(where, { prefix: folder, contains: typed })}>${say("objects.containsInstead", { text: shown(typed) })}</a>
        <a href=${all}>${say("objects.fromStart")}</a>`
    : html`<a class="button" href=${all}>${say("objects.fromStart")}</a>`;
  const upload = may.write && html`
    <${Button} icon="upload" kind="primary" onClick=${chooseFiles}>${say("transfers.files")}<//>`;
  const key = may.write ? "objects.emptyText" : "objects.emptyRead";
  return html`
    <${ObjectList} bucket=${bucket} prefix=${prefix} folder=${folder} pages=${inOrder || whole || pages} may=${may} measured=${measured} ...${rest}
      onMeasure=${measured ? null : measure.start}
      sort=${isSorting ? BY_NAME : sort} onSort=${(wanted) => {
        setIsTooLong(false);
        // The heads show the order of the rows: a second click may come before it has changed.
        if (isSorting && wanted[0] === sort[0]) setSort([sort[0], -sort[1]]);
        else setSort(wanted[0] === "name" && wanted[1] > 0 ? BY_NAME : wanted);
      }}
      between=${html`
        ${isSorting && !first.isWhole && html`<div class="notice" role="status"><span class="fill">${say("objects.sorting", {
          column: say("objects.column." + sort[0]), count: number(fetched),
        })}</span><${Button} kind="small" onClick=${() => setSort(BY_NAME)}>${say("objects.stop")}<//></div>`}
        ${measured && html`<div class="notice" role="status"><span class="fill">${say("objects.measure." + measured.state, { count: number(measured.count) })}</span>
          ${measured.state === "running" && html`<${Button} kind="small" onClick=${measure.stop}>${say("objects.stop")}<//>`}</div>`}
        ${isTooLong && html`<p class="notice" role="status">${say("objects.sortTooMany", { count: number(MOST_SORTED) })}</p>`}
        ${from && pages.count > 0 && html`<p class="notice">${say("objects.from", { name: shown(from) })}${" "}
          <a href=${link(where, { prefix })}>${say("objects.fromStart")}</a></p>`}`}
      empty=${html`<${Empty} title=${say(isFound ? "objects.emptyFound" : "objects.empty")} text=${isFound ? "" : say(key)}>
        ${isFound ? start : upload || html`<a class="button" href=${link(["buckets"])}>${say("nav.buckets")}</a>`}<//>`} />
    ${error && html`<${Problem} error=${error} retry=${retry} />`}
  `;
}

// A folder while it is loaded, or why it is not.
function Listing({ bucket, prefix, from, round, ...rest }) {
  const load = useMemo(() => loader(bucket, prefix), []);
  const found = useLoad(async (signal) => {
    const after = from && justBefore(from);
    const page = await load(after, signal);
    return { after, page, isWhole: page.next === null };
  }, [round]);
  return html`
    <${Loaded} of=${found} rows=${12}>
      ${(first) => html`
        <${Folder} bucket=${bucket} prefix=${prefix} from=${from} first=${first} load=${load} ...${rest} />
      `}
    <//>
  `;
}

function Toolbar({ bucket, folder, prefix, query, canShowVersions }) {
  const where = ["buckets", bucket, "objects"];
  const { contains, versions } = query;
  const isPart = contains !== undefined;
  const typed = isPart ? contains.trim() : prefix.slice(folder.length);
  const show = (values) => go(where, { versions, ...values }, true);
  // The list is one key away from what was typed.
  const pressed = (event) => {
    const list = document.querySelector("main [role=grid]");
    const leaves = event.key === "ArrowDown" || event.key === "Enter" || (event.key === "Escape" && !event.target.value);
    if (!list || !leaves) return;
    event.preventDefault();
    list.focus();
  };
  const find = (text, part) => (part ? show({ prefix: folder, contains: text || " " }) : show({ prefix: folder + text }));
  return html`
    <div class="toolbar" role="search">
      <${Search} name="find" value=${typed} onKeyDown=${pressed}
        label=${say("objects.find", { place: shown(folder) || bucket })}
        onInput=${(event) => find(event.target.value, isPart)} />
      <div class="seg" role="group" aria-label=${say("objects.how")}>
        ${[false, true].map((part) => html`
          <button type="button" aria-pressed=${isPart === part} onClick=${() => find(typed, part)}>
            ${say(part ? "objects.contains" : "objects.startsWith")}</button>
        `)}
      </div>
      <span class="fill"></span>
      ${canShowVersions && html`
        <label class="switchLine"><input type="checkbox" role="switch" class="switch" name="versions" checked=${Boolean(versions)}
          onChange=${(event) => go(where, { prefix, versions: event.target.checked ? "1" : "" }, true)} />
          <span>${say("objects.versionsShort")}<span class="hideDrawer"> ${say("objects.versionsMore")}</span></span></label>
      `}
    </div>
  `;
}

// `info` is the bucket, or null where its description may not be read.
export function Objects({ bucket, info, query, jobs, round, reload, setJobs, onBeside }) {
  const { prefix = "", from = "", contains, versions } = query;
  const folder = folderOf(prefix);
  const may = { read: true, write: true, ...(info ? info.may : {}) };
  const common = { bucket, info, prefix, may, query, reload, onBeside, addJobs: (some) => setJobs((before) => [...before, ...some]) };
  const isPart = contains !== undefined;
  return html`
    ${info && info.keyPattern && html`
      <p class="notice"><${Icon} name="lock" /><span>${say("objects.narrowed", {
        key: state.session.accessKey, verb: say("objects.narrowed." + (may.write ? (may.read ? "both" : "write") : "read")),
      })}${" "}
        <code>${bucket}/${info.keyPattern}</code></span></p>
    `}
    ${jobs.map((job) => html`
      <${Lazy} key=${job.id} load=${() => import("./objectjobs.js")} part="JobProgress" job=${job} canUndo=${info && info.versioning === "Enabled"} onEnd=${reload}
        onClose=${() => setJobs((before) => before.filter((each) => each !== job))}
        onAgain=${(started) => setJobs((before) => before.map((each) => (each === job ? started : each)))} />
    `)}
    <${Toolbar} bucket=${bucket} folder=${folder} prefix=${prefix} query=${query}
      canShowVersions=${!info || info.versioning !== "" || versions} />
    ${isPart && html`<${Lazy} key=${"find\n" + folder} load=${() => import("./objectsearch.js")} part="ObjectSearch"
      ...${common} folder=${folder} wanted=${contains.trim()} />`}
    ${!isPart && versions && html`<${Lazy} key=${"versions\n" + prefix} load=${() => import("./objecthistory.js")}
      part="ObjectHistory" ...${common} folder=${folder} round=${round} />`}
    ${!isPart && !versions && html`<${Listing} key=${prefix + "\n" + from} ...${common} from=${from} round=${round} />`}
  `;
}
