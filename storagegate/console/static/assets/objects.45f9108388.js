// The objects of a bucket: one folder of them, of any length.

import { useEffect, useMemo, useRef, useState } from "./hooks.ceebd18b27.js";
import { call } from "./api.3f20c599c2.js";
import { chooseFiles, DropTarget } from "./droptarget.32d49fa79c.js";
import { bytes, date, number, say } from "./messages.5d7ca40ed1.js";
import { base, DeleteSelection, downloadSelection, JobProgress } from "./objectactions.a87ba3f2d1.js";
import { folderOf, justBefore, shown, shownBelow } from "./objectnames.9756311a71.js";
import { nameOf, ObjectPages } from "./objectpages.efc454efc5.js";
import "./objecttexts.cf5b9ae330.js";
import { go, link } from "./router.dcba0dcacc.js";
import {
  announce, Button, Empty, html, Icon, Loaded, Page, Problem, useAction, useLoad,
} from "./ui.7967bae88c.js";
import { VirtualList } from "./virtuallist.639caa2ec6.js";

const LIMIT = 1000;
const MOST_SELECTED = 10000;
const RETRY_MS = 2000;
const NOTHING = { all: false, names: new Set() };

// The steps of a prefix, each a link.
function Crumbs({ bucket, prefix }) {
  const steps = prefix.split("/").slice(0, -1);
  return html`
    <nav class="crumbs" aria-label=${say("objects.find")}>
      <a href=${link(["buckets"])}>${say("nav.buckets")}</a>${" / "}
      <a href=${link(["buckets", bucket, "objects"])}>${bucket}</a>
      ${steps.map((step, index) => html`${" / "}<a href=${link(
        ["buckets", bucket, "objects"], { prefix: steps.slice(0, index + 1).join("/") + "/" },
      )}><bdi>${shown(step) || "(/)"}</bdi></a>`)}
    </nav>
  `;
}

function GoTo({ bucket, prefix }) {
  const [typed, setTyped] = useState(prefix);
  useEffect(() => setTyped(prefix), [prefix]);
  function submit(event) {
    event.preventDefault();
    const folder = folderOf(typed);
    go(["buckets", bucket, "objects"], { prefix: folder, from: typed === folder ? "" : typed });
  }
  return html`
    <form role="search" class="goto" onSubmit=${submit}>
      <input type="search" name="goto" aria-label=${say("objects.find")} placeholder=${say("objects.find")}
        value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      <button class="button">${say("objects.go")}</button>
    </form>
  `;
}

// Which rows are selected: [selection, {only, toggle, range, all, clear, without}].
function useSelection(pages) {
  const [selection, setSelection] = useState(NOTHING);
  const names = (some) => {
    if (some.size > MOST_SELECTED) announce(say("objects.selectTooMany", { count: number(MOST_SELECTED) }));
    else setSelection({ all: false, names: some });
  };
  return [selection, {
    only: (name) => names(new Set([name])),
    toggle: (name) => {
      const some = new Set(selection.names);
      if (!some.delete(name)) some.add(name);
      names(some);
    },
    range: async (one, other) => {
      const [first, last] = [Math.min(one, other), Math.max(one, other)];
      if (last - first >= MOST_SELECTED) names({ size: last - first + 1 });
      else names(new Set(await pages.names(first, last)));
    },
    loaded: () => names(new Set(pages.loadedNames())),
    all: () => setSelection({ all: true, names: new Set() }),
    clear: () => setSelection(NOTHING),
    keep: (some) => names(new Set(some)),
  }];
}

function SelectionBar({ bucket, prefix, pages, selection, select, onDelete }) {
  const [zip, busy, error] = useAction(() => downloadSelection(bucket, prefix, selection));
  const { all, names } = selection;
  const isAny = all || names.size > 0;
  const count = number(isAny ? names.size : pages.count);
  let text = say(pages.isComplete ? "objects.count" : "objects.countMore", { count });
  if (all) text = say("objects.selectedAll", { prefix: shown(prefix) || say("objects.wholeBucket") });
  else if (isAny) text = say("objects.selected", { count });
  return html`
    <div class="bar">
      <span class="fill" role="status">${text}</span>
      ${isAny && html`
        <${Button} busy=${busy} onClick=${zip}>
          ${say(names.size === 1 && ![...names][0].endsWith("/") ? "objects.download" : "objects.zip")}<//>
        <${Button} icon="trash" kind="danger" onClick=${onDelete}>${say("app.delete")}<//>
        <${Button} onClick=${select.clear}>${say("objects.clear")}<//>
      `}
      ${!all && html`<${Button} onClick=${select.all}>${say("objects.selectAll")}<//>`}
    </div>
    ${error && html`<${Problem} error=${error} />`}
  `;
}

function Row({ index, top, row, folder, href, isActive, isSelected, onPointer }) {
  if (row === undefined)
    return html`<div role="row" class="listRow" aria-rowindex=${index + 1} style=${{ top: top + "px" }}>
      <span role="gridcell" class="quiet">…</span></div>`;
  const isFolder = typeof row === "string";
  const name = nameOf(row);
  return html`
    <div role="row" id=${"row-" + index} class=${isActive ? "listRow active" : "listRow"}
      aria-rowindex=${index + 1} aria-selected=${isSelected ? "true" : "false"} style=${{ top: top + "px" }}
      onClick=${(event) => onPointer(event, index, name)}>
      <span role="gridcell" class="pick" aria-label=${say("objects.select", { name: shown(name) })}>
        <span class="tick"></span></span>
      <span role="gridcell" class="name"><a href=${href(row)} tabindex="-1">
        <${Icon} name=${isFolder ? "folder" : "file"} /><bdi>${shownBelow(name, folder)}</bdi></a></span>
      <span role="gridcell" class="number">${isFolder ? "" : bytes(row[1])}</span>
      <span role="gridcell" class="when">${isFolder ? "" : date(row[2])}</span>
    </div>
  `;
}

// The rows, and the keys of the keyboard in them.
function ObjectGrid({ bucket, prefix, pages, selection, select, href, onDelete }) {
  const [active, setActive] = useState(0);
  const anchor = useRef(0);
  const handle = useRef(null);
  const folder = folderOf(prefix);
  const onSpan = useMemo(() => (first, last) => pages.need(first, last), [pages]);
  useEffect(() => {
    if (document.activeElement === document.body || document.activeElement.id === "content")
      handle.current.focus();
  }, []);
  function move(index, isRange) {
    const to = Math.max(0, Math.min(index, pages.count - 1));
    setActive(to);
    handle.current.reveal(to);
    if (isRange) select.range(anchor.current, to);
    else anchor.current = to;
  }
  function pointed(event, index, name) {
    const isLink = event.target.closest("a");
    const isAdding = event.ctrlKey || event.metaKey;
    if (isLink && !event.shiftKey && !isAdding) return;
    event.preventDefault();
    setActive(index);
    if (event.shiftKey) select.range(anchor.current, index);
    else if (isAdding || event.target.closest(".pick")) select.toggle(name);
    else select.only(name);
    if (!event.shiftKey) anchor.current = index;
  }
  function pressed(event) {
    const { page } = handle.current;
    const row = pages.row(active);
    const isControl = event.ctrlKey || event.metaKey;
    const steps = {
      ArrowDown: () => move(active + 1, event.shiftKey),
      ArrowUp: () => move(active - 1, event.shiftKey),
      PageDown: () => move(active + page(), event.shiftKey),
      PageUp: () => move(active - page(), event.shiftKey),
      Home: () => move(0, event.shiftKey),
      End: () => move(pages.count - 1, event.shiftKey),
      Enter: () => row !== undefined && (location.hash = href(row)),
      " ": () => row !== undefined && select.toggle(nameOf(row)),
      a: isControl && select.loaded,
      Escape: select.clear,
      Backspace: prefix && (() =>
        go(["buckets", bucket, "objects"], { prefix: folderOf(prefix.replace(/\/$/, "")) })),
      Delete: () => {
        if (!selection.all && !selection.names.size && row !== undefined) select.only(nameOf(row));
        onDelete();
      },
    };
    const step = steps[event.key];
    if (!step || event.altKey || event.target !== event.currentTarget) return;
    event.preventDefault();
    step();
  }
  const draw = (index, top) => {
    const row = pages.row(index);
    return html`<${Row} key=${index} index=${index} top=${top} row=${row} folder=${folder} href=${href}
      isActive=${index === active} onPointer=${pointed}
      isSelected=${selection.all || (row !== undefined && selection.names.has(nameOf(row)))} />`;
  };
  return html`
    <${VirtualList} count=${pages.count} row=${draw} handle=${handle} onSpan=${onSpan} role="grid"
      aria-label=${say("objects.title", { bucket })} aria-multiselectable="true"
      aria-rowcount=${pages.isComplete ? pages.count : -1} aria-activedescendant=${"row-" + active}
      onKeyDown=${pressed} />
  `;
}

// The list of a folder from its first page on.
function Folder({ bucket, prefix, from, first, load, reload, href, addJobs }) {
  const [, redraw] = useState(0);
  const [asks, setAsks] = useState(false);
  const pages = useMemo(
    () => new ObjectPages(load, first.after, first.page, () => redraw((round) => round + 1)), [first]);
  useEffect(() => () => pages.close(), [pages]);
  const [selection, select] = useSelection(pages);
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
  return html`
    <${SelectionBar} bucket=${bucket} prefix=${prefix} pages=${pages} selection=${selection}
      select=${select} onDelete=${() => setAsks(true)} />
    ${from && pages.count > 0 && html`
      <p>${say("objects.from", { name: shown(from) })}${" "}
        <a href=${link(["buckets", bucket, "objects"], { prefix })}>${say("objects.fromStart")}</a></p>
    `}
    ${pages.count > 0 && html`
      <${ObjectGrid} bucket=${bucket} prefix=${prefix} pages=${pages} selection=${selection}
        select=${select} href=${href} onDelete=${() => setAsks(true)} />
    `}
    ${pages.count === 0 && html`
      <${Empty} title=${say(from ? "objects.emptyFrom" : "objects.empty")}
        text=${!from && say("objects.emptyText")}>
        ${from
          ? html`<a class="button" href=${link(["buckets", bucket, "objects"], { prefix })}>${say("objects.fromStart")}</a>`
          : html`<${Button} icon="add" onClick=${chooseFiles}>${say("transfers.files")}<//>`}
      <//>
    `}
    ${error && html`<${Problem} error=${error} retry=${retry} />`}
    ${asks && html`
      <${DeleteSelection} bucket=${bucket} prefix=${prefix} selection=${selection}
        onClose=${() => setAsks(false)} onDone=${(jobs, failed) => {
          setAsks(false);
          select.keep(failed);
          addJobs(jobs);
          reload();
        }} />
    `}
  `;
}

// The details of an object are fetched with the first that is opened.
function Details(given) {
  const [module, setModule] = useState(null);
  useEffect(() => {
    import("./objectdetails.8a357c0e57.js").then(setModule);
  }, []);
  return module && html`<${module.ObjectDetails} ...${given} />`;
}

// A folder while it is loaded, or why it is not.
function Listing({ bucket, prefix, from, round, ...rest }) {
  const load = useMemo(() => (after, signal) => {
    const query = { prefix, delimiter: "/", limit: LIMIT, after };
    return call("GET", base(bucket) + "/objects", { query, signal });
  }, []);
  const found = useLoad(async (signal) => {
    const after = from && justBefore(from);
    return { after, page: await load(after, signal) };
  }, [round]);
  return html`
    <${Loaded} of=${found} rows=${12}>
      ${(first) => html`
        <${Folder} bucket=${bucket} prefix=${prefix} from=${from} first=${first} load=${load} ...${rest} />
      `}
    <//>
  `;
}

export function Objects({ bucket, route }) {
  const { prefix = "", from = "", object, tab, versionId } = route.query;
  const where = ["buckets", bucket, "objects"];
  const [jobs, setJobs] = useState([]);
  const [round, setRound] = useState(0);
  const reload = () => setRound((before) => before + 1);
  const href = (row) =>
    typeof row === "string" ? link(where, { prefix: row }) : link(where, { prefix, from, object: row[0] });
  return html`
    <${Page} title=${say("objects.title", { bucket })} actions=${html`
      <a class="button" href=${link(["buckets", bucket])}>${say("objects.settings")}</a>
      <a class="button" href=${link(["jobs"], { kind: "copyPrefix", bucket, prefix })}>${say("objects.copyOrMove")}</a>
      <${DropTarget} bucket=${bucket} prefix=${folderOf(prefix)} onDone=${reload} />
    `}>
      <${Crumbs} bucket=${bucket} prefix=${prefix} />
      <${GoTo} bucket=${bucket} prefix=${from || prefix} />
      ${jobs.map((job) => html`
        <${JobProgress} key=${job.id} job=${job} onEnd=${reload}
          onClose=${() => setJobs((before) => before.filter((each) => each !== job))} />
      `)}
      <${Listing} key=${prefix + "\n" + from} bucket=${bucket} prefix=${prefix} from=${from} round=${round}
        reload=${reload} href=${href} addJobs=${(some) => setJobs((before) => [...before, ...some])} />
      ${object !== undefined && html`
        <${Details} key=${object + "\n" + versionId} bucket=${bucket} name=${object} tab=${tab}
          versionId=${versionId} query=${{ prefix, from, object }} reload=${reload}
          onClose=${() => go(where, { prefix, from })} />
      `}
    <//>
  `;
}
