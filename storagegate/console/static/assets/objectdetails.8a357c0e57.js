// One object: what it is, its preview and versions, and links to it.

import { useState } from "./hooks.ceebd18b27.js";
import { APIError, call } from "./api.3f20c599c2.js";
import { addTexts, bytes, date, number, say } from "./messages.5d7ca40ed1.js";
import { base, deleteObjects, download, objectPath } from "./objectactions.a87ba3f2d1.js";
import { EditTags, EditType, Lock } from "./objectedit.2000edfea2.js";
import { shown } from "./objectnames.9756311a71.js";
import { Preview } from "./objectpreview.35534b71a4.js";
import { snippets } from "./objectsnippets.8f7ff23e5f.js";
import { Versions } from "./objectversions.70f58d4308.js";
import { go, link } from "./router.dcba0dcacc.js";
import {
  announce, Button, Check, Confirm, CopyButton, Dialog, Form, html, Icon, Loaded, Problem, Select, useAction,
  useLoad,
} from "./ui.7967bae88c.js";

addTexts({
  "object.tab.properties": "Properties",
  "object.tab.preview": "Preview",
  "object.tab.versions": "Versions",
  "object.tab.lock": "Lock",
  "object.tab.share": "Share",
  "object.tab.code": "Copy as",
  "object.parts": "Parts of the object",
  "object.size": "Size",
  "object.modified": "Changed",
  "object.type": "Type",
  "object.etag": "ETag",
  "object.checksum": "Checksum",
  "object.account": "Account",
  "object.storageClass": "Storage class",
  "object.partCount": "Parts",
  "object.version": "Version",
  "object.headers": "Header fields",
  "object.metadata": "Metadata",
  "object.saveMetadata": "Save type and metadata",
  "object.tags": "Tags",
  "object.saveTags": "Save tags",
  "object.tagsHidden": "Its tags may not be read with your key.",
  "object.changed": "The change is saved",
  "object.olderVersion": "This is an older version.",
  "object.toCurrent": "Show the current one",
  "object.noPreview": "A browser shows nothing of the type {type}. Download it.",
  "object.cut": "The first {size} are shown.",
  "object.image": "The picture in this object",
  "object.latest": "current",
  "object.shownVersion": "shown here",
  "object.deleteMarker": "Delete marker",
  "object.removeMarker": "Remove marker",
  "object.restore": "Restore",
  "object.restored": "A copy of that version is the current one",
  "object.deleteVersion": "Delete version",
  "object.deleteVersionText": "This version is deleted for good:",
  "object.versionDeleted": "The version is deleted",
  "object.versionKept": "The version was not deleted",
  "object.bypass": "Bypass a retention in governance mode",
  "object.locked": "Kept in {mode} mode until {date}.",
  "object.notLocked": "It has no retention.",
  "object.held": "A legal hold is on.",
  "object.mode": "Retention",
  "object.modeHelp": "In COMPLIANCE mode the retention cannot be shortened or lifted by any key.",
  "object.until": "Until",
  "object.saveRetention": "Save retention",
  "object.hold": "Place legal hold",
  "object.release": "Release legal hold",
  "object.deleteText": "In a bucket with versions it stays as an older version.",
  "object.kept": "The object was not deleted",
  "object.deleted": "The object is deleted",
  "object.expires": "Valid for",
  "object.expires.900": "15 minutes",
  "object.expires.3600": "1 hour",
  "object.expires.86400": "1 day",
  "object.expires.259200": "3 days",
  "object.expires.604800": "7 days",
  "object.saves": "The browser saves it, rather than shows it",
  "object.makeLink": "Make a link",
  "object.link": "Works without signing in until {date}",
  "object.codeHelp": "The programs take the key pair from their own settings or the environment.",
  "object.noCode": "This program cannot name this object.",
});

const TABS = ["properties", "preview", "versions", "lock", "share", "code"];

const EXPIRIES = [900, 3600, 86400, 259200, 604800];

const PROGRAMS = ["aws", "rclone", "curl", "python"];

const Warning = ({ text }) => html`
  <p class="warning" role="alert"><${Icon} name="warning" /> ${text}</p>
`;

function Properties({ bucket, object, versionId, changed }) {
  const pairs = (values) => Object.entries(values).map(([name, value]) => name + ": " + value).join(", ");
  const facts = [
    ["size", bytes(object.size) + " (" + number(object.size) + ")"],
    ["modified", date(object.modifiedMs)],
    ["type", object.contentType],
    ["etag", object.etag],
    ["version", object.versionId],
    ["checksum", object.checksum && object.checksum.algorithm + " " + object.checksum.value],
    ["account", object.account],
    ["storageClass", object.storageClass],
    ["partCount", object.parts.length && number(object.parts.length)],
    ["headers", pairs(object.headers)],
  ];
  return html`
    <dl class="facts">
      ${facts.filter(([, value]) => value).map(([name, value]) => html`
        <dt>${say("object." + name)}</dt><dd><bdi>${shown(value)}</bdi></dd>
      `)}
    </dl>
    ${!versionId && html`<${EditType} bucket=${bucket} object=${object} changed=${changed} />`}
    <${EditTags} bucket=${bucket} object=${object} versionId=${versionId} changed=${changed} />
  `;
}

function Share({ bucket, object, versionId }) {
  const [expires, setExpires] = useState(86400);
  const [isSaved, setIsSaved] = useState(false);
  const [made, setMade] = useState(null);
  async function make() {
    const body = { key: object.key, expiresSeconds: expires, download: isSaved, versionId: versionId || null };
    setMade(await call("POST", base(bucket) + "/share", { body }));
  }
  return html`
    <${Form} submit=${make} label=${say("object.makeLink")}>
      <${Select} label=${say("object.expires")} name="expires" value=${expires}
        onChange=${(event) => setExpires(+event.target.value)}
        options=${EXPIRIES.map((seconds) => [seconds, say("object.expires." + seconds)])} />
      <${Check} label=${say("object.saves")} checked=${isSaved}
        onChange=${(event) => setIsSaved(event.target.checked)} />
    <//>
    ${made && html`
      ${made.warning && html`<${Warning} text=${made.warning} />`}
      <p><code id="link">${made.url}</code><${CopyButton} text=${made.url} /></p>
      <p class="quiet">${say("object.link", { date: date(made.expiresMs) })}</p>
    `}
  `;
}

function Code({ bucket, object, versionId }) {
  const found = useLoad((signal) => call("GET", "endpoint", { signal }), []);
  return html`
    <${Loaded} of=${found}>
      ${({ url, region, warning }) => {
        const texts = snippets({ endpoint: url, region, bucket, key: object.key, versionId });
        return html`
          ${warning && html`<${Warning} text=${warning} />`}
          <p class="quiet">${say("object.codeHelp")}</p>
          ${PROGRAMS.map((name) => html`
            <h3>${name}${texts[name] && html`<${CopyButton} text=${texts[name]} />`}</h3>
            ${texts[name]
              ? html`<pre id=${"code-" + name} tabindex="0">${texts[name]}</pre>`
              : html`<p class="quiet">${say("object.noCode")}</p>`}
          `)}
        `;
      }}
    <//>
  `;
}

const PARTS = { properties: Properties, preview: Preview, lock: Lock, share: Share, code: Code };

export function ObjectDetails({ bucket, name, tab = "properties", versionId, query, onClose, reload }) {
  const where = ["buckets", bucket, "objects"];
  const path = objectPath(bucket, name);
  const found = useLoad((signal) => call("GET", path, { query: { versionId }, signal }), []);
  const [asks, setAsks] = useState(false);
  const [fetchIt, busy, error] = useAction(() =>
    download({ bucket, key: name, versionId: versionId || null, purpose: "download" }, name.split("/").pop()));
  const changed = () => {
    found.reload();
    reload();
  };
  async function remove() {
    const [failed] = await deleteObjects(bucket, [{ key: name }]);
    if (failed) throw new APIError(0, failed.error, say("object.kept"));
    announce(say("object.deleted"));
    onClose();
    reload();
  }
  const Part = PARTS[tab] || Properties;
  return html`
    <${Dialog} title=${shown(name)} onClose=${onClose} wide>
      <nav class="tabs" aria-label=${say("object.parts")}>
        ${TABS.map((each) => html`
          <a href=${link(where, { ...query, versionId, tab: each })}
            aria-current=${each === tab ? "page" : undefined} onClick=${(event) => {
              event.preventDefault();
              go(where, { ...query, versionId, tab: each }, true);
            }}>${say("object.tab." + each)}</a>
        `)}
      </nav>
      ${versionId && html`
        <p class="quiet">${say("object.olderVersion")}${" "}
          <a href=${link(where, { ...query, tab })}>${say("object.toCurrent")}</a></p>
      `}
      ${tab === "versions"
        ? html`<${Versions} bucket=${bucket} name=${name} versionId=${versionId} where=${where} query=${query}
            changed=${changed} />`
        : html`<${Loaded} of=${found}>
            ${(object) => html`<${Part} key=${tab + object.etag + found.atMs} bucket=${bucket} object=${object}
              versionId=${versionId} changed=${changed} />`}
          <//>`}
      ${error && html`<${Problem} error=${error} />`}
      <div class="buttons footer">
        <${Button} kind="primary" busy=${busy} onClick=${fetchIt}>${say("objects.download")}<//>
        ${!versionId && html`
          <${Button} icon="trash" kind="danger" onClick=${() => setAsks(true)}>${say("app.delete")}<//>
        `}
      </div>
      ${asks && html`
        <${Confirm} title=${say("app.delete") + " " + shown(name)} text=${say("object.deleteText")}
          act=${remove} label=${say("app.delete")} onClose=${() => setAsks(false)} />
      `}
    <//>
  `;
}
