// What changes of an object: type, metadata, tags, retention and legal hold.

import { useState } from "preact/hooks";
import { call } from "./api.js";
import { objectPath } from "./objectactions.js";
import { date, localTime, say } from "./messages.js";
import { Pairs } from "./pairs.js";
import { announce, Check, Field, Form, html, Icon, Select } from "./ui.js";

const isSame = (pairs, before) => JSON.stringify(pairs.filter(([name]) => name)) === JSON.stringify(before);

export function EditType({ bucket, object, changed, onCancel }) {
  const [type, setType] = useState(object.contentType);
  const before = Object.entries(object.metadata);
  const [pairs, setPairs] = useState(before);
  async function save() {
    const metadata = Object.fromEntries(pairs.filter(([name]) => name));
    await call("PATCH", objectPath(bucket, object.key), { body: { contentType: type, metadata } });
    announce(say("object.changed"));
    changed();
  }
  return html`
    <${Form} submit=${save} label=${say("object.saveMetadata")} onCancel=${onCancel}
      disabled=${type === object.contentType && isSame(pairs, before)}>
      <${Field} label=${say("object.type")} name="contentType" value=${type}
        onInput=${(event) => setType(event.target.value)} />
      <${Pairs} label=${say("object.metadata")} pairs=${pairs} change=${setPairs} />
    <//>
  `;
}

export function EditTags({ bucket, object, versionId, changed, onCancel }) {
  const before = Object.entries(object.tags);
  const [pairs, setPairs] = useState(before);
  async function save() {
    const Tag = pairs.filter(([name]) => name).map(([Key, Value]) => ({ Key, Value }));
    const path = objectPath(bucket, object.key) + "/settings/tags";
    await call("PUT", path, { query: { versionId }, body: { TagSet: { Tag } } });
    announce(say("object.changed"));
    changed();
  }
  return html`
    <${Form} submit=${save} label=${say("object.saveTags")} onCancel=${onCancel} disabled=${isSame(pairs, before)}>
      <${Pairs} label=${say("object.tags")} pairs=${pairs} change=${setPairs} />
    <//>
  `;
}

const MODES = ["", "GOVERNANCE", "COMPLIANCE"];

export function Lock({ bucket, object, versionId, changed }) {
  const lock = object.lock || {};
  const [mode, setMode] = useState(lock.mode || "");
  const [until, setUntil] = useState(localTime(lock.untilMs));
  const [bypass, setBypass] = useState(false);
  const path = objectPath(bucket, object.key) + "/settings/";
  async function put(name, body) {
    await call("PUT", path + name, { query: { versionId, bypass }, body });
    announce(say("object.changed"));
    changed();
  }
  const retention = () => {
    const at = until && new Date(until).toISOString().replace(/\.\d+/, "");
    return put("retention", mode ? { Mode: mode, RetainUntilDate: at } : {});
  };
  return html`
    <p>${lock.mode
      ? say("object.locked", { mode: lock.mode, date: date(lock.untilMs) })
      : say("object.notLocked")}${" "}${lock.legalHold && html`<strong>${say("object.held")}</strong>`}</p>
    <${Form} submit=${retention} label=${say("object.saveRetention")}
      disabled=${mode === (lock.mode || "") && until === localTime(lock.untilMs)}>
      <${Select} label=${say("object.mode")} help=${say("object.modeHelp")} name="mode" value=${mode}
        onChange=${(event) => setMode(event.target.value)}
        options=${MODES.map((each) => [each, each || say("app.none")])} />
      ${mode === "COMPLIANCE" && lock.mode !== mode && html`<p class="warning" role="alert"><${Icon} name="warning" /> ${say("object.complianceAsks")}</p>`}
      ${mode && html`
        <${Field} label=${say("object.until")} type="datetime-local" name="until" required value=${until}
          onInput=${(event) => setUntil(event.target.value)} />
      `}
      <${Check} label=${say("object.bypass")} checked=${bypass}
        onChange=${(event) => setBypass(event.target.checked)} />
    <//>
    <${Form} submit=${() => put("legalHold", { Status: lock.legalHold ? "OFF" : "ON" })}
      label=${say(lock.legalHold ? "object.release" : "object.hold")} />
  `;
}
