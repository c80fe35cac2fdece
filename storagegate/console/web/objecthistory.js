// A folder with what was deleted in it and with older versions, each with the way back.

import { useMemo, useRef, useState } from "preact/hooks";
import { call } from "./api.js";
import { typeOf } from "./filetypes.js";
import { bytes, date, number, say } from "./messages.js";
import { base, deleteObjects, objectPath } from "./objectactions.js";
import { CARD_PX, ROW_PX } from "./objectgrid.js";
import { shown, shownBelow } from "./objectnames.js";
import { link } from "./router.js";
import { announce, Button, Empty, html, Icon, Loaded, Problem, useAction, useLoad } from "./ui.js";
import { useRowHeight, VirtualList } from "./virtuallist.js";

const LIMIT = 1000;
const AHEAD_ROWS = 200;
const MOST_ROWS = 50000;
const HEAD_PX = 32;

function load(bucket, prefix, page, signal) {
  const query = { prefix, delimiter: "/", limit: LIMIT };
  if (page) Object.assign(query, { after: page.next, versionAfter: page.nextVersion });
  return call("GET", base(bucket) + "/versions", { query, signal });
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

function Row({ version, top, height, index, folder, href, may, act }) {
  const { key, isLatest, isDeleteMarker, versionId } = version;
  const [icon, type] = typeOf(key);
  const isOld = !isLatest;
  const canRestore = may.write && (isDeleteMarker ? isLatest : isOld);
  return html`
    <div role="row" class=${"listRow history" + (isDeleteMarker && isLatest ? " isDeleted" : "")} aria-rowindex=${index + 2}
      style=${{ top: top + "px", height: height + "px" }}>
      <span role="gridcell" class="hidePhone"></span>
      <span role="gridcell" class="label"><a class=${isOld ? "isOld" : ""} href=${href(version)}>
        <${Icon} name=${isOld ? "history" : icon} /><bdi>${shownBelow(key, folder)}</bdi>
        ${isOld && html`<small><code>${versionId.slice(0, 12)}</code></small>`}
        ${isDeleteMarker
          ? html`<span class="badge gone">${say("objects.deletedBadge")}</span>`
          : isLatest && html`<span class="badge current">${say("object.latest")}</span>`}</a></span>
      <span role="gridcell" class="number">${isDeleteMarker ? "–" : bytes(version.size)}</span>
      <span role="gridcell" class="quiet hidePhone hideMid hideDrawer">${type}</span>
      <span role="gridcell" class="when">${date(version.modifiedMs)}</span>
      <span role="gridcell" class="ends">${canRestore && html`
        <${Button} kind="small" icon="restore" onClick=${() => act(version)}>
          ${say(isDeleteMarker ? "objects.restore" : "objects.makeCurrent")}<//>
      `}</span>
    </div>
  `;
}

export function ObjectHistory({ bucket, prefix, folder, query, may, round, reload }) {
  const found = useLoad((signal) => load(bucket, prefix, null, signal), [round]);
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
      found.change((before) => ({ ...more, prefixes: [...before.prefixes, ...more.prefixes], items: [...before.items, ...more.items] }));
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
  const head = html`
    <div role="row" class="listHead history" aria-rowindex="1">
      <span role="columnheader" class="hidePhone"><span class="hidden">${say("objects.selection")}</span></span>
      ${HEADS.map(([name, kind]) => html`<span role="columnheader" class=${kind}>${say("objects.column." + name)}</span>`)}
    </div>
  `;
  return html`
    <${Loaded} of=${found} rows=${12}>
      ${({ items, prefixes, next }) => html`
        ${prefixes.length > 0 && html`<p class="notice"><${Icon} name="folder" /><span>${prefixes.map((name, at) => html`${at > 0 && " · "}
          <a href=${link(where, { ...query, prefix: name })}><bdi>${shownBelow(name, folder)}</bdi></a>`)}</span></p>`}
        ${items.length
          ? html`<div class="listBox">
              <${VirtualList} key=${height} count=${items.length} height=${height} handle=${handle} onSpan=${onSpan} head=${head}
                headHeight=${HEAD_PX} role="grid" aria-label=${say("objects.versions")} aria-rowcount=${next === null ? items.length + 1 : -1}
                row=${(index, top) => html`<${Row} key=${index} version=${items[index]} index=${index} top=${top} height=${height}
                  folder=${folder} href=${href} may=${may} act=${act} />`} />
              <div class="listFoot"><span>${say(next === null ? "objects.historyCount" : "objects.historyMore", {
                deleted: number(items.filter((each) => each.isDeleteMarker && each.isLatest).length),
                current: number(items.filter((each) => !each.isDeleteMarker && each.isLatest).length),
                older: number(items.filter((each) => !each.isLatest).length),
              })}</span></div>
            </div>`
          : html`<${Empty} title=${say("objects.emptyHistory")} />`}
        ${(error || failure) && html`<${Problem} error=${error || failure} />`}
      `}
    <//>
  `;
}
