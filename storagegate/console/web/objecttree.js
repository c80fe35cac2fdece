// A field for a folder, with the tree of the folders that exist below it. What is typed after the last slash filters them.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call } from "./api.js";
import { addTexts, say } from "./messages.js";
import { base } from "./objectactions.js";
import { folderOf, shown } from "./objectnames.js";
import { Field, html, Icon, Select, useLoad } from "./ui.js";
import { useRowHeight, VirtualList } from "./virtuallist.js";

addTexts({
  "tree.bucket": "To bucket",
  "tree.label": "Folders of {bucket}",
  "tree.goOn": "Look for more folders",
});

const LIMIT = 1000;
const MOST_BUCKETS = 1000;
// Pages of one folder that are read without a click: more than 10,000 folders, or objects between two of them.
const MOST_PAGES = 20;
const DELAY_MS = 150;
const ROW_PX = 30;
const CARD_PX = 40;
const STEP_PX = 20;

const isWaiting = (part) => part.error || part.pages >= part.most;

// What is known of the folders of a bucket. A prefix without a final slash has those that begin with it.
class Folders {
  constructor(bucket, onChange) {
    this.bucket = bucket;
    this.onChange = onChange;
    this.aborter = new AbortController();
    this.parts = new Map();
    this.open = new Set();
  }

  part(prefix) {
    if (!this.parts.has(prefix)) this.parts.set(prefix, { names: [], next: "", pages: 0, most: MOST_PAGES, isBusy: false, error: null });
    return this.parts.get(prefix);
  }

  goOn(prefix) {
    const part = this.part(prefix);
    part.most = part.pages + MOST_PAGES;
    this.load(prefix);
  }

  // Read a page of the folders with a prefix.
  async load(prefix) {
    const part = this.part(prefix);
    if (part.isBusy || part.next === null) return;
    part.isBusy = true;
    part.error = null;
    const query = { prefix, delimiter: "/", limit: LIMIT, after: part.next };
    try {
      const page = await call("GET", base(this.bucket) + "/objects", { query, signal: this.aborter.signal });
      part.names.push(...page.prefixes);
      part.next = page.next;
      part.pages += 1;
    } catch (error) {
      part.error = error;
    }
    part.isBusy = false;
    if (!this.aborter.signal.aborted) this.onChange();
  }

  // The rows of the tree. The folders in `folder` are those with `filter` in their names.
  rows(folder, filter) {
    const found = [];
    const visit = (path, level) => {
      const own = this.part(path);
      const isLeaf = own.next === null && !own.names.length;
      const isOpen = path === "" || this.open.has(path);
      found.push({ id: path, path, level, isOpen: isOpen && !isLeaf, isLeaf });
      if (!isOpen) return;
      const isFiltered = filter && path === folder;
      const part = isFiltered ? this.part(path + filter) : own;
      const others = isFiltered ? own.names.filter((name) => name.slice(path.length).toLowerCase().includes(filter.toLowerCase())) : [];
      for (const name of new Set([...part.names, ...others])) visit(name, level + 1);
      const prefix = isFiltered ? path + filter : path;
      if (part.next !== null) found.push({ id: prefix + "\n", part, prefix, level: level + 1 });
    };
    visit("", 0);
    return found;
  }
}

// The last row of a folder whose folders are not all here: it reads on as soon as it is seen.
function More({ folders, part, prefix }) {
  const waits = Boolean(isWaiting(part));
  useEffect(() => {
    if (waits) return undefined;
    const timer = setTimeout(() => folders.load(prefix), part.pages ? 0 : DELAY_MS);
    return () => clearTimeout(timer);
  }, [prefix, part.pages, waits]);
  if (!waits) return html`<span class="quiet">${say("app.loading")}</span>`;
  return html`${part.error && html`<span class="bad">${part.error.message}</span>`} <span class="link">${say(part.error ? "app.retry" : "tree.goOn")}</span>`;
}

function Tree({ bucket, folder, filter, onPick, handle }) {
  const [, redraw] = useState(0);
  const folders = useMemo(() => new Folders(bucket, () => redraw((round) => round + 1)), []);
  useEffect(() => () => folders.aborter.abort(), []);
  const [active, setActive] = useState(folder);
  useMemo(() => {
    for (let at = folder.indexOf("/"); at >= 0; at = folder.indexOf("/", at + 1)) folders.open.add(folder.slice(0, at + 1));
  }, [folder]);
  const rows = folders.rows(folder, filter);
  const count = rows.length;
  const height = useRowHeight(ROW_PX, CARD_PX);
  // If the active row has gone, the row in its place becomes active.
  const latest = useRef(0);
  const found = rows.findIndex((row) => row.id === active);
  const index = found >= 0 ? found : Math.min(latest.current, count - 1);
  latest.current = index;
  const place = rows.findIndex((row) => row.id === folder);
  const isThere = place >= 0;
  // Shows a folder that was typed or picked as soon as it is in the tree.
  useEffect(() => {
    if (isThere) handle.current.reveal(place);
  }, [folder, isThere]);
  const nameOf = (path) => shown(path.slice(folderOf(path.slice(0, -1)).length)) || bucket;
  function go(at) {
    const to = Math.min(Math.max(at, 0), count - 1);
    setActive(rows[to].id);
    handle.current.reveal(to);
  }
  function turn({ path, isOpen }) {
    if (isOpen) folders.open.delete(path);
    else folders.open.add(path);
    redraw((round) => round + 1);
  }
  function act({ id, path, part, prefix }) {
    setActive(id);
    if (!part) onPick(path);
    else if (isWaiting(part)) folders.goOn(prefix);
  }
  function pressed(event) {
    const row = rows[index];
    const { key } = event;
    const moves = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: count - 1, PageDown: index + handle.current.page(), PageUp: index - handle.current.page() };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (key in moves) go(moves[key]);
    else if (key === "ArrowRight" && !row.part && !row.isLeaf) row.isOpen ? go(index + 1) : turn(row);
    else if (key === "ArrowLeft" && row.path) row.isOpen ? turn(row) : go(rows.findIndex(({ path }) => path === folderOf(row.path.slice(0, -1))));
    else if (key === "Enter" || key === " ") act(row);
    else if (key.length === 1) {
      const begins = ({ path }) => path && nameOf(path).toLowerCase().startsWith(key.toLowerCase());
      const [next = index] = [...rows.keys()].map((at) => (index + 1 + at) % count).filter((at) => begins(rows[at]));
      go(next);
    } else return;
    event.preventDefault();
  }
  const draw = (at, top) => {
    const row = rows[at];
    if (!row) return null;
    const { id, path, level, isOpen, isLeaf, part, prefix } = row;
    const style = { top: top + "px", height: height + "px", paddingInlineStart: row.level * STEP_PX + 8 + "px" };
    return html`
      <div key=${id} id=${"folder-" + at} role="treeitem" aria-level=${level + 1} aria-selected=${path === folder ? "true" : "false"}
        aria-expanded=${isLeaf || part ? undefined : String(isOpen)} class=${at === index ? "treeRow active" : "treeRow"} style=${style}
        onClick=${() => act(row)}>
        ${part ? html`<${More} folders=${folders} part=${part} prefix=${prefix} />` : html`
          ${path && html`<span class=${isLeaf ? "twist isLeaf" : "twist"} onClick=${(event) => {
            event.stopPropagation();
            turn(row);
          }}><${Icon} name=${isOpen ? "chevronDown" : "chevronRight"} /></span>`}
          <${Icon} name=${path ? "folder" : "bucket"} /><bdi>${nameOf(path)}</bdi>`}</div>
    `;
  };
  return html`
    <${VirtualList} count=${count} row=${draw} height=${height} onSpan=${() => {}} handle=${handle} boxed role="tree"
      aria-label=${say("tree.label", { bucket })} aria-activedescendant=${"folder-" + index} onKeyDown=${pressed} />
  `;
}

// The buckets that can be written to, and the field for a folder in the chosen one. `own` is the name of what is copied,
// which is appended to a picked folder.
export function TargetFields({ bucket, changeBucket, value, own = "", change, ...rest }) {
  const found = useLoad((signal) => call("GET", "buckets", { query: { limit: MOST_BUCKETS }, signal }), []);
  const names = found.data ? found.data.items.filter((each) => each.may.write).map((each) => each.name) : [bucket];
  const handle = useRef(null);
  const path = own.endsWith("/") && value.endsWith("/") ? value.slice(0, -1) : value;
  const folder = folderOf(path);
  const last = path.slice(folder.length);
  return html`
    <${Select} label=${say("tree.bucket")} name="toBucket" value=${bucket} onChange=${(event) => changeBucket(event.target.value)}
      options=${names.map((each) => [each, each])} />
    <${Field} value=${value} ...${rest} onInput=${(event) => change(event.target.value)} onKeyDown=${(event) => {
      if (event.key !== "ArrowDown") return;
      event.preventDefault();
      handle.current.focus();
    }} />
    <${Tree} key=${bucket} bucket=${bucket} folder=${folder} filter=${last === own.replace("/", "") ? "" : last} handle=${handle}
      onPick=${(picked) => change(picked + own)} />
  `;
}
