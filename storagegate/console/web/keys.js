// Access keys: the list, one key, making one.

import { useState } from "preact/hooks";
import { call, has, rolesUpTo, segment, state } from "./api.js";
import { addTexts, age, date, say } from "./messages.js";
import { go, link } from "./router.js";
import {
  announce, Button, Check, Confirm, CopyButton, Dialog, Empty, Field, Form, html, Loaded, Page, Select,
  useLoad,
} from "./ui.js";

addTexts({
  "keys.new": "New key",
  "keys.find": "Find by key, account, address or note",
  "keys.empty": "No access key yet",
  "keys.emptyText": "A key lets a colleague or a program work with buckets.",
  "keys.emptyOwn": "You work with the root pair, or no key matches.",
  "keys.accessKey": "Access key",
  "keys.secretKey": "Secret key",
  "keys.account": "Account",
  "keys.role": "Role",
  "keys.roleHelp": "What it may administer here; objects are given by its policy.",
  "keys.role.none": "none: its own buckets and key",
  "keys.role.auditor": "auditor: sees every page, changes nothing",
  "keys.role.admin": "admin: changes everything but the root pair",
  "keys.policy": "Policy",
  "keys.bucket": "Buckets",
  "keys.bucketHelp": "A pattern such as logs-*; empty for all.",
  "keys.prefix": "Keys of objects",
  "keys.prefixHelp": "A pattern such as 2026/*; empty for all.",
  "keys.email": "E-mail",
  "keys.note": "Note",
  "keys.expires": "Expires",
  "keys.expiresHelp": "Empty for never.",
  "keys.created": "Created",
  "keys.lastUsed": "Last used",
  "keys.state": "State",
  "keys.active": "active",
  "keys.disabled": "disabled",
  "keys.expired": "expired",
  "keys.disable": "Disabled: refused everywhere within a second",
  "keys.reuse": "Issue it even if buckets still name its removed account or user",
  "keys.create": "Make the key",
  "keys.made": "The key is made",
  "keys.secretOnce": "The secret is shown this once. Keep it now.",
  "keys.done": "I have kept it",
  "keys.edit": "Change",
  "keys.changed": "The key is changed",
  "keys.remake": "Make the secret anew",
  "keys.remakeText": "Programs with the old secret are refused, and sessions of the key end.",
  "keys.revoke": "Revoke",
  "keys.revokeText": "Requests with it are refused at once. This cannot be undone.",
  "keys.revoked": "The key is revoked",
  "keys.judge": "What may it do?",
  "keys.judgeRun": "Judge",
  "keys.access": "Access",
  "keys.object": "Key of the object",
  "keys.allowed": "Allowed",
  "keys.refused": "Refused",
  "keys.oneBucket": "Bucket",
});

const POLICIES = ["readwrite", "readonly", "writeonly"];

const path = (key) => "keys/" + segment(key);

function stateOf(key) {
  if (key.disabled) return say("keys.disabled");
  if (key.expiresMs && key.expiresMs <= Date.now()) return say("keys.expired");
  return say("keys.active");
}

function localTime(ms) {
  if (!ms) return "";
  const at = new Date(ms);
  return new Date(ms - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}

function KeyFields({ values, change, error, policies = POLICIES }) {
  const wrong = (name) => (error && error.details && error.details.field === name ? error.message : "");
  const text = (name, help, more) => html`
    <${Field} label=${say("keys." + name)} help=${help && say(help)} error=${wrong(name)}
      value=${values[name]} onInput=${(event) => change({ [name]: event.target.value })} ...${more} />
  `;
  return html`
    <${Select} label=${say("keys.policy")} value=${values.policy}
      onChange=${(event) => change({ policy: event.target.value })}
      options=${policies.map((name) => [name, name])} />
    <${Select} label=${say("keys.role")} help=${say("keys.roleHelp")} value=${values.role}
      onChange=${(event) => change({ role: event.target.value })}
      options=${rolesUpTo(state.session.role).map((role) => [role, say("keys.role." + role)])} />
    ${text("bucket", "keys.bucketHelp")} ${text("prefix", "keys.prefixHelp")}
    <${Field} label=${say("keys.expires")} help=${say("keys.expiresHelp")} error=${wrong("expiresMs")}
      type="datetime-local" value=${localTime(values.expiresMs)}
      onChange=${(event) => change({ expiresMs: event.target.value ? +new Date(event.target.value) : 0 })} />
    ${text("email", "", { type: "email" })} ${text("note")}
  `;
}

function Secret({ made, onClose }) {
  return html`
    <${Dialog} title=${say("keys.made")}>
      <p>${say("keys.secretOnce")}</p>
      <dl class="facts">
        ${["accessKey", "secretKey"].map((name) => html`
          <dt>${say("keys." + name)}</dt>
          <dd><code id=${name}>${made[name]}</code><${CopyButton} text=${made[name]} /></dd>
        `)}
      </dl>
      <div class="buttons"><${Button} kind="primary" onClick=${onClose}>${say("keys.done")}<//></div>
    <//>
  `;
}

function NewKey({ onClose, onMade }) {
  const [values, setValues] = useState({
    account: "", policy: "readwrite", role: "none", bucket: "", prefix: "", email: "", note: "", expiresMs: 0,
    reuse: false,
  });
  const change = (some) => setValues((before) => ({ ...before, ...some }));
  return html`
    <${Dialog} title=${say("keys.new")} onClose=${onClose}>
      <${Form} submit=${async () => onMade(await call("POST", "keys", { body: values }))}
        label=${say("keys.create")} onCancel=${onClose}>
        ${(error) => html`
          <${Field} label=${say("keys.account")} required autofocus value=${values.account}
            onInput=${(event) => change({ account: event.target.value })} />
          <${KeyFields} values=${values} change=${change} error=${error} />
          ${(values.reuse || (error && error.code === "FAILED_PRECONDITION")) && html`
            <${Check} label=${say("keys.reuse")} checked=${values.reuse}
              onChange=${(event) => change({ reuse: event.target.checked })} />
          `}
        `}
      <//>
    <//>
  `;
}

function EditKey({ of, onClose, onChanged }) {
  const [values, setValues] = useState({});
  const all = { ...of, ...values };
  const change = (some) => setValues((before) => ({ ...before, ...some }));
  return html`
    <${Dialog} title=${of.accessKey} onClose=${onClose}>
      <${Form} submit=${async () => onChanged(await call("PATCH", path(of.accessKey), { body: values }))}
        label=${say("app.save")} onCancel=${onClose}>
        ${(error) => html`
          <${Check} label=${say("keys.disable")} checked=${all.disabled}
            onChange=${(event) => change({ disabled: event.target.checked })} />
          <${KeyFields} values=${all} change=${change} error=${error} />
        `}
      <//>
    <//>
  `;
}

function Judge({ of }) {
  const [values, setValues] = useState({ access: "read", bucket: "", key: "" });
  const [verdict, setVerdict] = useState(null);
  const change = (some) => setValues((before) => ({ ...before, ...some }));
  const judge = async () => setVerdict(await call("POST", path(of) + "/judge", { body: values }));
  return html`
    <section class="card">
      <h2>${say("keys.judge")}</h2>
      <${Form} submit=${judge} label=${say("keys.judgeRun")} kind="">
        <${Select} label=${say("keys.access")} value=${values.access}
          onChange=${(event) => change({ access: event.target.value })}
          options=${["read", "write", "list", "admin"].map((name) => [name, name])} />
        <${Field} label=${say("keys.oneBucket")} required value=${values.bucket}
          onInput=${(event) => change({ bucket: event.target.value })} />
        <${Field} label=${say("keys.object")} value=${values.key}
          onInput=${(event) => change({ key: event.target.value })} />
      <//>
      <p role="status">${verdict && html`
        <strong class=${verdict.allowed ? "good" : "bad"}>
          ${say(verdict.allowed ? "keys.allowed" : "keys.refused")}</strong>: ${verdict.why}
      `}</p>
    </section>
  `;
}

function KeyDetails({ name }) {
  const found = useLoad((signal) => call("GET", path(name), { signal }), [name]);
  const [dialog, setDialog] = useState(null);
  const [made, setMade] = useState(null);
  const close = () => setDialog(null);
  const actions = html`
    <${Button} icon="settings" onClick=${() => setDialog("edit")}>${say("keys.edit")}<//>
    <${Button} icon="key" onClick=${() => setDialog("remake")}>${say("keys.remake")}<//>
    <${Button} icon="trash" kind="danger" onClick=${() => setDialog("revoke")}>${say("keys.revoke")}<//>
  `;
  async function remake() {
    setMade(await call("PATCH", path(name), { body: { newSecret: true } }));
    close();
  }
  async function revoke() {
    await call("DELETE", path(name));
    announce(say("keys.revoked"));
    go(["keys"]);
  }
  const facts = ["account", "role", "policy", "bucket", "prefix", "email", "note"];
  return html`
    <${Page} title=${name} actions=${has("admin") && found.data && actions}>
      <p><a href=${link(["keys"])}>${say("nav.keys")}</a></p>
      <${Loaded} of=${found}>
        ${(key) => html`
          <dl class="facts">
            <dt>${say("keys.state")}</dt><dd>${stateOf(key)}</dd>
            ${facts.filter((each) => key[each]).map((each) => html`
              <dt>${say("keys." + each)}</dt><dd>${key[each]}</dd>
            `)}
            <dt>${say("keys.created")}</dt><dd>${date(key.createdMs)}</dd>
            <dt>${say("keys.lastUsed")}</dt><dd>${date(key.lastUsedMs)}</dd>
            <dt>${say("keys.expires")}</dt><dd>${date(key.expiresMs)}</dd>
          </dl>
          <${Judge} of=${name} />
          ${dialog === "edit" && html`
            <${EditKey} of=${key} onClose=${close} onChanged=${(changed) => {
              close();
              found.change(() => changed);
              announce(say("keys.changed"));
            }} />
          `}
        `}
      <//>
      ${dialog === "remake" && html`
        <${Confirm} title=${say("keys.remake")} text=${say("keys.remakeText")} act=${remake}
          label=${say("keys.remake")} onClose=${close} />
      `}
      ${dialog === "revoke" && html`
        <${Confirm} title=${say("keys.revoke")} text=${say("keys.revokeText")} name=${name} act=${revoke}
          label=${say("keys.revoke")} onClose=${close} />
      `}
      ${made && html`<${Secret} made=${made} onClose=${() => setMade(null)} />`}
    <//>
  `;
}

function KeyTable({ items }) {
  return html`
    <div class="scroll" tabindex="0">
      <table>
        <thead><tr>
          ${["accessKey", "account", "role", "policy", "lastUsed", "state"].map((name) => html`
            <th scope="col">${say("keys." + name)}</th>
          `)}
        </tr></thead>
        <tbody>
          ${items.map((key) => html`
            <tr key=${key.accessKey}>
              <th scope="row"><a href=${link(["keys", key.accessKey])}>${key.accessKey}</a>
                ${key.note && html`<small>${key.note}</small>`}</th>
              <td>${key.account}</td><td>${key.role}</td><td>${key.policy}</td>
              <td title=${date(key.lastUsedMs)}>${key.lastUsedMs ? age(key.lastUsedMs) : say("app.never")}</td>
              <td>${stateOf(key)}</td>
            </tr>
          `)}
        </tbody>
      </table>
    </div>
  `;
}

export default function Keys({ route }) {
  const [, name] = route.path;
  return name === undefined
    ? html`<${KeyList} find=${route.query.find || ""} />`
    : html`<${KeyDetails} key=${name} name=${name} />`;
}

function KeyList({ find }) {
  const found = useLoad((signal) => call("GET", "keys", { query: { find }, signal }), [find]);
  const [open, setOpen] = useState(false);
  const [made, setMade] = useState(null);
  async function more() {
    const page = await call("GET", "keys", { query: { find, after: found.data.next } });
    found.change((before) => ({ items: [...before.items, ...page.items], next: page.next }));
  }
  const add = html`<${Button} icon="add" kind="primary" onClick=${() => setOpen(true)}>${say("keys.new")}<//>`;
  const mayAdd = has("admin");
  return html`
    <${Page} title=${say("nav.keys")} actions=${mayAdd && add}>
      <input type="search" aria-label=${say("keys.find")} placeholder=${say("keys.find")} value=${find}
        onInput=${(event) => go(["keys"], { find: event.target.value }, true)} />
      <${Loaded} of=${found} isEmpty=${(page) => !page.items.length} empty=${html`
        <${Empty} title=${say("keys.empty")} text=${say(mayAdd ? "keys.emptyText" : "keys.emptyOwn")}>
          ${find ? html`<a class="button" href=${link(["keys"])}>${say("app.all")}</a>` : mayAdd && add}<//>
      `}>
        ${(page) => html`
          <${KeyTable} items=${page.items} />
          ${page.next && html`<${Button} onClick=${more}>${say("app.more")}<//>`}
        `}
      <//>
      ${open && html`
        <${NewKey} onClose=${() => setOpen(false)} onMade=${(key) => {
          setOpen(false);
          setMade(key);
          found.reload();
        }} />
      `}
      ${made && html`<${Secret} made=${made} onClose=${() => setMade(null)} />`}
    <//>
  `;
}
