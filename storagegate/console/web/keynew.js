// A new key: a preset, what it reaches, and one sentence of what that is today.

import { useEffect, useState } from "preact/hooks";
import { call, rolesUpTo, segment, state } from "./api.js";
import { Sentence, useReach } from "./keyreach.js";
import { Secret } from "./keysecret.js";
import { addTexts, date, localTime, number, say } from "./messages.js";
import { go } from "./router.js";
import { Check, Field, html, Icon, Problem, Select, useAction } from "./ui.js";

export { styled } from "./figures.js";

addTexts({
  "keyNew.preset": "Preset",
  "keyNew.preset.readonly": "Read-only",
  "keyNew.presetText.readonly": "Read and list",
  "keyNew.preset.app": "App",
  "keyNew.presetText.app": "Read, write and delete",
  "keyNew.preset.backup": "Backup",
  "keyNew.presetText.backup": "Write, but not read",
  "keyNew.preset.admin": "Admin",
  "keyNew.presetText.admin": "Everything but the root pair",
  "keyNew.account": "Account",
  "keyNew.newAccount": "New account…",
  "keyNew.name": "Name of the account",
  "keyNew.owns": "Owns {count} buckets",
  "keyNew.bucket": "Bucket",
  "keyNew.every": "Every bucket of the account",
  "keyNew.folder": "Folder",
  "keyNew.folderHelp": "Empty for the whole bucket.",
  "keyNew.folderOpen": "Also reaches {name}-old/ and all other names that begin with {name}. End it with / for this folder alone.",
  "keyNew.folderFirst": "Choose a bucket first.",
  "keyNew.everyShort": "every bucket",
  "keyNew.details": "Name and expiry",
  "keyNew.note": "Name",
  "keyNew.noteHelp": "Who or what uses the key.",
  "keyNew.never": "Never",
  "keyNew.inDays": "In {count} days, {date}",
  "keyNew.onDate": "On a date…",
  "keyNew.date": "Expires on",
  "keyNew.summary": "What the key may do",
  "keyNew.may": "May: ",
  "keyNew.mayNot": "May not: ",
  "keyNew.right.read": "Read and list {place}",
  "keyNew.right.app": "Read, write and delete in {place}",
  "keyNew.right.write": "Write to {place}",
  "keyNew.right.signIn": "Sign in to this console",
  "keyNew.right.admin": "Administer this console",
  "keyNew.right.writes": "Write or delete",
  "keyNew.right.reads": "Read or list",
  "keyNew.right.folders": "Other folders of {bucket}",
  "keyNew.right.bucket": "The other bucket of the account",
  "keyNew.right.buckets": "The other {count} buckets of the account",
  "keyNew.create": "Create key",
  "keyNew.reuse": "Issue the key even if buckets still name its removed account or user",
});

const PRESETS = {
  readonly: { icon: "eye", policy: "readonly", role: "none" },
  app: { icon: "terminal", policy: "readwrite", role: "none" },
  backup: { icon: "history", policy: "writeonly", role: "none" },
  admin: { icon: "shield", policy: "readwrite", role: "admin" },
};

const MOST_FOLDERS = 200;

const READS = { readonly: "read", readwrite: "app", writeonly: "write" };

// What the key may and may not, line by line.
function Rights({ values, reach }) {
  const { policy, role, bucket, prefix } = values;
  const others = reach ? reach.owned.length - (bucket ? 1 : 0) : 0;
  const place = prefix ? bucket + "/" + prefix.replace(/\*$/, "") : bucket || say("keyNew.everyShort");
  const lines = [
    [true, say("keyNew.right." + READS[policy], { place })],
    [true, say("keyNew.right.signIn")],
    ...(role === "none" ? [[false, say("keyNew.right.admin")]] : [[true, say("keyNew.right.admin")]]),
    ...(policy === "readwrite" ? [] : [[false, say("keyNew.right." + (policy === "readonly" ? "writes" : "reads"))]]),
    ...(prefix ? [[false, say("keyNew.right.folders", { bucket })]] : []),
    ...(bucket && others > 0 ? [[false, say(others === 1 ? "keyNew.right.bucket" : "keyNew.right.buckets", { count: number(others) })]] : []),
  ];
  return html`<ul class="rights">${lines.map(([may, text]) => html`
    <li class=${may ? "" : "quiet"}><span class=${may ? "good" : "quiet"}><${Icon} name=${may ? "check" : "close"} /></span>
      <span class="hidden">${say(may ? "keyNew.may" : "keyNew.mayNot")}</span>${text}</li>`)}</ul>`;
}

// The folders that a typed one may go on with.
function useFolders(bucket, typed) {
  const [folders, setFolders] = useState([]);
  const parent = typed.slice(0, typed.lastIndexOf("/") + 1);
  useEffect(() => {
    setFolders([]);
    if (!bucket) return undefined;
    const aborter = new AbortController();
    const query = { prefix: parent, delimiter: "/", limit: MOST_FOLDERS };
    call("GET", "buckets/" + segment(bucket) + "/objects", { query, signal: aborter.signal })
      .then((page) => setFolders(page.prefixes || []), () => {});
    return () => aborter.abort();
  }, [bucket, parent]);
  return folders;
}

const DAY_MS = 86400000;
const SPANS = [30, 90, 365];

// When the key expires: never, after some days, or on a date.
function Expiry({ value, error, onChange }) {
  const [choice, setChoice] = useState("");
  const [now] = useState(Date.now);
  const options = [["", say("keyNew.never")],
    ...SPANS.map((days) => [String(days), say("keyNew.inDays", { count: days, date: date(now + days * DAY_MS).split(",")[0] })]),
    ["date", say("keyNew.onDate")]];
  return html`<div>
    <${Select} label=${say("keys.expires")} name="expiry" value=${choice} options=${options} error=${choice === "date" ? "" : error}
      onChange=${(event) => {
        setChoice(event.target.value);
        onChange(Number(event.target.value) ? now + event.target.value * DAY_MS : 0);
      }} />
    ${choice === "date" && html`<${Field} label=${say("keyNew.date")} error=${error} required type="datetime-local" value=${localTime(value)}
      onChange=${(event) => onChange(event.target.value ? +new Date(event.target.value) : 0)} />`}
  </div>`;
}

export function NewKey({ bucket = "" }) {
  const [values, setValues] = useState({
    account: "root", policy: "readonly", role: "none", bucket, prefix: "", email: "", note: "", expiresMs: 0, reuse: false,
  });
  const [preset, setPreset] = useState("readonly");
  const [isNew, setIsNew] = useState(false);
  const [made, setMade] = useState(null);
  const change = (some) => setValues((before) => ({ ...before, ...some }));
  // A folder is everything below it.
  const limits = { ...values, prefix: values.prefix && values.prefix.replace(/\*$/, "") + "*" };
  const reach = useReach(limits);
  const field = (name, more) => html`
    <${Field} name=${name} value=${values[name]} onInput=${(event) => change({ [name]: event.target.value })} ...${more} />
  `;
  async function submit() {
    setMade(await call("POST", "keys", { body: limits }));
  }
  const folders = useFolders(values.bucket, values.prefix);
  const [run, busy, error] = useAction(submit);
  const isPart = values.bucket && /[^/*]$/.test(values.prefix);
  const folderHelp = isPart ? say("keyNew.folderOpen", { name: values.prefix })
    : values.bucket ? say("keyNew.folderHelp") : say("keyNew.folderFirst");
  const roles = rolesUpTo(state.session.role);
  const wrong = (name) => (error && error.details && error.details.field === name ? error.message : "");
  const isNamed = error && error.details && error.details.field;
  return html`
    <form class="columns form" onSubmit=${(event) => {
      event.preventDefault();
      run();
    }}><div>
      <fieldset class="card"><header><h2>${say("keyNew.preset")}</h2></header>
        <div class="choices">${Object.entries(PRESETS).filter(([, each]) => roles.includes(each.role)).map(([name, { icon, ...given }]) => html`
          <label class="choice"><input type="radio" name="preset" checked=${preset === name} onChange=${() => {
            setPreset(name);
            change(given);
          }} /><${Icon} name=${icon} /><b>${say("keyNew.preset." + name)}</b>
            <small>${say("keyNew.presetText." + name)}</small></label>
        `)}</div>
      </fieldset>
      <section class="card"><h2>${say("keys.reaches")}</h2>
        <div class="two">
          <div>
            <${Select} label=${say("keyNew.account")} name="account" value=${isNew ? "" : values.account}
              help=${isNew || !reach ? "" : say("keyNew.owns", { count: number(reach.owned.length) })}
              options=${[...(reach ? reach.accounts : ["root"]).map((each) => [each, each]), ["", say("keyNew.newAccount")]]}
              onChange=${(event) => {
                setIsNew(!event.target.value);
                change({ account: event.target.value, bucket: "", prefix: "" });
              }} />
            ${isNew && html`<${Field} label=${say("keyNew.name")} name="newAccount" required value=${values.account}
              error=${wrong("account")} onInput=${(event) => change({ account: event.target.value })} />`}
          </div>
          <${Select} label=${say("keyNew.bucket")} name="bucket" value=${values.bucket} error=${wrong("bucket")}
            options=${[["", say("keyNew.every")], ...(reach ? reach.owned : []).map((each) => [each, each])]}
            onChange=${(event) => change({ bucket: event.target.value, prefix: event.target.value ? values.prefix : "" })} />
          ${field("prefix", {
            label: say("keyNew.folder"), help: folderHelp, error: wrong("prefix"),
            placeholder: "2026/", disabled: !values.bucket, list: "folders",
          })}
          <datalist id="folders">${folders.map((each) => html`<option value=${each} />`)}</datalist>
        </div>
      </section>
      <section class="card"><h2>${say("keyNew.details")}</h2>
        <div class="two">
          ${field("note", { label: say("keyNew.note"), help: say("keyNew.noteHelp"), error: wrong("note") })}
          <${Expiry} value=${values.expiresMs} error=${wrong("expiresMs")} onChange=${(expiresMs) => change({ expiresMs })} />
          ${field("email", { label: say("keys.email"), type: "email", error: wrong("email") })}
        </div>
      </section>
      ${(values.reuse || (error && error.code === "FAILED_PRECONDITION")) && html`
        <${Check} label=${say("keyNew.reuse")} checked=${values.reuse}
          onChange=${(event) => change({ reuse: event.target.checked })} />
      `}
      </div>
      <aside class="card summary" aria-label=${say("keyNew.summary")}>
        <div class="sentence" role="status"><${Sentence} values=${limits} reach=${reach} /></div>
        <${Rights} values=${limits} reach=${reach} />
        ${error && !isNamed && html`<${Problem} error=${error} />`}
        <button class="button primary" disabled=${busy}>${say("keyNew.create")}</button>
      </aside>
    </form>
    ${made && html`<${Secret} made=${made} onClose=${() => go(["keys", made.accessKey])} />`}
  `;
}
