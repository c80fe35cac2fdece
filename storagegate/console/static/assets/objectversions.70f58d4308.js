// The versions of an object: read, made current again, deleted for good.

import { useState } from "./hooks.ceebd18b27.js";
import { APIError, call } from "./api.3f20c599c2.js";
import { base, deleteObjects, objectPath } from "./objectactions.a87ba3f2d1.js";
import { bytes, date, say } from "./messages.5d7ca40ed1.js";
import { link } from "./router.dcba0dcacc.js";
import { announce, Button, Check, Dialog, Form, html, Loaded, Problem, useAction, useLoad } from "./ui.7967bae88c.js";

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
    const [failed] = await deleteObjects(bucket, [{ key: version.key, versionId: version.versionId }], bypass);
    if (failed) throw new APIError(0, failed.error, say("object.versionKept"));
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

export function Versions({ bucket, name, versionId, where, query, changed }) {
  const found = useLoad((signal) => load(bucket, name, null, signal), [name]);
  const [asked, setAsked] = useState(null);
  const [more, busy, error] = useAction(async () => {
    const page = await load(bucket, name, found.data);
    found.change((before) => ({ ...page, items: [...before.items, ...page.items] }));
  });
  const [restore, restoring, problem] = useAction(async (version) => {
    const query = { versionId: version.versionId };
    await call("PATCH", objectPath(bucket, name), { query, body: {} });
    announce(say("object.restored"));
    found.reload();
    changed();
  });
  const row = (version) => html`
    <tr key=${version.versionId}>
      <th scope="row">${version.isDeleteMarker
        ? say("object.deleteMarker")
        : html`<a href=${link(where, { ...query, versionId: version.versionId })}>
            ${date(version.modifiedMs)}</a>`}
        ${version.isLatest && html`<small>${say("object.latest")}</small>`}
        ${version.versionId === versionId && html`<small>${say("object.shownVersion")}</small>`}
        <small><code>${version.versionId}</code></small></th>
      <td class="number">${version.isDeleteMarker ? "" : bytes(version.size)}</td>
      <td><div class="buttons">
        ${!version.isLatest && !version.isDeleteMarker && html`
          <${Button} busy=${restoring} onClick=${() => restore(version)}>${say("object.restore")}<//>
        `}
        <${Button} kind="danger" onClick=${() => setAsked(version)}>
          ${say(version.isDeleteMarker ? "object.removeMarker" : "object.deleteVersion")}<//>
      </div></td>
    </tr>
  `;
  return html`
    <${Loaded} of=${found}>
      ${(page) => html`
        <div class="scroll" tabindex="0"><table>
          <thead><tr><th scope="col">${say("object.tab.versions")}</th>
            <th scope="col" class="number">${say("object.size")}</th>
            <th scope="col">${say("app.actions")}</th></tr></thead>
          <tbody>${page.items.map(row)}</tbody>
        </table></div>
        ${page.next && html`<${Button} busy=${busy} onClick=${more}>${say("app.more")}<//>`}
        ${(error || problem) && html`<${Problem} error=${error || problem} />`}
      `}
    <//>
    ${asked && html`
      <${DeleteVersion} bucket=${bucket} version=${asked} onClose=${() => setAsked(null)} onDone=${() => {
        setAsked(null);
        found.reload();
        changed();
      }} />
    `}
  `;
}
