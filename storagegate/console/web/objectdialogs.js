// Short forms about an object: a link to it, a copy, another name, a new folder.

import { useEffect, useRef, useState } from "preact/hooks";
import { APIError, call } from "./api.js";
import { addTexts, date, say } from "./messages.js";
import { base, objectPath } from "./objectactions.js";
import { folderOf, shown } from "./objectnames.js";
import { TargetFields } from "./objecttree.js";
import { announce, Button, Check, copyText, Dialog, Field, Form, html, Icon, Problem, Select, SettingLink, useLoad } from "./ui.js";

addTexts({
  "object.expires": "Valid for",
  "object.expires.900": "15 minutes",
  "object.expires.3600": "1 hour",
  "object.expires.86400": "1 day",
  "object.expires.259200": "3 days",
  "object.expires.604800": "7 days",
  "object.saves": "Download instead of opening in the browser",
  "object.shareText": "Everyone who has the link can read this object, without a key, until the link expires.",
  "object.copyLink": "Copy link",
  "object.done": "Done",
  "object.makeLink": "Create link",
  "object.link": "Works without signing in until {date}",
  "object.shareTitle": "Share {name}",
  "object.copyTitle": "Copy {name}",
  "object.moveTitle": "Move {name}",
  "object.renameTitle": "Rename {name}",
  "object.newName": "New name",
  "object.toKey": "To key",
  "object.toKeyHelp": "The whole key, with its folders.",
  "object.copy": "Copy",
  "object.move": "Move",
  "object.renameLabel": "Rename",
  "object.copied": "Copied to {name}",
  "object.moved": "Moved to {name}",
  "object.folderThere": "The folder {name} exists already",
  "object.folderName": "Name of the folder",
  "object.createFolder": "Create folder",
});

const EXPIRIES = [900, 3600, 86400, 259200, 604800];

const shownIn = (error) => (error && error.isShown ? error.message : "");

const lastOf = (key) => shown(key.split("/").pop());

export const Warning = ({ text }) => html`
  <p class="warning" role="alert"><${Icon} name="warning" /><span>${text}<${SettingLink} name="s3Url" /></span></p>
`;

export function Share({ bucket, object, versionId, onClose }) {
  const [expires, setExpires] = useState(86400);
  const [isSaved, setIsSaved] = useState(false);
  const [made, setMade] = useState(null);
  // What S3 lacks is said before anything is filled in.
  const endpoint = useLoad((signal) => call("GET", "endpoint", { signal }), []);
  const copied = useRef();
  useEffect(() => {
    if (copied.current) copied.current.querySelector(".primary").focus();
  }, [made]);
  const copy = async () => await copyText(made.url) && onClose();
  async function make() {
    const body = { key: object, expiresSeconds: expires, download: isSaved, versionId: versionId || null };
    setMade(await call("POST", base(bucket) + "/share", { body }));
  }
  return html`
    <${Dialog} title=${say("object.shareTitle", { name: lastOf(object) })} onClose=${onClose}>
      ${!made && html`<${Form} submit=${make} label=${say("object.makeLink")} onCancel=${onClose} disabled=${endpoint.error !== null}>
        <p>${say("object.shareText")}</p>
        ${endpoint.error && html`<${Problem} error=${endpoint.error} />`}
        ${endpoint.data && endpoint.data.warning && html`<${Warning} text=${endpoint.data.warning} />`}
        <${Select} label=${say("object.expires")} name="expires" value=${expires}
          onChange=${(event) => setExpires(+event.target.value)}
          options=${EXPIRIES.map((seconds) => [seconds, say("object.expires." + seconds)])} />
        <${Check} label=${say("object.saves")} checked=${isSaved}
          onChange=${(event) => setIsSaved(event.target.checked)} />
      <//>`}
      ${made && html`
        ${made.warning && html`<${Warning} text=${made.warning} />`}
        <div class="code"><header><span>${say("object.link", { date: date(made.expiresMs) })}</span></header>
          <pre id="link" tabindex="0">${made.url}</pre></div>
        <form ref=${copied}><div class="buttons">
          <${Button} kind=${navigator.clipboard ? "" : "primary"} onClick=${onClose}>${say("object.done")}<//>
          ${navigator.clipboard && html`<${Button} kind="primary" icon="copy" onClick=${copy}>${say("object.copyLink")}<//>`}
        </div></form>
      `}
    <//>
  `;
}

async function copyTo(bucket, object, body) {
  try {
    await call("POST", objectPath(bucket, object) + "/copy", { body });
  } catch (error) {
    // The field of the new name shows it.
    error.isShown = error.status === 400 || error.status === 409;
    throw error;
  }
  announce(say(body.move ? "object.moved" : "object.copied", { name: shown(body.toKey) }));
}

function CopyForm({ bucket, object, move, onClose, onDone }) {
  const [toBucket, setToBucket] = useState(bucket);
  const [toKey, setToKey] = useState(object);
  return html`
    <${Dialog} title=${say(move ? "object.moveTitle" : "object.copyTitle", { name: lastOf(object) })} onClose=${onClose}>
      <${Form} label=${say(move ? "object.move" : "object.copy")} onCancel=${onClose}
        disabled=${toBucket === bucket && toKey === object}
        submit=${async () => {
          await copyTo(bucket, object, { toBucket, toKey, move });
          onDone();
        }}>
        ${(error) => html`
          <${TargetFields} bucket=${toBucket} changeBucket=${setToBucket} own=${object.split("/").pop()} label=${say("object.toKey")} help=${say("object.toKeyHelp")} name="toKey"
            required autofocus value=${toKey} error=${shownIn(error)} change=${setToKey} />
        `}
      <//>
    <//>
  `;
}

export const Copy = (given) => html`<${CopyForm} ...${given} move=${false} />`;

export const Move = (given) => html`<${CopyForm} ...${given} move />`;

export function Rename({ bucket, object, onClose, onDone }) {
  const [typed, setTyped] = useState(object.split("/").pop());
  async function submit() {
    if (typed.includes("/")) throw Object.assign(new APIError(0, "", say("object.noSlash")), { isShown: true });
    await copyTo(bucket, object, { toKey: folderOf(object) + typed, move: true });
    onDone(folderOf(object) + typed);
  }
  return html`
    <${Dialog} title=${say("object.renameTitle", { name: lastOf(object) })} onClose=${onClose}>
      <${Form} label=${say("object.renameLabel")} onCancel=${onClose} submit=${submit}
        disabled=${!typed || typed === object.split("/").pop()}>
        ${(error) => html`<${Field} label=${say("object.newName")} name="name" required autofocus value=${typed}
          error=${shownIn(error)} onInput=${(event) => setTyped(event.target.value)} />`}
      <//>
    <//>
  `;
}

// A folder is an object whose key ends with a slash.
export function NewFolder({ bucket, prefix, onClose, onDone }) {
  const [typed, setTyped] = useState("");
  async function submit() {
    const key = prefix + typed.replace(/\/+$/, "") + "/";
    try {
      await call("PUT", objectPath(bucket, key), { raw: new Blob([]), headers: { "If-None-Match": "*" } });
    } catch (error) {
      if (error.status === 412) error.message = say("object.folderThere", { name: shown(typed) });
      error.isShown = error.status === 400 || error.status === 412;
      throw error;
    }
    onDone(key);
  }
  return html`
    <${Dialog} title=${say("objects.newFolder")} onClose=${onClose}>
      <${Form} label=${say("object.createFolder")} onCancel=${onClose} submit=${submit} disabled=${!typed.trim()}>
        ${(error) => html`<${Field} label=${say("object.folderName")} name="folder" required autofocus value=${typed}
          error=${shownIn(error)} onInput=${(event) => setTyped(event.target.value)} />`}
      <//>
    <//>
  `;
}
