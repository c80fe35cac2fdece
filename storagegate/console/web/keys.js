// Access keys: the list, and one key beside it. Making one is fetched when it is wanted.

import { useEffect, useState } from "preact/hooks";
import { AccessCheck } from "./accesscheck.js";
import { call, has, rolesUpTo, segment, state } from "./api.js";
import { ClientSetup, lastUse, Secret } from "./keysecret.js";
import { Reach } from "./keyreach.js";
import { Menu } from "./menu.js";
import { addTexts, age, date, localTime, number, say } from "./messages.js";
import { go, link } from "./router.js";
import {
  announce, Button, Check, Confirm, CopyButton, Crumbs, Dialog, Empty, Field, Form, Heads, html, Icon, IconButton, Loaded,
  Page, Search, Select, useAction, useEscape, useLoad,
} from "./ui.js";

addTexts({
  "keys.new": "New key",
  "keys.find": "Find a key, account or note",
  "keys.empty": "No access keys yet",
  "keys.emptyText": "A key lets a colleague or a program use buckets.",
  "keys.emptyOwn": "You work with the root pair, or no key matches.",
  "keys.account": "Account",
  "keys.role": "Role",
  "keys.roleHelp": "What the key may administer in this console; the policy limits objects.",
  "keys.role.none": "none: its own buckets and key",
  "keys.role.auditor": "auditor: sees every page, changes nothing",
  "keys.role.admin": "admin: everything but the root pair",
  "keys.policy": "Policy",
  "keys.reaches": "Reaches",
  "keys.everything": "every bucket of {account}",
  "keys.may.readonly": "Read",
  "keys.may.readwrite": "Read and write",
  "keys.may.writeonly": "Write",
  "keys.one": "1 key",
  "keys.many": "{count} keys",
  "keys.rootPair": "The root key pair is not listed",
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
  "keys.state": "Status",
  "keys.active": "Active",
  "keys.disabled": "Disabled",
  "keys.expired": "Expired",
  "keys.expiring": "Expires in {count} d",
  "keys.disable": "Disabled: refused everywhere within a second",
  "keys.edit": "Edit…",
  "keys.editTitle": "Edit {name}",
  "keys.changed": "The key is changed",
  "keys.remake": "Rotate secret",
  "keys.remakeMore": "Rotate secret…",
  "keys.remakeTitle": "Rotate the secret of {name}",
  "keys.remakeText": "Programs with the old secret are refused, and sessions of the key end.",
  "keys.revoke": "Revoke",
  "keys.revokeMore": "Revoke…",
  "keys.turnOff": "Disable",
  "keys.turnOn": "Enable",
  "keys.isOff": "The key is disabled",
  "keys.isOn": "The key is enabled",
  "keys.key": "Key",
  "keys.menu": "Actions for {name}",
  "keys.preset": "Preset",
  "keys.preset.readonly": "Read-only",
  "keys.preset.readwrite": "App",
  "keys.preset.writeonly": "Backup",
  "keys.preset.auditor": "Auditor",
  "keys.preset.admin": "Admin",
  "keys.ofUser": "User {name}",
  "keys.ofKey": "Service key",
  "keys.all": "All {count}",
  "keys.allActive": "Active {count}",
  "keys.attention": "Needs attention {count}",
  "keys.noneMatch": "No key matches",
  "keys.setup": "Client configuration",
  "keys.setupText": "The secret is shown only when the key is created. Rotate it to get a new one.",
  "keys.revokeText": "Requests with this key are refused at once. This cannot be undone.",
  "keys.revoked": "The key is revoked",
  "keys.details": "Details",
});

const POLICIES = ["readwrite", "readonly", "writeonly"];

const path = (key) => "keys/" + segment(key);

const DAY_MS = 86400000;
const SOON_DAYS = 14;

function stateOf(key) {
  if (key.disabled) return ["disabled", ""];
  if (!key.expiresMs) return ["active", "ok"];
  const days = Math.ceil((key.expiresMs - Date.now()) / DAY_MS);
  if (days <= 0) return ["expired", "gone"];
  return days <= SOON_DAYS ? ["expiring", "warn", days] : ["active", "ok"];
}

function State({ of }) {
  const [name, dot, count] = stateOf(of);
  return html`<span class=${"dot " + dot}></span>${say("keys." + name, { count })}`;
}

const FILTERS = {
  all: () => true,
  allActive: (key) => ["active", "expiring"].includes(stateOf(key)[0]),
  attention: (key) => ["expired", "expiring"].includes(stateOf(key)[0]),
};

function presetOf(key) {
  if (key.user) return say("keys.ofUser", { name: key.user });
  if (key.parent) return say("keys.ofKey");
  return say("keys.preset." + (key.role === "none" ? key.policy : key.role));
}

const reachOf = (key) => (key.prefix ? (key.bucket || "*") + "/" + key.prefix : key.bucket);

// "Read invoices/2026/*"
const Reaches = ({ of }) => html`
  ${say("keys.may." + of.policy)} ${reachOf(of) ? html`<code>${reachOf(of)}</code>` : say("keys.everything", { account: of.account })}
`;

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

// One key beside the list: what it reaches, what can be done with it, facts, a check, and configuration.
function KeyDrawer({ name, act, onClose, revision }) {
  const found = useLoad((signal) => call("GET", path(name), { signal }), [name, revision]);
  useEscape(onClose);
  const facts = (key) => [
    ["accessKey", html`<code>${key.accessKey}</code> <${CopyButton} text=${key.accessKey} />`],
    ["account", key.account], ["preset", presetOf(key)], ["policy", key.policy], ["role", say("keys.role." + key.role)],
    ["reaches", html`<${Reaches} of=${key} />`],
    ["created", date(key.createdMs)],
    ["lastUsed", html`<span title=${date(key.lastUsedMs)}>${key.lastUsedMs ? age(key.lastUsedMs) : say("app.never")}</span>`],
    ["expires", date(key.expiresMs)], ["email", key.email], ["note", key.note],
  ];
  return html`
    <aside class="drawer" aria-label=${name}>
      <header><${Icon} name="key" /><h2>${(found.data && found.data.note) || name}</h2>
        ${found.data && html`<span><${State} of=${found.data} /></span>`}
        <${IconButton} icon="close" kind="small" label=${say("app.close")} onClick=${onClose} /></header>
      <div class="drawerBody"><${Loaded} of=${found}>
        ${(key) => html`
          ${has("auditor") && html`<section class="part"><${Reach} values=${key} /></section>`}
          ${!has("admin") && state.session?.issuer && html`<div class="part buttons">
            <${Button} icon="trash" kind="danger" onClick=${() => act("revoke", key)}>${say("keys.revokeMore")}<//></div>`}
          ${has("admin") && html`<div class="part buttons">
            <${Button} icon="rename" onClick=${() => act("edit", key)}>${say("keys.edit")}<//>
            <${Button} icon="retry" onClick=${() => act("remake", key)}>${say("keys.remakeMore")}<//>
            <${Button} icon="trash" kind="danger" onClick=${() => act("revoke", key)}>${say("keys.revokeMore")}<//>
          </div>`}
          <section class="part"><h3>${say("keys.details")}</h3><dl class="facts">
            ${facts(key).filter(([, value]) => value).map(([each, value]) => html`<dt>${say("keys." + each)}</dt><dd>${value}</dd>`)}
          </dl></section>
          <section class="part"><h3>${say("check.title")}</h3><${AccessCheck} key=${name} keys=${[[name]]} /></section>
          <section class="part"><h3>${say("keys.setup")}</h3><p class="quiet">${say("keys.setupText")}</p>
            <${ClientSetup} of=${key} /></section>
        `}
      <//></div>
    </aside>
  `;
}

function KeyRow({ of, isOpen, find, onMenu }) {
  const name = of.note || of.accessKey;
  return html`
    <tr class=${isOpen ? "isOpen" : ""}>
      <th scope="row"><a class="name" href=${link(["keys", of.accessKey], { find })}>${of.note || html`<code>${name}</code>`}</a>
        ${of.note && html`<small><code>${of.accessKey}</code></small>`}</th>
      <td class="quiet hideDrawer" data-label=${say("keys.account")}>${of.account}</td>
      <td><span class="badge">${presetOf(of)}</span></td>
      <td class="hideDrawer"><${Reaches} of=${of} /></td>
      <td class="quiet fixedText" title=${date(of.lastUsedMs)} data-label=${say("keys.lastUsed")}>${of.lastUsedMs ? age(of.lastUsedMs) : say("app.never")}</td>
      <td class="quiet hideDrawer" title=${date(of.expiresMs)} data-label=${say("keys.expires")}>${date(of.expiresMs).split(",")[0]}</td>
      <td class="fixedText"><${State} of=${of} /></td>
      <td class="ends menuCell">${has("admin") && html`<${IconButton} icon="more" kind="small" label=${say("keys.menu", { name })} aria-haspopup="menu"
        onClick=${(event) => onMenu(of, event.currentTarget)} />`}</td>
    </tr>
  `;
}

const COLUMNS = [["key"], ["account", "hideDrawer"], ["preset"], ["reaches", "hideDrawer"], ["lastUsed"],
  ["expires", "hideDrawer"], ["state"]];

const KeyTable = ({ items, opened, find, onMenu }) => html`
  <div class="scroll edge cards tall" tabindex="0">
    <table>
      <${Heads} names=${COLUMNS} text=${(name) => say("keys." + name)} hasActions />
      <tbody>${items.map((key) => html`
        <${KeyRow} key=${key.accessKey} of=${key} isOpen=${key.accessKey === opened} find=${find} onMenu=${onMenu} />
      `)}</tbody>
    </table>
  </div>
`;

// The dialogs of what one does with a key; `changed(key)` is called with what it is then, or null for none.
function KeyDialog({ kind, of, onClose, changed }) {
  const name = of.accessKey;
  if (kind === "edit") return html`
    <${EditKey} of=${of} onClose=${onClose} onChanged=${(key) => {
      announce(say("keys.changed"));
      changed(key);
    }} />`;
  if (kind === "remake") return html`
    <${Confirm} title=${say("keys.remakeTitle", { name: of.note || name })} label=${say("keys.remake")} onClose=${onClose}
      text=${say("keys.remakeText") + " " + lastUse(of.lastUsedMs)}
      act=${async () => changed(await call("PATCH", path(name), { body: { newSecret: true } }))} />`;
  return html`
    <${Confirm} title=${say("keys.revoke")} text=${say("keys.revokeText")} name=${name} label=${say("keys.revoke")} onClose=${onClose}
      act=${async () => {
        await call("DELETE", path(name));
        announce(say("keys.revoked"));
        changed(null);
      }} />`;
}

// The page of a new key, which is fetched when it is first shown.
function NewKey({ bucket }) {
  const [module, setModule] = useState(null);
  useEffect(() => {
    import("./keynew.js").then(async (found) => {
      await found.styled;
      setModule(found);
    }, (error) => announce(error.message));
  }, []);
  return module && html`<${module.NewKey} bucket=${bucket} />`;
}

export default function Keys({ route }) {
  const { find = "", make, bucket = "" } = route.query;
  return html`<${KeyList} find=${find} isNew=${Boolean(make)} bucket=${bucket} opened=${route.path[1]} />`;
}

function KeyList({ find, isNew, bucket, opened }) {
  // Also anew after a key was made.
  const found = useLoad((signal) => call("GET", "keys", { query: { find }, signal }), [find, isNew]);
  const [filter, setFilter] = useState("all");
  const [menu, setMenu] = useState(null);
  const [dialog, setDialog] = useState(null);
  const [made, setMade] = useState(null);
  const [revision, setRevision] = useState(0);
  async function more() {
    const page = await call("GET", "keys", { query: { find, after: found.data.next } });
    found.change((before) => ({ items: [...before.items, ...page.items], next: page.next }));
  }
  const close = () => go(["keys"], { find }, true);
  const act = (kind, of) => setDialog({ kind, of });
  function changed(key) {
    setDialog(null);
    if (key && key.secretKey) setMade(key);
    if (!key && opened) close();
    const { secretKey, ...plain } = key || {};
    if (key) found.change((before) => ({ ...before, items: before.items.map((each) => (each.accessKey === key.accessKey ? plain : each)) }));
    setRevision((before) => before + 1);
    found.reload();
  }
  async function turn(key) {
    const now = await call("PATCH", path(key.accessKey), { body: { disabled: !key.disabled } });
    announce(say(now.disabled ? "keys.isOff" : "keys.isOn"));
    changed(now);
  }
  const add = html`<a class="button primary" href=${link(["keys"], { make: "1" })}><${Icon} name="add" />${say("keys.new")}</a>`;
  const { issuer, account, user } = state.session || {};
  // A person without a role makes service keys of its own user.
  const [addOwn, busy] = useAction(async () => {
    setMade(await call("POST", "keys", { body: { account, parent: "user/" + user } }));
    found.reload();
  });
  const own = issuer && html`<${Button} kind="primary" icon="add" busy=${busy} onClick=${addOwn}>${say("keys.new")}<//>`;
  const mayAdd = has("admin");
  if (isNew && mayAdd) return html`
    <${Page} title=${say("keys.new")} crumbs=${html`<${Crumbs} steps=${[[say("nav.keys"), link(["keys"])], [say("keys.new"), ""]]} />`}>
      <${NewKey} key=${bucket} bucket=${bucket} /><//>`;
  const isEmpty = found.data && !found.data.items.length;
  const items = found.data ? found.data.items : [];
  // Of a list that goes on the numbers would be wrong.
  const chips = found.data && !found.data.next && items.length > 1 && html`
    <div class="chips hideDrawer">${Object.entries(FILTERS).map(([name, keeps]) => html`
      <button type="button" class="chip" aria-pressed=${filter === name} onClick=${() => setFilter(name)}>
        ${say("keys." + name, { count: number(items.filter(keeps).length) })}</button>`)}</div>`;
  const shownOf = (page) => (page.next ? page.items : page.items.filter(FILTERS[filter]));
  const entries = menu && [
    { label: say("keys.edit"), icon: "rename", act: () => act("edit", menu.key) },
    { label: say("check.title"), icon: "shield", act: () => go(["keys", menu.key.accessKey], { find }) },
    { label: say("keys.setup"), icon: "terminal", act: () => go(["keys", menu.key.accessKey], { find }) },
    null,
    { label: say("keys.remakeMore"), icon: "retry", act: () => act("remake", menu.key) },
    { label: say(menu.key.disabled ? "keys.turnOn" : "keys.turnOff"), icon: menu.key.disabled ? "play" : "pause", act: () => turn(menu.key) },
    { label: say("keys.revokeMore"), icon: "trash", isBad: true, act: () => act("revoke", menu.key) },
  ];
  return html`
    <${Page} title=${say("nav.keys")} fixed actions=${!isEmpty && (mayAdd ? add : own)} tools=${html`
      <${Search} label=${say("keys.find")} value=${find}
        onInput=${(event) => go(["keys"], { find: event.target.value }, true)} />${chips}`}
      beside=${opened !== undefined && html`<${KeyDrawer} name=${opened} act=${act} onClose=${close} revision=${revision} />`}>
      <${Loaded} of=${found} isEmpty=${(page) => !page.items.length} empty=${html`
        <${Empty} title=${say("keys.empty")} text=${say(mayAdd ? "keys.emptyText" : "keys.emptyOwn")}>
          ${find ? html`<a class="button" href=${link(["keys"])}>${say("app.all")}</a>` : mayAdd ? add : own}<//>
      `}>
        ${(page) => html`
          ${shownOf(page).length
            ? html`<${KeyTable} items=${shownOf(page)} opened=${opened} find=${find} onMenu=${(key, at) => setMenu({ key, at })} />`
            : html`<${Empty} title=${say("keys.noneMatch")}><${Button} onClick=${() => setFilter("all")}>${say("app.all")}<//><//>`}
          <p class="listFoot edge"><span>${say(page.items.length === 1 ? "keys.one" : "keys.many", { count: number(page.items.length) })}${page.next && "+"}</span>
            ${page.next && html`<button type="button" class="link" onClick=${more}>${say("app.more")}</button>`}
            <span class="fill"></span><span class="hidePhone hideDrawer">${say("keys.rootPair")}</span></p>
        `}
      <//>
      ${menu && html`<${Menu} label=${say("keys.menu", { name: menu.key.note || menu.key.accessKey })} items=${entries} at=${menu.at}
        onClose=${() => setMenu(null)} />`}
      ${dialog && html`<${KeyDialog} ...${dialog} onClose=${() => setDialog(null)} changed=${changed} />`}
      ${made && html`<${Secret} made=${made} onClose=${() => setMade(null)} />`}
    <//>
  `;
}
