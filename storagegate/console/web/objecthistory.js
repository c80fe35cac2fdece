// A folder with what was deleted in it and with older versions, each with the way back.

import { useMemo, useRef, useState } from "preact/hooks";
import { call } from "./api.js";
import { typeOf } from "./filetypes.js";
import { addTexts, bytes, date, number, say } from "./messages.js";
import { base, objectPath } from "./objectactions.js";
import { deleteObjects, restoreBelow } from "./objectdeletion.js";
import { CARD_PX, ROW_PX } from "./objectgrid.js";
import { useBeside } from "./objectlist.js";
import { isBefore, shown, shownBelow } from "./objectnames.js";
import { link } from "./router.js";
import { announce, Button, Dialog, Empty, Form, html, Icon, Loaded, Problem, useAction, useLoad } from "./ui.js";
import { useRowHeight, VirtualList } from "./virtuallist.js";

addTexts({
  "objects.historyCount": "{deleted} deleted, {current} current, {older} older versions",
  "objects.historyMore": "{deleted} deleted, {current} current, {older} older versions loaded, and more",
  "objects.historyBytes": "Older versions hold {size}",
  "objects.historyTitle": "Deleted objects and versions",
  "objects.nullVersion": "stored before versions",
  "objects.versionOne": "1 version",
  "objects.versionCount": "{count} versions",
  "objects.emptyHistory": "No objects, deleted or present",
  "objects.column.restore": "Versions",
  "objects.deletedBadge": "Deleted",
  "objects.restore": "Restore",
  "objects.makeCurrent": "Make current",
  "objects.restored": "{name} is restored",
  "objects.restoreAll": "Restore all {count} deleted",
  "objects.restoredAll": "{count} objects are restored",
  "object.latest": "Current",
  "objects.restoreBelow": "Restore all below {prefix}",
  "objects.restoreBelowText": "Every object below {prefix} whose last version is a deletion comes back, whenever it was deleted.",
});

// The id of what was stored while versions were off.
export const NULL_VERSION = "null";

const LIMIT = 1000;
const AHEAD_ROWS = 200;
const MOST_ROWS = 50000;
const HEAD_PX = 32;

function load(bucket, prefix, page, signal) {
  const query = { prefix, delimiter: "/", limit: LIMIT };
  if (page) Object.assign(query, { after: page.next, versionAfter: page.nextVersion });
  return call("GET", base(bucket) + "/versions", { query, signal });
}

// The first page, and which of its folders have no object any more.
async function loadFirst(bucket, prefix, signal) {
  const page = await load(bucket, prefix, null, signal);
  if (!page.prefixes.length) return { ...page, gone: new Set() };
  const { prefixes, next } = await call("GET", base(bucket) + "/objects", { query: { prefix, delimiter: "/", limit: LIMIT }, signal });
  const present = new Set(prefixes);
  const gone = page.prefixes.filter((each) => !present.has(each) && (next === null || isBefore(each, next)));
  return { ...page, gone: new Set(gone) };
}

function RestoreBelow({ bucket, prefix, onClose, onDone }) {
  async function act() {
    await restoreBelow(bucket, prefix, 0);
    onDone();
  }
  return html`
    <${Dialog} title=${say("objects.restoreBelow", { prefix: shown(prefix) })} onClose=${onClose}>
      <${Form} submit=${act} label=${say("objects.restore")} onCancel=${onClose}>
        <p>${say("objects.restoreBelowText", { prefix: shown(prefix) })}</p>
      <//>
    <//>
  `;
}

// Make a deleted object, or an older version, the current one.
export async function restore(bucket, version) {
  if (version.isDeleteMarker) {
    const { failed } = await deleteObjects(bucket, [{ key: version.key, versionId: version.versionId }]);
    if (failed.length) throw new Error(failed[0].error);
  } else await call("PATCH", objectPath(bucket, version.key), { query: { versionId: version.versionId }, body: {} });
  announce(say("objects.restored", { name: shown(version.key) }));
}

const HEADS = [["name", "label"], ["size", "number"], ["type", "hidePhone hideMid hideDrawer"], ["modified", "hidePhone"],
  ["restore", ""]];

const lastOf = (folder) => folder.slice(0, -1).split("/").pop() + "/";

const deletedOf = (items) => items.filter((each) => each.isDeleteMarker && each.isLatest);

const MOST_COUNTED = 100;

// The versions of the key of a row, of those that are loaded.
function countOf(items, index) {
  let count = 0;
  for (let at = index; at < items.length && at - index < MOST_COUNTED && items[at].key === items[index].key; at += 1)
    count += items[at].isDeleteMarker ? 0 : 1;
  return count;
}

function Row({ items, top, height, index, folder, href, may, act }) {
  const version = items[index];
  const { key, isLatest, isDeleteMarker, versionId } = version;
  const [icon, type] = typeOf(key);
  const isOld = !isLatest;
  const canRestore = may.write && (isDeleteMarker ? isLatest : isOld);
  const count = isLatest && !isDeleteMarker ? countOf(items, index) : 0;
  return html`
    <div role="row" class=${"listRow history" + (isDeleteMarker && isLatest ? " isDeleted" : "")} aria-rowindex=${index + 2}
      style=${{ top: top + "px", height: height + "px" }}>
      <span role="gridcell" class="hidePhone"></span>
      <span role="gridcell" class="label"><a class=${isOld ? "isOld" : ""} href=${href(version)}>
        ${isOld
          ? html`<code><span class="hidden">${shownBelow(key, folder)}</span> ${versionId === NULL_VERSION ? say("objects.nullVersion") : versionId.slice(0, 20)}</code>`
          : html`<${Icon} name=${icon} /><bdi>${shownBelow(key, folder)}</bdi>`}
        ${isDeleteMarker
          ? html`<span class="badge gone">${say("objects.deletedBadge")}</span>`
          : count > 1 && html`<span class="badge current">${say("object.latest")}</span>`}</a></span>
      <span role="gridcell" class="number">${isDeleteMarker ? "–" : bytes(version.size)}</span>
      <span role="gridcell" class="quiet hidePhone hideMid hideDrawer">${type}</span>
      <span role="gridcell" class="when">${date(version.modifiedMs)}</span>
      <span role="gridcell" class="ends">${canRestore
        ? html`<${Button} kind="small" icon=${isDeleteMarker ? "restore" : ""} onClick=${() => act(version)}>
            ${say(isDeleteMarker ? "objects.restore" : "objects.makeCurrent")}<//>`
        : count > 0 && html`<span class="quiet">${say(count === 1 ? "objects.versionOne" : "objects.versionCount", {
          count: count === MOST_COUNTED ? number(count) + "+" : number(count) })}</span>`}</span>
    </div>
  `;
}

export function ObjectHistory({ bucket, prefix, folder, query, may, round, reload, onBeside }) {
  const found = useLoad((signal) => loadFirst(bucket, prefix, signal), [round]);
  const [asks, setAsks] = useState(false);
  const [all, restoring, refusal] = useAction(async (markers) => {
    const { failed } = await deleteObjects(bucket, markers.map(({ key, versionId }) => ({ key, versionId })));
    announce(say("objects.restoredAll", { count: number(markers.length - failed.length) }));
    reload();
  });
  const fetching = useRef(false);
  const handle = useRef(null);
  const height = useRowHeight(ROW_PX, CARD_PX);
  const [failure, setFailure] = useState(null);
  const [act, , error] = useAction(async (version) => {
    await restore(bucket, version);
    reload();
  });
  const latest = useRef();
  latest.current = async (last) => {
    const page = found.data;
    if (!page || page.next === null || fetching.current || page.items.length > MOST_ROWS) return;
    if (last < page.items.length - AHEAD_ROWS) return;
    fetching.current = true;
    try {
      const more = await load(bucket, prefix, page);
      found.change((before) => ({ ...more, gone: before.gone, prefixes: [...before.prefixes, ...more.prefixes], items: [...before.items, ...more.items] }));
    } catch (problem) {
      setFailure(problem);
    }
    fetching.current = false;
  };
  const onSpan = useMemo(() => (_, last) => latest.current(last), []);
  const where = ["buckets", bucket, "objects"];
  const href = (version) => link(where, {
    ...query, object: version.key, versionId: version.isLatest || version.isDeleteMarker ? "" : version.versionId,
    tab: version.isDeleteMarker ? "versions" : "",
  });
  const rows = found.data ? found.data.items.filter((each) => each.isLatest) : [];
  useBeside(rows.length, query.object !== undefined, onBeside, (name, step) => {
    const at = rows.findIndex((each) => each.key === name);
    return at >= 0 && rows[at + step] ? href(rows[at + step]) : "";
  });
  const head = html`
    <div role="row" class="listHead history" aria-rowindex="1">
      <span role="columnheader" class="hidePhone"><span class="hidden">${say("objects.selection")}</span></span>
      ${HEADS.map(([name, kind]) => html`<span role="columnheader" class=${kind}>${say("objects.column." + name)}</span>`)}
    </div>
  `;
  return html`
    <${Loaded} of=${found} rows=${12}>
      ${({ items, prefixes, gone, next }) => html`
        ${prefixes.length > 0 && html`<div class="notice folders"><${Icon} name="folder" /><span class="fill">${prefixes.map((name, at) => html`${at > 0 && " · "}
          <a href=${link(where, { ...query, prefix: name })}><bdi>${shownBelow(name, folder)}</bdi></a>${gone.has(name) && html`
          <span class="badge gone">${say("objects.deletedBadge")}</span>`}`)}</span>
          ${may.write && folder && html`<${Button} kind="small" icon="restore" onClick=${() => setAsks(true)}>
            ${say("objects.restoreBelow", { prefix: shown(lastOf(folder)) })}<//>`}</div>`}
        ${asks && html`<${RestoreBelow} bucket=${bucket} prefix=${folder} onClose=${() => setAsks(false)} onDone=${() => {
          setAsks(false);
          reload();
        }} />`}
        ${items.length
          ? html`<div class="listBox">
              <${VirtualList} key=${height} count=${items.length} height=${height} handle=${handle} onSpan=${onSpan} head=${head}
                headHeight=${HEAD_PX} role="grid" aria-label=${say("objects.historyTitle")} aria-rowcount=${next === null ? items.length + 1 : -1}
                row=${(index, top) => html`<${Row} key=${index} items=${items} index=${index} top=${top} height=${height}
                  folder=${folder} href=${href} may=${may} act=${act} />`} />
              <div class="listFoot"><span>${say(next === null ? "objects.historyCount" : "objects.historyMore", {
                deleted: number(deletedOf(items).length),
                current: number(items.filter((each) => !each.isDeleteMarker && each.isLatest).length),
                older: number(items.filter((each) => !each.isLatest && !each.isDeleteMarker).length),
              })}</span>
              ${may.write && deletedOf(items).length > 1 && html`<button type="button" class="link" disabled=${restoring} onClick=${() => all(deletedOf(items))}>
                ${say("objects.restoreAll", { count: number(deletedOf(items).length) })}</button>`}
              <span>${say("objects.historyBytes", { size: bytes(items.reduce((sum, each) => sum + (each.isLatest ? 0 : each.size), 0)) })}</span></div>
            </div>`
          : !prefixes.length && html`<${Empty} title=${say("objects.emptyHistory")} />`}
        ${(error || failure || refusal) && html`<${Problem} error=${error || failure || refusal} />`}
      `}
    <//>
  `;
}
