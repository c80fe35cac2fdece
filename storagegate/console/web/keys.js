// Access keys: the list, and one key. Making one is fetched when it is wanted.

import { useEffect, useState } from "preact/hooks";
import { call, has, rolesUpTo, segment, state } from "./api.js";
import { localTime, Secret } from "./keysecret.js";
import { addTexts, age, date, say } from "./messages.js";
import { go, link } from "./router.js";
import {
  announce, Button, Check, Confirm, Crumbs, Dialog, Empty, Field, Form, html, Icon, Loaded, Page, Search, Select,
  useLoad,
} from "./ui.js";

addTexts({
  "keys.new": "New key",
  "keys.find": "Find a key, account or note",
  "keys.empty": "No access keys yet",
  "keys.emptyText": "A key lets a colleague or a program use buckets.",
  "keys.emptyOwn": "You work with the root pair, or no key matches.",
  "keys.accessKey": "Access key",
  "keys.secretKey": "Secret key",
  "keys.account": "Account",
  "keys.role": "Role",
  "keys.roleHelp": "What the key may administer in this console; the policy limits objects.",
  "keys.role.none": "none: its own buckets and key",
  "keys.role.auditor": "auditor: sees every page, changes nothing",
  "keys.role.admin": "admin: everything but the root pair",
  "keys.policy": "Policy",
  "keys.reaches": "Reaches",
  "keys.everything": "everything of its account",
  "keys.bucket": "Buckets",
  "keys.bucketHelp": "A pattern such as logs-*; empty for all.",
  "keys.prefix": "Object keys",
  "keys.prefixHelp": "A pattern such as 2026/*; empty for all.",
  "keys.email": "E-mail",
  "keys.note": "Note",
  "keys.expires": "Expires",
  "keys.expiresHelp": "Empty for never.",
  "keys.created": "Created",
  "keys.lastUsed": "Last used",
  "keys.state": "State",
  "keys.active": "Active",
  "keys.disabled": "Disabled",
  "keys.expired": "Expired",
  "keys.disable": "Disabled: refused everywhere within a second",
  "keys.edit": "Edit…",
  "keys.editTitle": "Edit {name}",
  "keys.changed": "The key is changed",
  "keys.remake": "Rotate secret",
  "keys.remakeText": "Programs with the old secret are refused, and sessions of the key end.",
  "keys.revoke": "Revoke",
  "keys.revokeText": "Requests with this key are refused at once. This cannot be undone.",
  "keys.revoked": "The key is revoked",
  "keys.details": "Details",
  "keys.judge": "Check an access",
  "keys.judgeRun": "Check",
  "keys.access": "Access",
  "keys.object": "Object key",
  "keys.allowed": "Allowed",
  "keys.refused": "Refused",
  "keys.oneBucket": "Bucket",
});

const POLICIES = ["readwrite", "readonly", "writeonly"];

const path = (key) => "keys/" + segment(key);

function State({ of }) {
  const isOver = of.expiresMs && of.expiresMs <= Date.now();
  const name = of.disabled ? "disabled" : isOver ? "expired" : "active";
  return html`<span class=${name === "active" ? "dot ok" : "dot"}></span>${say("keys." + name)}`;
}

const reachOf = (key) => (key.bucket || key.prefix ? (key.bucket || "*") + "/" + (key.prefix || "*") : "");

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

function EditKey({ of, onClose, onChanged }) {
  const [values, setValues] = useState({});
  const all = { ...of, ...values };
  const change = (some) => setValues((before) => ({ ...before, ...some }));
  return html`
    <${Dialog} title=${say("keys.editTitle", { name: of.accessKey })} onClose=${onClose}>
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
    <${Button} icon="settings" kind="shrinks" aria-label=${say("keys.edit")} onClick=${() => setDialog("edit")}>${say("keys.edit")}<//>
    <${Button} icon="retry" onClick=${() => setDialog("remake")}>${say("keys.remake")}<//>
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
  const facts = ["account", "role", "policy", "email", "note"];
  return html`
    <${Page} title=${name} actions=${has("admin") && found.data && actions}
      crumbs=${html`<${Crumbs} steps=${[[say("nav.keys"), link(["keys"])], [name, ""]]} />`}>
      <${Loaded} of=${found}>
        ${(key) => html`
          <div class="columns">
          <section class="card"><h2>${say("keys.details")}</h2><dl class="facts">
            <dt>${say("keys.state")}</dt><dd><${State} of=${key} /></dd>
            <dt>${say("keys.reaches")}</dt><dd>${reachOf(key) ? html`<code>${reachOf(key)}</code>` : say("keys.everything")}</dd>
            ${facts.filter((each) => key[each]).map((each) => html`
              <dt>${say("keys." + each)}</dt><dd>${key[each]}</dd>
            `)}
            <dt>${say("keys.created")}</dt><dd>${date(key.createdMs)}</dd>
            <dt>${say("keys.lastUsed")}</dt><dd>${date(key.lastUsedMs)}</dd>
            <dt>${say("keys.expires")}</dt><dd>${date(key.expiresMs)}</dd>
          </dl></section>
          <${Judge} of=${name} />
          </div>
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
  const columns = ["accessKey", "account", "policy", "reaches", "role", "lastUsed", "expires", "state"];
  return html`
    <div class="scroll edge cards" tabindex="0">
      <table>
        <thead><tr>${columns.map((name) => html`<th scope="col">${say("keys." + name)}</th>`)}</tr></thead>
        <tbody>
          ${items.map((key) => html`
            <tr key=${key.accessKey}>
              <th scope="row"><a class="name" href=${link(["keys", key.accessKey])}><${Icon} name="key" /><code>${key.accessKey}</code></a>
                ${key.note && html`<small>${key.note}</small>`}</th>
              <td>${key.account}</td><td class="quiet">${key.policy}</td>
              <td>${reachOf(key) ? html`<code>${reachOf(key)}</code>` : html`<span class="quiet">${say("keys.everything")}</span>`}</td>
              <td class="quiet">${key.role}</td>
              <td title=${date(key.lastUsedMs)}>${key.lastUsedMs ? age(key.lastUsedMs) : say("app.never")}</td>
              <td class="quiet hidePhone">${date(key.expiresMs)}</td>
              <td><${State} of=${key} /></td>
            </tr>
          `)}
        </tbody>
      </table>
    </div>
  `;
}

// The page of a new key, which is fetched when it is first shown.
function NewKey() {
  const [module, setModule] = useState(null);
  useEffect(() => {
    import("./keynew.js").then(async (found) => {
      await found.styled;
      setModule(found);
    }, (error) => announce(error.message));
  }, []);
  return module && html`<${module.NewKey} />`;
}

export default function Keys({ route }) {
  const [, name] = route.path;
  if (name === undefined) return html`<${KeyList} find=${route.query.find || ""} isNew=${Boolean(route.query.make)} />`;
  return html`<${KeyDetails} key=${name} name=${name} />`;
}

function KeyList({ find, isNew }) {
  const found = useLoad((signal) => call("GET", "keys", { query: { find }, signal }), [find]);
  async function more() {
    const page = await call("GET", "keys", { query: { find, after: found.data.next } });
    found.change((before) => ({ items: [...before.items, ...page.items], next: page.next }));
  }
  const add = html`<a class="button primary" href=${link(["keys"], { make: "1" })}><${Icon} name="add" />${say("keys.new")}</a>`;
  const mayAdd = has("admin");
  if (isNew && mayAdd) return html`
    <${Page} title=${say("keys.new")} crumbs=${html`<${Crumbs} steps=${[[say("nav.keys"), link(["keys"])], [say("keys.new"), ""]]} />`}>
      <${NewKey} /><//>`;
  const isEmpty = found.data && !found.data.items.length;
  return html`
    <${Page} title=${say("nav.keys")} actions=${mayAdd && !isEmpty && add} tools=${html`
      <${Search} label=${say("keys.find")} value=${find}
        onInput=${(event) => go(["keys"], { find: event.target.value }, true)} />`}>
      <${Loaded} of=${found} isEmpty=${(page) => !page.items.length} empty=${html`
        <${Empty} title=${say("keys.empty")} text=${say(mayAdd ? "keys.emptyText" : "keys.emptyOwn")}>
          ${find ? html`<a class="button" href=${link(["keys"])}>${say("app.all")}</a>` : mayAdd && add}<//>
      `}>
        ${(page) => html`
          <${KeyTable} items=${page.items} />
          ${page.next && html`<${Button} onClick=${more}>${say("app.more")}<//>`}
        `}
      <//>
    <//>
  `;
}
