// A new key: a preset, what it reaches, and one sentence of what that is today.

import { useEffect, useState } from "preact/hooks";
import { call, rolesUpTo, state } from "./api.js";
import { localTime, Secret } from "./keysecret.js";
import { addTexts, bytes, number, say } from "./messages.js";
import { go } from "./router.js";
import { Check, Field, Form, html, Icon, Select } from "./ui.js";

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
  "keyNew.details": "Note and expiry",
  "keyNew.create": "Create key",
  "keyNew.reuse": "Issue the key even if buckets still name its removed account or user",
  "keyNew.may.readonly": "May read {what} of {account}: {count} today, {size}.",
  "keyNew.may.readwrite": "May read, write and delete {what} of {account}: {count} today, {size}.",
  "keyNew.may.writeonly": "May write {what} of {account}, but not read it: {count} today, {size}.",
  "keyNew.one": "1 object",
  "keyNew.objects": "{count} objects",
  "keyNew.more": "{count} or more objects",
  "keyNew.nothing": "The key reaches no object today: {account} owns no bucket.",
  "keyNew.nothingYet": "It can create buckets of its own.",
  "keyNew.none": "The key reaches no object today: {what} of {account} is empty.",
  "keyNew.all": "every bucket",
  "keyNew.adminRole": "It may also administer this console.",
});

const PRESETS = {
  readonly: { icon: "eye", policy: "readonly", role: "none" },
  app: { icon: "terminal", policy: "readwrite", role: "none" },
  backup: { icon: "history", policy: "writeonly", role: "none" },
  admin: { icon: "shield", policy: "readwrite", role: "admin" },
};

const DELAY_MS = 200;

function useReach(values) {
  const [found, setFound] = useState(null);
  const { account, bucket, prefix } = values;
  useEffect(() => {
    const aborter = new AbortController();
    const timer = setTimeout(() => {
      const body = { account, bucket, prefix: prefix && prefix.replace(/\*$/, "") + "*" };
      call("POST", "reach", { body, signal: aborter.signal }).then(setFound, () => {});
    }, DELAY_MS);
    return () => {
      clearTimeout(timer);
      aborter.abort();
    };
  }, [account, bucket, prefix]);
  return found;
}

function Sentence({ values, reach }) {
  if (!reach) return null;
  const { bucket, prefix, policy, role } = values;
  const account = values.account || "…";
  const what = bucket ? bucket + "/" + prefix.replace(/\*$/, "") + "*" : say("keyNew.all");
  let text = "";
  if (!reach.owned.length) text = say("keyNew.nothing", { account });
  else if (!reach.objects) text = say("keyNew.none", { what, account });
  else {
    const key = reach.isMore ? "keyNew.more" : reach.objects === 1 ? "keyNew.one" : "keyNew.objects";
    const count = say(key, { count: number(reach.objects) });
    text = say("keyNew.may." + policy, { what, account, count, size: bytes(reach.bytes) });
  }
  return html`
    <p>${text}${!reach.owned.length && policy === "readwrite" && !bucket && " " + say("keyNew.nothingYet")}
      ${role !== "none" && " " + say("keyNew.adminRole")}</p>
  `;
}

export function NewKey() {
  const [values, setValues] = useState({
    account: "root", policy: "readonly", role: "none", bucket: "", prefix: "", email: "", note: "", expiresMs: 0, reuse: false,
  });
  const [preset, setPreset] = useState("readonly");
  const [isNew, setIsNew] = useState(false);
  const [made, setMade] = useState(null);
  const change = (some) => setValues((before) => ({ ...before, ...some }));
  const reach = useReach(values);
  const field = (name, more) => html`
    <${Field} name=${name} value=${values[name]} onInput=${(event) => change({ [name]: event.target.value })} ...${more} />
  `;
  async function submit() {
    const prefix = values.prefix && values.prefix.replace(/\*$/, "") + "*";
    setMade(await call("POST", "keys", { body: { ...values, prefix } }));
  }
  const roles = rolesUpTo(state.session.role);
  return html`
    <${Form} submit=${submit} label=${say("keyNew.create")}>
      ${(error) => {
        const wrong = (name) => (error && error.details && error.details.field === name ? error.message : "");
        return html`
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
                onChange=${(event) => change({ bucket: event.target.value })} />
              ${field("prefix", { label: say("keyNew.folder"), help: say("keyNew.folderHelp"), error: wrong("prefix"), placeholder: "2026/" })}
            </div>
            <div class="notice accent" role="status"><${Icon} name="key" /><${Sentence} values=${values} reach=${reach} /></div>
          </section>
          <section class="card"><h2>${say("keyNew.details")}</h2>
            <div class="two">
              ${field("note", { label: say("keys.note"), error: wrong("note") })}
              <${Field} label=${say("keys.expires")} help=${say("keys.expiresHelp")} error=${wrong("expiresMs")}
                type="datetime-local" value=${localTime(values.expiresMs)}
                onChange=${(event) => change({ expiresMs: event.target.value ? +new Date(event.target.value) : 0 })} />
              ${field("email", { label: say("keys.email"), type: "email", error: wrong("email") })}
            </div>
          </section>
          ${(values.reuse || (error && error.code === "FAILED_PRECONDITION")) && html`
            <${Check} label=${say("keyNew.reuse")} checked=${values.reuse}
              onChange=${(event) => change({ reuse: event.target.checked })} />
          `}
        `;
      }}
    <//>
    ${made && html`<${Secret} made=${made} onClose=${() => go(["keys", made.accessKey])} />`}
  `;
}
