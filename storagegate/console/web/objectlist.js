// A list of objects with its bar, the menu of its rows, and its dialogs.

import { useEffect, useRef, useState } from "preact/hooks";
import { bytes, counted, number, say } from "./messages.js";
import { download, downloadSelection } from "./objectactions.js";
import { isFolder, ObjectGrid, useSelection } from "./objectgrid.js";
import { folderOf, shown } from "./objectnames.js";
import { nameOf, sumsOf } from "./objectpages.js";
import { go, link } from "./router.js";
import { announce, Button, html, IconButton, Problem, useAction } from "./ui.js";

// A part of the page that is fetched when it is first shown; `until` is shown before that.
export function Lazy({ load, part, until = null, ...given }) {
  const [module, setModule] = useState(null);
  const [isMissing, setIsMissing] = useState(false);
  const fetchIt = () => {
    setIsMissing(false);
    load().then(async (found) => {
      await found.styled;
      setModule(found);
    }, () => setIsMissing(true));
  };
  useEffect(fetchIt, []);
  if (isMissing) return html`<${Problem} error=${{ message: say("app.missing") }} retry=${fetchIt} />`;
  return module ? html`<${module[part]} ...${given} />` : until;
}

// Tell the page `of(name, step)`, the address of the object beside one, whenever there are other rows while an object is open.
export function useBeside(count, isOpen, onBeside, of) {
  const latest = useRef();
  latest.current = of;
  useEffect(() => {
    if (!isOpen || !count) return undefined;
    onBeside({ of: (name, step) => latest.current(name, step) });
    return () => onBeside(null);
  }, [count, isOpen]);
}

// The dialogs of a row by their names: where they are.
const dialogs = (kind) => (kind.endsWith("Folder") ? import("./objectjobs.js") : import("./objectdialogs.js"));

// "1 folder, 3 objects"
const inWords = ({ folders, objects }) =>
  [...counted(folders, "objects.folderOne", "objects.folders"), ...counted(objects, "objects.one", "objects.many")].join(", ");

// Takes the place of the toolbar, by its style, while something is selected.
function BulkBar({ bucket, prefix, pages, selection, select, may, ask }) {
  const [zip, busy, error] = useAction(() => downloadSelection(bucket, prefix, selection));
  const { all, names } = selection;
  const text = all
    ? say("objects.selectedAll", { prefix: shown(prefix) || say("objects.wholeBucket") })
    : say("objects.selected", { count: number(names.size) });
  const isOne = names.size === 1 && ![...names][0].endsWith("/");
  // Rows that have been scrolled away are not all here: then the count says enough.
  const chosen = pages.loadedRows().filter((row) => names.has(nameOf(row)));
  const sums = sumsOf(chosen);
  return html`
    <div class="bulk">
      <strong role="status">${text}</strong>
      ${chosen.length === names.size && !all && html`<small class="hidePhone hideMid">${inWords(sums)}${sums.objects > 0 && ", " + bytes(sums.bytes)}</small>`}
      ${may.read && html`
        <${Button} icon="download" kind="bare" busy=${busy} onClick=${zip}>${say(isOne ? "objects.download" : "objects.zip")}<//>
      `}
      ${may.read && may.write && !all && html`
        <${Button} icon="copy" kind="bare" onClick=${() => ask("CopySelection")}>${say("objects.copyTo")}<//>
        <${Button} icon="move" kind="bare" onClick=${() => ask("MoveSelection")}>${say("objects.moveTo")}<//>
      `}
      ${may.read && may.write && html`
        <${Button} icon="tag" kind="bare" onClick=${() => ask("TagSelection")}>${say("objects.tag")}<//>
      `}
      ${may.write && html`
        <${Button} icon="trash" kind="bare danger" onClick=${() => ask("DeleteSelection")}>${say("app.delete")}<//>
      `}
      <span class="fill"></span>
      ${!all && html`<button type="button" class="link" onClick=${select.all}>${say("objects.selectAll")}</button>`}
      <${IconButton} icon="close" label=${say("objects.clear")} onClick=${select.clear} />
    </div>
    ${error && html`<${Problem} error=${error} />`}
  `;
}

function Foot({ pages, isSearch, onMeasure }) {
  const { folders, objects, bytes: size } = pages.sums;
  const text = isSearch
    ? say("objects.countFound", { count: number(pages.count) })
    : pages.isComplete ? inWords(pages.sums) : say("objects.countMore", { count: number(pages.count) });
  return html`
    <div class="listFoot">
      <span role="status">${text}</span>
      ${pages.isComplete && objects > 0 && html`<span>${bytes(size)}</span>`}
      ${onMeasure && folders > 0 && html`<button type="button" class="link" onClick=${onMeasure}>${say("objects.measure")}</button>`}
      <span class="fill"></span>
      <span class="hidePhone hideDrawer">${say("objects.keys")}</span>
    </div>
  `;
}

// Running jobs keep their bars, and the last that has ended.
export const endOf = (job, setJobs) => {
  setJobs((before) => before.filter((each) => each === job || !each.hasEnded));
  job.hasEnded = true;
};

// What the menu of a row offers.
function itemsOf({ bucket, row, may, where, query, open, ask, remove, isSearch }) {
  const name = nameOf(row);
  const show = { label: say("objects.open"), icon: "eye", key: "Enter", act: open };
  const fetchIt = {
    label: say(isFolder(row) ? "objects.zip" : "objects.download"), icon: "download",
    act: () => (isFolder(row)
      ? downloadSelection(bucket, folderOf(name.slice(0, -1)), { all: false, names: new Set([name]) })
      : download({ bucket, key: name, purpose: "download" }, name.split("/").pop())).catch((error) => announce(error.message)),
  };
  const dialog = (kind, label, icon, key) => ({ label: say(label), icon, key, act: () => ask(kind) });
  const items = [show];
  if (isSearch) items.push({ label: say("objects.inFolder"), icon: "folder", act: () => go(where, { prefix: folderOf(name), object: name }) });
  if (may.read) items.push(fetchIt);
  if (may.read && !isFolder(row)) items.push(dialog("Share", "objects.share", "share"));
  const of = isFolder(row) ? "Folder" : "";
  if (may.write && may.read)
    items.push(null, dialog("Copy" + of, "objects.copyTo", "copy"), dialog("Move" + of, "objects.moveTo", "move"),
      dialog("Rename" + of, "objects.rename", "rename", "F2"));
  if (!isFolder(row))
    items.push(null, { label: say("objects.showVersions"), icon: "history",
      act: () => go(where, { ...query, object: name, tab: "versions" }) });
  if (may.write) items.push(null, { label: say("app.delete"), icon: "trash", key: "Del", isBad: true, act: remove });
  return items;
}

// A list with its bar, its menu and its dialogs. `pages` are the rows.
export function ObjectList({ bucket, info, measured, prefix, folder, pages, query, may, reload, addJobs, onBeside, sort, onSort, onMeasure, empty, between, isSearch, wanted }) {
  const [asks, setAsks] = useState("");
  const [menu, setMenu] = useState(null);
  const [dialog, setDialog] = useState(null);
  const [selection, select] = useSelection(pages);
  const where = ["buckets", bucket, "objects"];
  const isAny = selection.all || selection.names.size > 0;
  const href = (row) => (isFolder(row) ? link(where, { prefix: row, versions: query.versions }) : link(where, { ...query, object: row[0] }));
  useBeside(pages.count, query.object !== undefined, onBeside, (name, step) => {
    const at = pages.indexOf(name);
    const row = at < 0 ? undefined : pages.row(at + step);
    return row === undefined || isFolder(row) ? "" : href(row);
  });
  const ask = (row) => (kind) => setDialog({ kind, row });
  const acts = {
    menu: (row, at) => row !== undefined && setMenu({ row, at }),
    up: folder && (() => go(where, { prefix: folderOf(folder.slice(0, -1)), versions: query.versions })),
    rename: may.write && may.read && ((row) => setDialog({ kind: isFolder(row) ? "RenameFolder" : "Rename", row })),
    remove: may.write && (() => setAsks("DeleteSelection")),
  };
  return html`
    ${isAny && html`
      <${BulkBar} bucket=${bucket} prefix=${prefix} pages=${pages} selection=${selection} select=${select} may=${may} ask=${setAsks} />
    `}
    ${between}
    ${pages.count > 0
      ? html`<div class="listBox">
          <${ObjectGrid} label=${say("objects.title", { bucket })} folder=${folder} wanted=${wanted} pages=${pages} measured=${measured} selection=${selection}
            select=${select} href=${href} opened=${query.object} sort=${sort} onSort=${onSort} acts=${acts} />
          <${Foot} pages=${pages} isSearch=${isSearch} onMeasure=${onMeasure} />
        </div>`
      : empty}
    ${menu && html`
      <${Lazy} key=${nameOf(menu.row)} load=${() => import("./menu.js")} part="Menu" label=${say("objects.actionsOf", { name: shown(nameOf(menu.row)) })} at=${menu.at}
        onClose=${() => setMenu(null)} items=${itemsOf({
          bucket, row: menu.row, may, where, query, isSearch, ask: ask(menu.row),
          open: () => (location.hash = href(menu.row)),
          remove: () => {
            select.only(nameOf(menu.row));
            setAsks("DeleteSelection");
          },
        })} />
    `}
    ${dialog && html`
      <${Lazy} key=${dialog.kind} load=${() => dialogs(dialog.kind)} part=${dialog.kind} bucket=${bucket}
        object=${nameOf(dialog.row)} folder=${nameOf(dialog.row)} onClose=${() => setDialog(null)} onDone=${(jobs) => {
          setDialog(null);
          if (Array.isArray(jobs)) addJobs(jobs);
          reload();
        }} />
    `}
    ${asks && html`
      <${Lazy} key=${asks} load=${() => (asks === "DeleteSelection" ? import("./objectdeletion.js") : import("./objectjobs.js"))} part=${asks} bucket=${bucket} info=${info} prefix=${prefix} selection=${selection} reload=${reload}
        onClose=${() => setAsks("")} onDone=${(jobs, failed) => {
          setAsks("");
          select.keep(failed);
          addJobs(jobs);
          reload();
        }} />
    `}
  `;
}
