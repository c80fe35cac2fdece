// Users, groups and managed policies of an account: the three lists, and one of each beside its list.

import { useState } from "preact/hooks";
import { call, has } from "./api.js";
import { lastUse, Secret } from "./keysecret.js";
import { addTexts, date, number, say } from "./messages.js";
import { go, link } from "./router.js";
import {
  announce, Button, Confirm, CopyButton, Dialog, Empty, Field, Form, Heads, html, Icon, IconButton, Loaded, Page,
  useAction, useEscape, useLoad,
} from "./ui.js";
import { PolicyDialog } from "./userpolicy.js";

addTexts({
  "users.account": "Account",
  "users.users": "Users",
  "users.groups": "Groups",
  "users.policies": "Policies",
  "users.new.users": "New user…",
  "users.new.groups": "New group…",
  "users.new.policies": "New policy…",
  "users.title.users": "New user",
  "users.title.groups": "New group",
  "users.title.policies": "New policy",
  "users.empty.users": "No users yet",
  "users.empty.groups": "No groups yet",
  "users.empty.policies": "No policies",
  "users.emptyText.users": "A user has keys, and the rights that policies give it.",
  "users.emptyText.groups": "The policies of a group apply to its users.",
  "users.emptyText.policies": "A managed policy can be attached to several users, groups and roles.",
  "users.name": "Name",
  "users.path": "Path",
  "users.pathHelp": "Such as /staff/; part of the ARN.",
  "users.id": "ID",
  "users.arn": "ARN",
  "users.created": "Created",
  "users.create": "Create",
  "users.tags": "Tags",
  "users.attached": "Attached",
  "users.version": "Version",
  "users.byAmazon": "Amazon",
  "users.details": "Details",
  "users.inline": "Inline policies",
  "users.newInline": "New inline policy…",
  "users.noInline": "No inline policies",
  "users.none": "None",
  "users.add": "Add",
  "users.attach": "Attach",
  "users.remove": "Remove {name}",
  "users.edit": "Edit {name}",
  "users.keys": "Access keys",
  "users.newKey": "New key",
  "users.noKeys": "No keys; a user has at most two",
  "users.active": "Active",
  "users.inactive": "Disabled",
  "users.turnOff": "Disable…",
  "users.turnOffTitle": "Disable {name}",
  "users.turnOffLabel": "Disable",
  "users.turnOffText": "Its keys are refused within a second, it cannot sign in, and its sessions end.",
  "users.turnOn": "Enable",
  "users.off": "{name} is disabled",
  "users.on": "{name} is enabled",
  "users.status": "Status",
  "users.enable": "Enable {name}",
  "users.disable": "Disable {name}",
  "users.deleteKey": "Delete key",
  "users.deleteKeyText": "Requests with this key are refused at once. This cannot be undone.",
  "users.delete": "Delete…",
  "users.deleteTitle": "Delete {name}",
  "users.deleteLabel": "Delete",
  "users.deleteText": "It must have no keys, policies, users or groups.",
  "users.done": "{name} is deleted",
  "users.operator": "This user is a key that an operator issued. Its rights are those of the key.",
  "users.document": "Document",
  "users.newVersion": "New version…",
  "users.member": "Users of the group",
});

const KINDS = {
  users: { list: "ListUsers", name: "userName", one: "User" },
  groups: { list: "ListGroups", name: "groupName", one: "Group" },
  policies: { list: "ListPolicies", name: "policyName", one: "Policy" },
};

const PAGE = 200;

const path = (operation) => "identities/" + operation;

const read = (operation, query, signal) => call("GET", path(operation), { query, signal });

const change = (operation, body) => call("POST", path(operation), { body });

// The reads of one user, group or policy, by the names of what they give.
async function loadUser(account, userName, signal) {
  const of = (operation) => read(operation, { account, userName }, signal);
  const [{ user }, { groups }, { attachedPolicies }, { policyNames }, { accessKeyMetadata }] = await Promise.all([
    of("GetUser"), of("ListGroupsForUser"), of("ListAttachedUserPolicies"), of("ListUserPolicies"), of("ListAccessKeys"),
  ]);
  const keys = await Promise.all(accessKeyMetadata.map(async (key) => ({
    ...key, ...(await read("GetAccessKeyLastUsed", { account, accessKeyId: key.accessKeyId }, signal)).accessKeyLastUsed,
  })));
  return { ...user, groups, attached: attachedPolicies, inline: policyNames, keys };
}

async function loadGroup(account, groupName, signal) {
  const of = (operation) => read(operation, { account, groupName, maxItems: 1000 }, signal);
  const [{ group, users }, { attachedPolicies }, { policyNames }] = await Promise.all([
    of("GetGroup"), of("ListAttachedGroupPolicies"), of("ListGroupPolicies"),
  ]);
  return { ...group, users, attached: attachedPolicies, inline: policyNames };
}

async function loadPolicy(account, policyArn, signal) {
  const { policy } = await read("GetPolicy", { account, policyArn }, signal);
  const query = { account, policyArn, versionId: policy.defaultVersionId };
  const { policyVersion } = await read("GetPolicyVersion", query, signal);
  return { ...policy, document: policyVersion.document };
}

const Facts = ({ of }) => html`
  <dl class="facts">${of.filter(([, value]) => value).map(([name, value]) => html`
    <dt>${say("users." + name)}</dt><dd>${value}</dd>`)}</dl>
`;

const factsOf = (one) => [
  ["arn", html`<code>${one.arn}</code> <${CopyButton} text=${one.arn} />`],
  ["id", one.userId || one.groupId || one.policyId], ["path", one.path], ["created", date(one.createDate)],
  ["status", one.status && html`<span><span class="dot"></span>${say("users.inactive")}</span>`],
  ["tags", (one.tags || []).map((each) => each.key + "=" + each.value).join(", ")],
];

// Names with a button to remove each, and a list to add one from.
function Members({ title, names, options, add, remove, verb = "users.add" }) {
  const [chosen, setChosen] = useState("");
  const free = options.filter(([value]) => !names.some((each) => each[0] === value));
  const [run, busy, error] = useAction(async (act) => {
    await act();
    setChosen("");
  });
  return html`
    <section class="part"><h3>${title}</h3>
      ${!names.length && html`<p class="quiet">${say("users.none")}</p>`}
      ${names.length > 0 && html`<ul class="plain">${names.map(([value, text]) => html`
        <li class="row"><span>${text}</span><span class="fill"></span>
          ${remove && html`<${IconButton} icon="close" kind="small" label=${say("users.remove", { name: text })}
            onClick=${() => run(() => remove(value))} />`}</li>`)}</ul>`}
      ${error && html`<p class="help bad" role="alert">${error.message}</p>`}
      ${add && free.length > 0 && html`<div class="row">
        <select aria-label=${title} value=${chosen} onChange=${(event) => setChosen(event.target.value)}>
          <option value=""></option>${free.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>
        <${Button} kind="small" busy=${busy} disabled=${!chosen} onClick=${() => run(() => add(chosen))}>${say(verb)}<//>
      </div>`}
    </section>
  `;
}

const Inline = ({ names, edit, remove }) => html`
  <section class="part"><h3>${say("users.inline")}</h3>
    ${!names.length && html`<p class="quiet">${say("users.noInline")}</p>`}
    <ul class="plain">${names.map((name) => html`
      <li class="row"><span>${name}</span><span class="fill"></span>
        <${IconButton} icon="rename" kind="small" label=${say("users.edit", { name })} onClick=${() => edit(name)} />
        <${IconButton} icon="close" kind="small" label=${say("users.remove", { name })} onClick=${() => remove(name)} /></li>`)}</ul>
    <${Button} kind="small" onClick=${() => edit("")}>${say("users.newInline")}<//>
  </section>
`;

const Keys = ({ keys, create, turn, remove }) => html`
  <section class="part"><h3>${say("users.keys")}</h3>
    ${!keys.length && html`<p class="quiet">${say("users.noKeys")}</p>`}
    <ul class="plain">${keys.map((key) => {
      const isOn = key.status === "Active";
      const name = key.accessKeyId;
      return html`<li class="row"><span><code>${name}</code><small class="quiet" title=${date(key.lastUsedDate)}>${lastUse(key.lastUsedDate)}</small></span>
        <span><span class=${isOn ? "dot ok" : "dot"}></span>${say(isOn ? "users.active" : "users.inactive")}</span><span class="fill"></span>
        <${IconButton} icon=${isOn ? "pause" : "play"} kind="small" label=${say(isOn ? "users.disable" : "users.enable", { name })}
          onClick=${() => turn(name, isOn ? "Inactive" : "Active")} />
        <${IconButton} icon="trash" kind="small" label=${say("users.remove", { name })} onClick=${() => remove(name)} /></li>`;
    })}</ul>
    ${create && html`<${Button} kind="small" onClick=${create}>${say("users.newKey")}<//>`}
  </section>
`;

// The parts that users and groups have in common: policies that are attached, and inline ones.
function Holder({ account, kind, one, policies, reload, setDialog }) {
  const who = { account, [KINDS[kind].name]: one[KINDS[kind].name] };
  const operation = (verb) => verb + KINDS[kind].one + "Policy";
  const then = (promise) => promise.then(reload);
  const edit = async (policyName) => {
    const found = policyName ? await read(operation("Get"), { ...who, policyName }) : { policyDocument: "" };
    setDialog({
      kind: "inline", name: policyName, document: found.policyDocument,
      save: (name, policyDocument) => then(change(operation("Put"), { ...who, policyName: name, policyDocument })),
    });
  };
  return html`
    <${Members} title=${say("users.policies")} verb="users.attach" options=${policies}
      names=${one.attached.map((each) => [each.policyArn, each.policyName])}
      add=${(policyArn) => then(change(operation("Attach"), { ...who, policyArn }))}
      remove=${(policyArn) => then(change(operation("Detach"), { ...who, policyArn }))} />
    <${Inline} names=${one.inline} edit=${edit}
      remove=${(policyName) => then(change(operation("Delete"), { ...who, policyName }))} />
  `;
}

function UserParts({ account, one, reload, setDialog, options }) {
  const who = { account, userName: one.userName };
  const then = (promise) => promise.then(reload);
  // A key of an operator has no id of its own.
  if (one.userId === one.userName) return html`<p class="part quiet">${say("users.operator")}</p>`;
  const create = async () => {
    const { accessKey } = await change("CreateAccessKey", who);
    setDialog({ kind: "secret", key: { ...accessKey, accessKey: accessKey.accessKeyId, secretKey: accessKey.secretAccessKey } });
    reload();
  };
  return html`
    <${Members} title=${say("users.groups")} options=${options.groups} names=${one.groups.map((each) => [each.groupName, each.groupName])}
      add=${(groupName) => then(change("AddUserToGroup", { ...who, groupName }))}
      remove=${(groupName) => then(change("RemoveUserFromGroup", { ...who, groupName }))} />
    <${Holder} account=${account} kind="users" one=${one} policies=${options.policies} reload=${reload} setDialog=${setDialog} />
    <${Keys} keys=${one.keys} create=${one.keys.length < 2 && create}
      turn=${(accessKeyId, status) => then(change("UpdateAccessKey", { ...who, accessKeyId, status }))}
      remove=${(accessKeyId) => setDialog({
        kind: "confirm", title: say("users.deleteKey"), text: say("users.deleteKeyText"),
        act: () => then(change("DeleteAccessKey", { ...who, accessKeyId })),
      })} />
  `;
}

const GroupParts = ({ account, one, reload, setDialog, options }) => html`
  <${Members} title=${say("users.member")} options=${options.users} names=${one.users.map((each) => [each.userName, each.userName])}
    add=${(userName) => change("AddUserToGroup", { account, groupName: one.groupName, userName }).then(reload)}
    remove=${(userName) => change("RemoveUserFromGroup", { account, groupName: one.groupName, userName }).then(reload)} />
  <${Holder} account=${account} kind="groups" one=${one} policies=${options.policies} reload=${reload} setDialog=${setDialog} />
`;

const isOfAmazon = (policy) => policy.arn.startsWith("arn:aws:iam::aws:");

const PolicyParts = ({ account, one, reload, setDialog }) => html`
  <section class="part"><h3>${say("users.document")}</h3>
    <div class="code"><pre>${one.document}</pre></div>
    ${!isOfAmazon(one) && has("admin") && html`<${Button} kind="small" onClick=${() => setDialog({
      kind: "inline", name: one.policyName, document: one.document,
      save: (name, policyDocument) =>
        change("CreatePolicyVersion", { account, policyArn: one.arn, policyDocument, setAsDefault: true }).then(reload),
    })}>${say("users.newVersion")}<//>`}
  </section>
`;

const LOADS = { users: loadUser, groups: loadGroup, policies: loadPolicy };
const PARTS = { users: UserParts, groups: GroupParts, policies: PolicyParts };

function Drawer({ account, kind, name, options, setDialog, onClose, changed, revision }) {
  const found = useLoad((signal) => LOADS[kind](account, name, signal), [account, kind, name, revision]);
  useEscape(onClose);
  const Parts = PARTS[kind];
  const title = kind === "policies" ? name.split("/").pop() : name;
  const named = kind === "policies" ? { policyArn: name } : { [KINDS[kind].name]: name };
  const remove = () => setDialog({
    kind: "confirm", title: say("users.deleteTitle", { name: title }), text: say("users.deleteText"),
    act: async () => {
      await change("Delete" + KINDS[kind].one, { account, ...named });
      announce(say("users.done", { name: title }));
      onClose();
      changed();
    },
  });
  const setStatus = async (status) => {
    await change("UpdateUserStatus", { account, ...named, status });
    announce(say(status === "Active" ? "users.on" : "users.off", { name: title }));
    changed();
  };
  const disable = () => setDialog({
    kind: "confirm", title: say("users.turnOffTitle", { name: title }), text: say("users.turnOffText"),
    label: say("users.turnOffLabel"), act: () => setStatus("Inactive"),
  });
  const mayDelete = (one) => has("admin") && (kind !== "policies" || !isOfAmazon(one)) && one.userId !== name;
  return html`
    <aside class="drawer" aria-label=${title}>
      <header><${Icon} name="users" /><h2>${title}</h2>
        <${IconButton} icon="close" kind="small" label=${say("app.close")} onClick=${onClose} /></header>
      <div class="drawerBody"><${Loaded} of=${found}>${(one) => html`
        <section class="part"><h3>${say("users.details")}</h3><${Facts} of=${factsOf(one)} /></section>
        <${Parts} account=${account} one=${one} options=${options} reload=${changed} setDialog=${setDialog} />
        ${mayDelete(one) && html`<div class="part buttons">
          ${kind === "users" && (one.status
            ? html`<${Button} icon="play" onClick=${() => setStatus("Active")}>${say("users.turnOn")}<//>`
            : html`<${Button} icon="pause" onClick=${disable}>${say("users.turnOff")}<//>`)}
          <${Button} icon="trash" kind="danger" onClick=${remove}>${say("users.delete")}<//></div>`}
      `}<//></div>
    </aside>
  `;
}

const COLUMNS = {
  users: [["name"], ["path"], ["created", "hideDrawer"]],
  groups: [["name"], ["path"], ["created", "hideDrawer"]],
  policies: [["name"], ["version"], ["attached", "hideDrawer"]],
};

const cells = (kind, one) => (kind === "policies"
  ? [one.defaultVersionId, number(one.attachmentCount)] : [html`<code>${one.path}</code>`, date(one.createDate)]);

function Table({ account, kind, items, opened }) {
  const keyOf = (one) => (kind === "policies" ? one.arn : one[KINDS[kind].name]);
  return html`
    <div class="scroll edge cards tall" tabindex="0"><table>
      <${Heads} names=${COLUMNS[kind]} text=${(name) => say("users." + name)} />
      <tbody>${items.map((one) => html`
        <tr key=${keyOf(one)} class=${keyOf(one) === opened ? "isOpen" : ""}>
          <th scope="row"><a class="name" href=${link(["users", kind, keyOf(one)], { account })}><${Icon} name="users" />${one[KINDS[kind].name]}</a>
            ${one.status && html` <span class="badge">${say("users.inactive")}</span>`}
            ${kind === "policies" && isOfAmazon(one) && html` <span class="badge">${say("users.byAmazon")}</span>`}</th>
          ${cells(kind, one).map((value, at) => html`<td class=${"quiet " + (COLUMNS[kind][at + 1][1] || "")}
            data-label=${say("users." + COLUMNS[kind][at + 1][0])}>${value}</td>`)}
        </tr>`)}</tbody>
    </table></div>
  `;
}

function NewOne({ account, kind, onClose, made }) {
  const [values, setValues] = useState({ name: "", path: "/" });
  const set = (name) => (event) => setValues({ ...values, [name]: event.target.value });
  const submit = async () => {
    await change("Create" + KINDS[kind].one, { account, [KINDS[kind].name]: values.name, path: values.path });
    made(values.name);
  };
  return html`
    <${Dialog} title=${say("users.title." + kind)} onClose=${onClose}>
      <${Form} submit=${submit} label=${say("users.create")} onCancel=${onClose}>
        <${Field} label=${say("users.name")} required autofocus value=${values.name} onInput=${set("name")} />
        <${Field} label=${say("users.path")} help=${say("users.pathHelp")} required value=${values.path} onInput=${set("path")} />
      <//>
    <//>
  `;
}

// Everything that dialogs and drawers offer to choose from; an account with more than 1,000 is rare.
async function loadAll(account, signal) {
  const query = { account, maxItems: 1000 };
  const [{ users }, { groups }, { policies }] = await Promise.all(
    Object.values(KINDS).map(({ list }) => read(list, query, signal)));
  return { users, groups, policies };
}

export default function Users({ route }) {
  const [, kind = "users", opened] = route.path;
  const accounts = useLoad((signal) => call("GET", "accounts", { signal }), []);
  const names = accounts.data ? accounts.data.accounts : [];
  const account = route.query.account || names.find((each) => each !== "root") || "root";
  const found = useLoad((signal) => (accounts.data ? loadAll(account, signal) : Promise.resolve(undefined)), [account, accounts.data]);
  const [dialog, setDialog] = useState(null);
  const [revision, setRevision] = useState(0);
  const [shown, setShown] = useState(PAGE);
  const changed = () => {
    setRevision((before) => before + 1);
    found.reload();
  };
  const close = () => go(["users", kind], { account }, true);
  const hide = () => setDialog(null);
  const items = found.data ? found.data[kind] || [] : [];
  const options = found.data ? {
    users: found.data.users.filter((each) => each.userId !== each.userName).map((each) => [each.userName, each.userName]),
    groups: found.data.groups.map((each) => [each.groupName, each.groupName]),
    policies: found.data.policies.map((each) => [each.arn, each.policyName]),
  } : { users: [], groups: [], policies: [] };
  const create = () => setDialog(kind === "policies" ? {
    kind: "inline", name: "", document: "", title: say("users.title.policies"),
    save: (policyName, policyDocument) => change("CreatePolicy", { account, policyName, policyDocument }).then(changed),
  } : { kind: "new" });
  const add = has("admin") && html`<${Button} kind="primary" icon="add" onClick=${create}>${say("users.new." + kind)}<//>`;
  return html`
    <${Page} title=${say("nav.users")} role="auditor" fixed actions=${items.length > 0 && add} tools=${html`
      <div class="seg" role="group" aria-label=${say("nav.users")}>${Object.keys(KINDS).map((each) => html`
        <button type="button" aria-pressed=${each === kind} onClick=${() => go(["users", each], { account })}>${say("users." + each)}</button>`)}</div>
      <label class="labelled">${say("users.account")} <select value=${account} onChange=${(event) => go(["users", kind], { account: event.target.value })}>
        ${names.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>`}
      beside=${opened !== undefined && html`<${Drawer} account=${account} kind=${kind} name=${opened} options=${options} revision=${revision}
        setDialog=${setDialog} onClose=${close} changed=${changed} />`}>
      <${Loaded} of=${accounts.error ? accounts : found} isEmpty=${() => !items.length} empty=${html`
        <${Empty} title=${say("users.empty." + kind)} text=${say("users.emptyText." + kind)}>${add}<//>`}>
        ${() => html`
          <${Table} account=${account} kind=${kind} items=${items.slice(0, shown)} opened=${opened} />
          ${items.length > shown && html`<${Button} onClick=${() => setShown(shown + PAGE)}>${say("app.more")}<//>`}`}
      <//>
      ${dialog && dialog.kind === "new" && html`<${NewOne} account=${account} kind=${kind} onClose=${hide} made=${(name) => {
        hide();
        changed();
        go(["users", kind, name], { account });
      }} />`}
      ${dialog && dialog.kind === "inline" && html`<${PolicyDialog} of=${dialog} onClose=${hide} />`}
      ${dialog && dialog.kind === "confirm" && html`<${Confirm} title=${dialog.title} text=${dialog.text} label=${dialog.label || say("users.deleteLabel")}
        onClose=${hide} act=${async () => {
          await dialog.act();
          hide();
        }} />`}
      ${dialog && dialog.kind === "secret" && html`<${Secret} made=${dialog.key} onClose=${hide} />`}
    <//>
  `;
}
