// The versions of an object: read, made current again, deleted for good.

import { useState } from "preact/hooks";
import { APIError, call } from "./api.js";
import { base, download } from "./objectactions.js";
import { deleteObjects } from "./objectdeletion.js";
import { NULL_VERSION, restore } from "./objecthistory.js";
import { bytes, date, number, say } from "./messages.js";
import { link } from "./router.js";
import { announce, Button, Check, Dialog, Form, html, IconButton, Loaded, Problem, useAction, useLoad } from "./ui.js";

const LIMIT = 100;

function load(bucket, name, page, signal) {
  const query = { prefix: name, limit: LIMIT };
  if (page) Object.assign(query, { after: page.next, versionAfter: page.nextVersion });
  return call("GET", base(bucket) + "/versions", { query, signal }).then((found) => ({
    items: found.items.filter((each) => each.key === name),
    // Other names that begin so come after it.
    next: found.next === name ? found.next : null,
    nextVersion: found.nextVersion,
  }));
}

function DeleteVersion({ bucket, version, onClose, onDone }) {
  const [bypass, setBypass] = useState(false);
  async function act() {
    const items = [{ key: version.key, versionId: version.versionId }];
    const { failed } = await deleteObjects(bucket, items, bypass);
    if (failed.length) throw new APIError(0, failed[0].error, say("object.versionKept"));
    announce(say("object.versionDeleted"));
    onDone();
  }
  return html`
    <${Dialog} title=${say("object.deleteVersion")} onClose=${onClose}>
      <${Form} submit=${act} label=${say("app.delete")} kind="danger" onCancel=${onClose}>
        <p>${say("object.deleteVersionText")} <code>${version.versionId}</code></p>
        <${Check} label=${say("object.bypass")} checked=${bypass}
          onChange=${(event) => setBypass(event.target.checked)} />
      <//>
    <//>
  `;
}

export function Versions({ bucket, name, versionId, where, query, may, changed }) {
  const found = useLoad((signal) => load(bucket, name, null, signal), [name]);
  const [asked, setAsked] = useState(null);
  const [more, busy, error] = useAction(async () => {
    const page = await load(bucket, name, found.data);
    found.change((before) => ({ ...page, items: [...before.items, ...page.items] }));
  });
  const [fetchIt, , failure] = useAction((id) => download({ bucket, key: name, versionId: id, purpose: "download" }, name.split("/").pop()));
  const [bring, bringing, problem] = useAction(async (version) => {
    await restore(bucket, version);
    changed();
  });
  const row = (version) => {
    const { isLatest, isDeleteMarker, versionId: id } = version;
    return html`
      <li key=${id} class=${isDeleteMarker ? "isMarker" : isLatest ? "isCurrent" : ""}>
        <span class="fill">${isDeleteMarker
          ? date(version.modifiedMs)
          : html`<a href=${link(where, { ...query, versionId: isLatest ? "" : id })}>${date(version.modifiedMs)}</a>`}${" "}
          ${isDeleteMarker && html`<span class="badge gone">${say("objects.deletedBadge")}</span>`}
          ${isLatest && !isDeleteMarker && html`<span class="badge current">${say("object.latest")}</span>`}
          ${id === versionId && html`<span class="badge">${say("object.shownVersion")}</span>`}
          <small>${!isDeleteMarker && bytes(version.size) + " · "}${id === NULL_VERSION ? say("objects.nullVersion") : html`<code title=${id}>${id.slice(0, 16)}</code>`}</small></span>
        ${may.write && (isDeleteMarker ? isLatest : !isLatest) && html`
          <${Button} kind="small" busy=${bringing} onClick=${() => bring(version)}>
            ${say(isDeleteMarker ? "objects.restore" : "objects.makeCurrent")}<//>
        `}
        ${may.read && !isDeleteMarker && html`<${IconButton} icon="download" kind="small" label=${say("object.downloadVersion", { date: date(version.modifiedMs) })}
          onClick=${() => fetchIt(id)} />`}
        ${may.write && html`<${IconButton} icon="trash" kind="small" label=${say("object.deleteVersion")}
          onClick=${() => setAsked(version)} />`}
      </li>
    `;
  };
  return html`
    <h3>${say("object.versions")}${found.data && html` <span class="quiet">${found.data.next ? say("object.versionsMore", { count: number(found.data.items.length) })
      : number(found.data.items.length)}</span>`}</h3>
    <${Loaded} of=${found} rows=${2}>
      ${(page) => html`
        <ol class="timeline">${page.items.map(row)}</ol>
        ${page.next && html`<${Button} busy=${busy} onClick=${more}>${say("app.more")}<//>`}
        ${(error || problem || failure) && html`<${Problem} error=${error || problem || failure} />`}
      `}
    <//>
    ${asked && html`
      <${DeleteVersion} bucket=${bucket} version=${asked} onClose=${() => setAsked(null)} onDone=${() => {
        setAsked(null);
        changed();
      }} />
    `}
  `;
}
