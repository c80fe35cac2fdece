// One object beside its list: a preview, actions, what it is, its versions, tags, metadata, lock, and code.

import { useEffect, useRef, useState } from "preact/hooks";
import { APIError, call } from "./api.js";
import { typeOf } from "./filetypes.js";
import { addTexts, bytes, date, number, say } from "./messages.js";
import { download, objectPath } from "./objectactions.js";
import { announceDeleted, deleteObjects } from "./objectdeletion.js";
import { Copy, Move, Rename, Share, Warning } from "./objectdialogs.js";
import { EditTags, EditType, Lock } from "./objectedit.js";
import { folderOf, shown, shownBelow } from "./objectnames.js";
import { Preview } from "./objectpreview.js";
import { snippets } from "./objectsnippets.js";
import { Menu } from "./menu.js";
import { Versions } from "./objectversions.js";
import { go, link } from "./router.js";
import {
  Button, Confirm, CopyButton, html, Icon, IconButton, Loaded, Problem, useAction, useEscape,
  useLoad,
} from "./ui.js";

addTexts({
  "object.preview": "Preview",
  "object.open": "Open preview",
  "object.lock": "Lock",
  "object.more": "More actions",
  "object.details": "Details",
  "object.versions": "Versions",
  "object.versionsMore": "{count} shown, and more",
  "object.downloadVersion": "Download the version of {date}",
  "object.lockTitle": "Lock",
  "object.code": "Copy as",
  "object.previous": "Previous object",
  "object.next": "Next object",
  "object.key": "Key",
  "object.size": "Size",
  "object.modified": "Modified",
  "object.type": "Type",
  "object.etag": "ETag",
  "object.checksum": "Checksum",
  "object.encryption": "Encryption",
  "object.encryption.AES256": "SSE-S3",
  "object.encryption.aws:kms": "SSE-KMS",
  "object.encryption.key": "SSE-KMS with the key {key}",
  "object.encryption.SSE-C": "SSE-C",
  "object.customerKey": "This object is encrypted with a key that only its owner has (SSE-C). The console cannot show, download, copy or rename it: use a client that sends the key.",
  "object.account": "Owner",
  "object.storageClass": "Class",
  "object.partCount": "Parts",
  "object.version": "Version",
  "object.headers": "Headers",
  "object.edit": "Edit {what}",
  "object.editShort": "Edit",
  "object.noPairs": "None",
  "object.metadata": "Metadata",
  "object.saveMetadata": "Save type and metadata",
  "object.tags": "Tags",
  "object.saveTags": "Save tags",
  "object.tagsHidden": "Your key may not read the tags.",
  "object.changed": "The change is saved",
  "object.olderVersion": "This is an older version.",
  "object.toCurrent": "Show the current one",
  "object.gone": "This object is deleted. Its versions are below.",
  "object.noPreview": "Browsers cannot show the type {type}.",
  "object.cut": "The first {size} are shown.",
  "object.image": "The picture in this object",
  "object.shownVersion": "Shown here",
  "object.deleteVersion": "Delete version",
  "object.deleteVersionText": "This version is deleted for good:",
  "object.versionDeleted": "The version is deleted",
  "object.versionKept": "The version was not deleted",
  "object.bypass": "Bypass a retention in governance mode",
  "object.locked": "Kept in {mode} mode until {date}.",
  "object.notLocked": "Not locked.",
  "object.held": "A legal hold is on.",
  "object.mode": "Retention",
  "object.modeHelp": "No key can shorten or lift a retention in COMPLIANCE mode.",
  "object.complianceAsks": "Until then no key, not even the root pair, can delete this version or shorten the time.",
  "object.until": "Until",
  "object.saveRetention": "Save retention",
  "object.hold": "Place legal hold",
  "object.release": "Release legal hold",
  "object.deleteText": "A bucket that keeps versions keeps it as an older version.",
  "object.kept": "The object was not deleted",
  "object.shell": "Shell",
  "object.codeHelp": "The programs read the key pair from their own settings or the environment.",
  "object.noCode": "This program cannot name this object.",
});

const PROGRAMS = { aws: "AWS CLI", rclone: "rclone", curl: "curl", python: "boto3" };

const isSealed = (object) => Boolean(object && object.encryption && object.encryption.kind === "SSE-C");

const encryptionOf = ({ kind, keyId }) =>
  keyId ? say("object.encryption.key", { key: keyId }) : say("object.encryption." + kind);

function Facts({ object }) {
  const pairs = (values) => Object.entries(values).map(([name, value]) => name + ": " + value).join(", ");
  const [, words] = typeOf(object.key);
  const facts = [
    ["key", html`<code>${shown(object.key)}</code>`],
    ["size", bytes(object.size) + (object.size < 1000 ? "" : " (" + number(object.size) + " B)")],
    ["type", html`${words && words + ", "}<code>${shown(object.contentType)}</code>`],
    ["modified", date(object.modifiedMs)],
    ["etag", html`<code>${object.etag}</code>`],
    ["version", object.versionId && html`<code>${object.versionId}</code>`],
    ["checksum", object.checksum && html`<code>${object.checksum.algorithm} ${object.checksum.value}</code>`],
    ["encryption", object.encryption && encryptionOf(object.encryption)],
    ["account", object.account],
    ["storageClass", object.storageClass],
    ["lock", object.lock && (object.lock.legalHold ? say("object.held") : say("object.locked", { mode: object.lock.mode, date: date(object.lock.untilMs) }))],
    ["partCount", object.parts.length && number(object.parts.length)],
    ["headers", shown(pairs(object.headers))],
  ];
  return html`
    <section class="part"><h3>${say("object.details")}</h3>
      <dl class="facts">
        ${facts.filter(([, value]) => value).map(([name, value]) => html`
          <dt>${say("object." + name)}</dt><dd><bdi>${value}</bdi></dd>
        `)}
      </dl>
    </section>
  `;
}

function Code({ bucket, object, versionId }) {
  const found = useLoad((signal) => call("GET", "endpoint", { signal }), []);
  const [chosen, setChosen] = useState("aws");
  return html`
    <${Loaded} of=${found}>
      ${({ url, region, warning }) => {
        const texts = snippets({ endpoint: url, region, bucket, key: object.key, versionId });
        return html`
          ${warning && html`<${Warning} text=${warning} />`}
          <div class="seg" role="group" aria-label=${say("object.code")}>${Object.entries(PROGRAMS).map(([name, text]) => html`
            <button type="button" aria-pressed=${chosen === name} onClick=${() => setChosen(name)}>${text}</button>`)}</div>
          ${Object.entries(PROGRAMS).map(([name, text]) => html`
            <div class="code" hidden=${name !== chosen}><header><span>${name === "python" ? "Python" : say("object.shell")}</span>${texts[name] && html`<${CopyButton} text=${texts[name]} />`}</header>
              ${texts[name]
                ? html`<pre id=${"code-" + name} tabindex="0">${texts[name]}</pre>`
                : html`<p class="quiet">${say("object.noCode")}</p>`}</div>
          `)}
          <p class="help">${say("object.codeHelp")}</p>
        `;
      }}
    <//>
  `;
}

// Pairs as they are, and the form that changes them once it is wanted.
function Editable({ id, title, pairs, mayEdit, isOpen, children }) {
  const [isEdited, setIsEdited] = useState(isOpen && mayEdit);
  return html`
    <section class="part" id=${"part-" + id}>
      <h3>${title}<span class="fill"></span>${mayEdit && !isEdited && html`
        <button type="button" class="link" aria-label=${say("object.edit", { what: title })} onClick=${() => setIsEdited(true)}>${say("object.editShort")}</button>`}</h3>
      ${isEdited ? children(() => setIsEdited(false)) : pairs.length
        ? html`<dl class="facts">${pairs.map(([name, value]) => html`<dt><bdi>${shown(name)}</bdi></dt><dd><code>${shown(value)}</code></dd>`)}</dl>`
        : html`<p class="quiet">${say("object.noPairs")}</p>`}
    </section>
  `;
}

// `neighbour(step)` is the address of the object before or after this one, if it is known.
export function ObjectDetails({ bucket, info, name, tab, versionId, query, may, neighbour, onClose, reload }) {
  const where = ["buckets", bucket, "objects"];
  const found = useLoad((signal) => call("GET", objectPath(bucket, name), { query: { versionId }, signal })
    .catch((error) => {
      if (error.status === 404 && error.code !== "OFFLINE") return null;
      throw error;
    }), []);
  const [dialog, setDialog] = useState(tab === "share" ? "share" : "");
  const [menu, setMenu] = useState(null);
  const [round, setRound] = useState(0);
  const box = useRef();
  const heading = useRef();
  const [fetchIt, busy, error] = useAction(() =>
    download({ bucket, key: name, versionId: versionId || null, purpose: "download" }, name.split("/").pop()));
  const changed = () => {
    found.reload();
    setRound((before) => before + 1);
    reload();
  };
  useEscape(onClose);
  useEffect(() => heading.current.focus({ preventScroll: true }), []);
  useEffect(() => {
    if (found.atMs && tab) box.current.querySelector("#part-" + tab)?.scrollIntoView();
  }, [found.atMs]);
  useEffect(() => {
    function pressed(event) {
      if (document.querySelector("dialog, :popover-open")) return;
      const isTyping = event.target.closest("input, textarea, select");
      // A key may come after the drawer has gone and before this listener has.
      const inside = box.current && box.current.contains(event.target);
      if (inside && !isTyping && event.key === "ArrowLeft" && neighbour(-1)) location.hash = neighbour(-1);
      else if (inside && !isTyping && event.key === "ArrowRight" && neighbour(1)) location.hash = neighbour(1);
    }
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
  async function remove() {
    const { failed, markers } = await deleteObjects(bucket, [{ key: name }]);
    if (failed.length) throw new APIError(0, failed[0].error, say("object.kept"));
    announceDeleted(bucket, 1, markers, reload);
    onClose();
    reload();
  }
  const close = () => setDialog("");
  const fresh = (object) => ({ key: object.etag + found.atMs, bucket, object, versionId, changed });
  const isOlder = Boolean(versionId);
  return html`
    <aside ref=${box} class="drawer" aria-label=${shown(name)}>
      <header>
        <${Icon} name=${typeOf(name)[0]} />
        <h2 ref=${heading} tabindex="-1" title=${shown(name)}>${shownBelow(name, folderOf(name))}</h2>
        ${[[-1, "chevronLeft", "previous"], [1, "chevronRight", "next"]].map(([step, icon, label]) => (neighbour(step)
          ? html`<a class="button bare only small" href=${neighbour(step)} aria-label=${say("object." + label)} title=${say("object." + label)}>
              <${Icon} name=${icon} /></a>`
          : html`<${IconButton} icon=${icon} kind="small" label=${say("object." + label)} disabled />`))}
        <${IconButton} icon="close" kind="small" label=${say("app.close")} onClick=${onClose} />
      </header>
      <div class="drawerBody">
        <${Loaded} of=${found} rows=${8}>
          ${(object) => object === null
            ? html`<p class="part">${say("object.gone")}</p>`
            : html`
              ${isSealed(object)
                ? html`<p class="part">${say("object.customerKey")}</p>`
                : html`<${Preview} key=${object.etag} bucket=${bucket} object=${object} versionId=${versionId} />`}
              <div class="drawerActions">
                ${!isSealed(object) && html`
                  <${Button} icon="download" kind="primary" busy=${busy} onClick=${fetchIt}>${say("objects.download")}<//>
                  <${Button} icon="share" onClick=${() => setDialog("share")}>${say("objects.share")}<//>
                `}
                ${may.write && !isOlder && html`
                  ${!isSealed(object) && html`<${Button} icon="rename" kind="hidePhone" aria-label=${say("objects.rename")} onClick=${() => setDialog("rename")}>${say("objects.rename")}<//>`}
                  <span class="fill"></span>
                  <${IconButton} icon="trash" kind="danger" label=${say("app.delete")} onClick=${() => setDialog("delete")} />
                  ${!isSealed(object) && html`<${IconButton} icon="more" label=${say("object.more")} onClick=${(event) => setMenu(event.currentTarget)} />`}
                `}
              </div>
              ${error && html`<${Problem} error=${error} />`}
              ${isOlder && html`
                <p class="part">${say("object.olderVersion")}${" "}
                  <a href=${link(where, query)}>${say("object.toCurrent")}</a></p>
              `}
              <${Facts} object=${object} />
            `}
        <//>
        <section class="part" id="part-versions">
          <${Versions} key=${round} bucket=${bucket} name=${name} versionId=${versionId} where=${where} query=${query} may=${may}
            changed=${changed} /></section>
        ${found.data && html`
          ${found.data.tags === null
            ? html`<section class="part"><h3>${say("object.tags")}</h3><p class="quiet">${say("object.tagsHidden")}</p></section>`
            : html`<${Editable} key=${"tags" + found.atMs} id="tags" title=${say("object.tags")} pairs=${Object.entries(found.data.tags)}
                mayEdit=${may.write} isOpen=${tab === "tags"}>${(done) => html`<${EditTags} ...${fresh(found.data)} onCancel=${done} />`}<//>`}
          <${Editable} key=${"metadata" + found.atMs} id="metadata" title=${say("object.metadata")} pairs=${Object.entries(found.data.metadata)}
            mayEdit=${may.write && !isOlder && !isSealed(found.data)} isOpen=${tab === "metadata"}>${(done) => html`<${EditType} ...${fresh(found.data)} onCancel=${done} />`}<//>
          ${(found.data.lock || !info || info.lockEnabled || tab === "lockTitle") && html`
            <section class="part" id="part-lockTitle"><details open=${Boolean(found.data.lock) || tab === "lockTitle"}><summary>${say("object.lockTitle")}</summary>
              <${Lock} ...${fresh(found.data)} /></details></section>
          `}
          <section class="part" id="part-code"><h3>${say("object.code")}</h3><${Code} ...${fresh(found.data)} /></section>
        `}
      </div>
      ${dialog === "delete" && html`
        <${Confirm} title=${say("objects.deleteOne", { name: shown(name) })} text=${info ? say("objects.deleteText." + info.versioning) : say("object.deleteText")}
          canUndo=${info && info.versioning === "Enabled"} act=${remove} label=${say("app.delete")} onClose=${close} />
      `}
      ${menu && html`<${Menu} label=${say("object.more")} at=${menu} onClose=${() => setMenu(null)} items=${[
        { label: say("objects.rename"), icon: "rename", act: () => setDialog("rename") },
        { label: say("objects.copyTo"), icon: "copy", act: () => setDialog("copy") },
        { label: say("objects.moveTo"), icon: "move", act: () => setDialog("move") },
      ]} />`}
      ${(dialog === "copy" || dialog === "move") && html`
        <${dialog === "copy" ? Copy : Move} bucket=${bucket} object=${name} onClose=${close} onDone=${() => {
          const isMove = dialog === "move";
          close();
          reload();
          if (isMove) onClose();
        }} />
      `}
      ${dialog === "share" && html`<${Share} bucket=${bucket} object=${name} versionId=${versionId} onClose=${close} />`}
      ${dialog === "rename" && html`
        <${Rename} bucket=${bucket} object=${name} onClose=${close} onDone=${(renamed) => {
          close();
          reload();
          go(where, { ...query, object: renamed });
        }} />
      `}
    </aside>
  `;
}
