// A list of objects with its bar, the menu of its rows, and its dialogs.

import { useEffect, useState } from "preact/hooks";
import { bytes, counted, number, say } from "./messages.js";
import { download, downloadSelection } from "./objectactions.js";
import { isFolder, ObjectGrid, useSelection } from "./objectgrid.js";
import { folderOf, shown } from "./objectnames.js";
import { nameOf } from "./objectpages.js";
import { go, link } from "./router.js";
import { announce, Button, html, Problem, useAction } from "./ui.js";

// A part of the page that is fetched when it is first shown.
export function Lazy({ load, part, ...given }) {
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
  return module && html`<${module[part]} ...${given} />`;
}

// The dialogs of a row by their names: where they are.
const dialogs = (kind) => (kind.endsWith("Folder") ? import("./objectjobs.js") : import("./objectdialogs.js"));

// Takes the place of the toolbar, by its style, while something is selected.
function BulkBar({ bucket, prefix, selection, select, may, onDelete }) {
  const [zip, busy, error] = useAction(() => downloadSelection(bucket, prefix, selection));
  const { all, names } = selection;
  const text = all
    ? say("objects.selectedAll", { prefix: shown(prefix) || say("objects.wholeBucket") })
    : say("objects.selected", { count: number(names.size) });
  const isOne = names.size === 1 && ![...names][0].endsWith("/");
  return html`
    <div class="bulk">
      <span role="status">${text}</span>
      ${may.read && html`
        <${Button} icon="download" kind="bare" busy=${busy} onClick=${zip}>${say(isOne ? "objects.download" : "objects.zip")}<//>
      `}
      ${may.write && html`
        <${Button} icon="trash" kind="bare danger" onClick=${onDelete}>${say("app.delete")}<//>
      `}
      ${!all && html`<${Button} kind="bare" onClick=${select.all}>${say("objects.selectAll")}<//>`}
      <span class="fill"></span>
      <${Button} icon="close" kind="bare" onClick=${select.clear}>${say("objects.clear")}<//>
    </div>
    ${error && html`<${Problem} error=${error} />`}
  `;
}

function Foot({ pages, isSearch, onMeasure }) {
  const { folders, objects, bytes: size } = pages.sums;
  const whole = [...counted(folders, "objects.folderOne", "objects.folders"), ...counted(objects, "objects.one", "objects.many")].join(", ");
  const text = isSearch
    ? say("objects.countFound", { count: number(pages.count) })
    : pages.isComplete ? whole : say("objects.countMore", { count: number(pages.count) });
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

// What the menu of a row offers.
function itemsOf({ bucket, row, may, where, query, open, ask, remove }) {
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
export function ObjectList({ bucket, info, measured, prefix, folder, pages, query, may, reload, addJobs, sort, onSort, onMeasure, empty, between, isSearch }) {
  const [asks, setAsks] = useState(false);
  const [menu, setMenu] = useState(null);
  const [dialog, setDialog] = useState(null);
  const [selection, select] = useSelection(pages);
  const where = ["buckets", bucket, "objects"];
  const isAny = selection.all || selection.names.size > 0;
  const href = (row) => (isFolder(row) ? link(where, { prefix: row, versions: query.versions }) : link(where, { ...query, object: row[0] }));
  const ask = (row) => (kind) => setDialog({ kind, row });
  const acts = {
    menu: (row, at) => row !== undefined && setMenu({ row, at }),
    up: folder && (() => go(where, { prefix: folderOf(folder.slice(0, -1)), versions: query.versions })),
    rename: may.write && may.read && ((row) => setDialog({ kind: isFolder(row) ? "RenameFolder" : "Rename", row })),
    remove: may.write && (() => setAsks(true)),
  };
  return html`
    ${isAny && html`
      <${BulkBar} bucket=${bucket} prefix=${prefix} selection=${selection} select=${select} may=${may}
        onDelete=${() => setAsks(true)} />
    `}
    ${between}
    ${pages.count > 0
      ? html`<div class="listBox">
          <${ObjectGrid} label=${say("objects.title", { bucket })} folder=${folder} pages=${pages} measured=${measured} selection=${selection}
            select=${select} href=${href} opened=${query.object} sort=${sort} onSort=${onSort} acts=${acts} />
          <${Foot} pages=${pages} isSearch=${isSearch} onMeasure=${onMeasure} />
        </div>`
      : empty}
    ${menu && html`
      <${Lazy} key=${nameOf(menu.row)} load=${() => import("./menu.js")} part="Menu" label=${say("objects.actionsOf", { name: shown(nameOf(menu.row)) })} at=${menu.at}
        onClose=${() => setMenu(null)} items=${itemsOf({
          bucket, row: menu.row, may, where, query, ask: ask(menu.row),
          open: () => (location.hash = href(menu.row)),
          remove: () => {
            select.only(nameOf(menu.row));
            setAsks(true);
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
      <${Lazy} load=${() => import("./objectdeletion.js")} part="DeleteSelection" bucket=${bucket} info=${info} prefix=${prefix} selection=${selection} reload=${reload}
        onClose=${() => setAsks(false)} onDone=${(jobs, failed) => {
          setAsks(false);
          select.keep(failed);
          addJobs(jobs);
          reload();
        }} />
    `}
  `;
}
