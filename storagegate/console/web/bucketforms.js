// The settings of a bucket as forms. Each is given the document of S3, and saves the changed one;
// what a form does not show of a document stays as it is.

import { useState } from "preact/hooks";
import { APIError } from "./api.js";
import { say } from "./messages.js";
import { Pairs } from "./pairs.js";
import { Button, Check, Dialog, Field, Form, html, Select } from "./ui.js";

const list = (value) => (value === undefined || value === "" ? [] : [].concat(value));

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

// A copy with some members; those that are empty are left out.
function withMembers(before, members) {
  const found = { ...(before || {}), ...members };
  for (const [name, value] of Object.entries(found))
    if (value === undefined || value === "" || (Array.isArray(value) && !value.length)) delete found[name];
  return found;
}

const isOn = (value) => value === true || value === "true";

const choices = (names, text) => names.map((name) => [name, text(name)]);

// What is, and one deliberate act to change it.
function Versioning({ document, save }) {
  const [asks, setAsks] = useState(false);
  const status = (document && document.Status) || "";
  const wanted = status === "Enabled" ? "suspend" : "enable";
  const act = async () => {
    await save(withMembers(document || {}, { Status: wanted === "enable" ? "Enabled" : "Suspended" }));
    setAsks(false);
  };
  return html`
    <h3>${say("setting.keepVersions")}</h3>
    <p class="now"><span class=${status === "Enabled" ? "badge ok" : "badge"}>${say("setting.version." + status)}</span>
      ${say("setting.versionNow." + status)}</p>
    <${Button} onClick=${() => setAsks(true)}>${say("setting." + wanted + "Versions") + "…"}<//>
    ${asks && html`
      <${Dialog} title=${say("setting." + wanted + "Versions")} onClose=${() => setAsks(false)}>
        <p>${say("setting." + wanted + "VersionsText")}</p>
        <${Form} submit=${act} label=${say("setting." + wanted + "Versions")} onCancel=${() => setAsks(false)} />
      <//>
    `}
  `;
}

function Lock({ document, save }) {
  const rule = (document && document.Rule && document.Rule.DefaultRetention) || {};
  const [mode, setMode] = useState(rule.Mode || "");
  const [unit, setUnit] = useState(rule.Years ? "Years" : "Days");
  const [count, setCount] = useState(rule.Years || rule.Days || "");
  const wanted = { ObjectLockEnabled: "Enabled" };
  if (mode) wanted.Rule = { DefaultRetention: { Mode: mode, [unit]: count } };
  return html`
    ${document === undefined && html`<p>${say("setting.lockHelp")}</p>`}
    <${Form} submit=${() => save(wanted)} label=${say(document ? "app.save" : "setting.enableLock")}>
      <${Select} label=${say("setting.defaultRetention")} name="mode" value=${mode}
        onChange=${(event) => setMode(event.target.value)}
        options=${choices(["", "GOVERNANCE", "COMPLIANCE"], (each) => say("setting.mode." + each))} />
      ${mode && html`
        <${Field} label=${say("setting.period")} type="number" min="1" name="period" required value=${count}
          onInput=${(event) => setCount(event.target.value)} />
        <${Select} label=${say("setting.unit")} name="unit" value=${unit}
          onChange=${(event) => setUnit(event.target.value)}
          options=${choices(["Days", "Years"], (each) => say("setting.unit." + each))} />
      `}
    <//>
  `;
}

// The actions of a rule, and where its document has their days.
const ACTIONS = [
  ["expire", "Expiration", "Days"],
  ["expireOld", "NoncurrentVersionExpiration", "NoncurrentDays"],
  ["abort", "AbortIncompleteMultipartUpload", "DaysAfterInitiation"],
];

const KNOWN = new Set(["ID", "Status", "Filter", ...ACTIONS.map(([, member]) => member)]);

function isPlain(rule) {
  const filter = rule.Filter || {};
  return Object.keys(rule).every((name) => KNOWN.has(name)) &&
    Object.keys(filter).every((name) => name === "Prefix") &&
    ACTIONS.every(([, member, days]) => !rule[member] || Object.keys(rule[member]).join() === days);
}

function LifecycleRule({ rule, number, change, remove, error }) {
  const wrong = error && error.details.rule === number && isPlain(rule) ? error.message : "";
  const field = (name, value, members, more) => html`
    <${Field} label=${say("setting.rule." + name)} name=${name + number} value=${value || ""}
      onInput=${(event) => change(withMembers(rule, members(event.target.value)))} ...${more} />
  `;
  return html`
    <fieldset class="pairs">
      <legend>${say("setting.ruleNumber", { number })}</legend>
      ${isPlain(rule)
        ? html`
          ${field("id", rule.ID, (ID) => ({ ID }))}
          ${field("prefix", rule.Filter && rule.Filter.Prefix, (Prefix) => ({ Filter: { Prefix } }))}
          ${ACTIONS.map(([name, member, days]) => field(name, rule[member] && rule[member][days],
            (value) => ({ [member]: value && { [days]: value } }), { type: "number", min: 1, error: wrong }))}
          <${Check} label=${say("setting.rule.on")} checked=${rule.Status === "Enabled"}
            onChange=${(event) => change({ ...rule, Status: event.target.checked ? "Enabled" : "Disabled" })} />
        `
        : html`<p>${rule.ID} <small>${say("setting.ruleElsewhere")}</small></p>`}
      <${Button} icon="trash" onClick=${remove}>${say("setting.removeRule", { number })}<//>
    </fieldset>
  `;
}

// A form of rules, each drawn by `of`; `made` is a new one. `check(rule)` returns what a rule lacks, or nothing.
function Rules({ member, of: Rule, made, finish = (rule) => rule, check = () => "", document, save, remove }) {
  const [rules, setRules] = useState(list(document && document[member]));
  const submit = async () => {
    rules.forEach((rule, at) => {
      const text = check(rule);
      if (text) throw new APIError(0, "", text, { rule: at + 1 });
    });
    await (rules.length ? save({ ...document, [member]: rules.map(finish) }) : remove());
  };
  return html`
    <${Form} submit=${submit} label=${say("app.save")} disabled=${!rules.length && document === undefined}>
      ${(error) => html`${rules.map((rule, at) => html`
        <${Rule} key=${at} rule=${rule} number=${at + 1} error=${error} change=${(changed) =>
          setRules(rules.with(at, changed))} remove=${() => setRules(rules.filter((each) => each !== rule))} />
      `)}
      <${Button} icon="add" onClick=${() => setRules([...rules, made])}>${say("setting.addRule")}<//>`}
    <//>
  `;
}

const Lifecycle = (given) => html`
  <${Rules} ...${given} member="Rule" of=${LifecycleRule} made=${{ Status: "Enabled", Filter: {} }}
    check=${(rule) => (ACTIONS.some(([, member]) => rule[member]) || !isPlain(rule) ? "" : say("setting.ruleEmpty"))}
    finish=${(rule) => (isPlain(rule) ? { ...rule, Filter: { Prefix: (rule.Filter || {}).Prefix || "" } } : rule)} />
`;

const METHODS = ["GET", "HEAD", "PUT", "POST", "DELETE"];

function CORSRule({ rule, number, change, remove }) {
  const [texts, setTexts] = useState(() => Object.fromEntries(
    ["AllowedOrigin", "AllowedHeader", "ExposeHeader"].map((name) => [name, list(rule[name]).join("\n")])));
  const area = (name, more) => html`
    <${Field} label=${say("setting.cors." + name)} help=${say("setting.onePerLine")}>
      ${(given) => html`
        <textarea class="short" name=${name + number} spellcheck=${false} ...${given} ...${more}
          value=${texts[name]} onInput=${(event) => {
            setTexts({ ...texts, [name]: event.target.value });
            change(withMembers(rule, { [name]: lines(event.target.value) }));
          }}></textarea>
      `}
    <//>
  `;
  const methods = list(rule.AllowedMethod);
  return html`
    <fieldset class="pairs">
      <legend>${say("setting.ruleNumber", { number })}</legend>
      ${area("AllowedOrigin", { required: true })}
      <div class="buttons">${METHODS.map((method) => html`
        <${Check} label=${method} checked=${methods.includes(method)} onChange=${(event) => change({
          ...rule,
          AllowedMethod: event.target.checked
            ? [...methods, method] : methods.filter((each) => each !== method),
        })} />
      `)}</div>
      ${area("AllowedHeader")}${area("ExposeHeader")}
      <${Field} label=${say("setting.cors.maxAge")} type="number" min="0" name=${"maxAge" + number}
        value=${rule.MaxAgeSeconds || ""}
        onInput=${(event) => change(withMembers(rule, { MaxAgeSeconds: event.target.value }))} />
      <${Button} icon="trash" onClick=${remove}>${say("setting.removeRule", { number })}<//>
    </fieldset>
  `;
}

const CORS = (given) => html`
  <${Rules} ...${given} member="CORSRule" of=${CORSRule} made=${{ AllowedMethod: ["GET"] }} />
`;

const GROUPS = "http:" + "//acs.amazonaws.com/groups/global/";

// The canned lists: the group, and what it may.
const CANNED = {
  private: [],
  "public-read": [["AllUsers", "READ"]],
  "public-read-write": [["AllUsers", "READ"], ["AllUsers", "WRITE"]],
  "authenticated-read": [["AuthenticatedUsers", "READ"]],
};

function cannedOf(grants) {
  const given = grants
    .filter(({ Grantee, Permission }) => Grantee.URI || Permission !== "FULL_CONTROL")
    .map(({ Grantee, Permission }) => [(Grantee.URI || "").split("/").pop(), Permission].join());
  const same = ([, wanted]) =>
    wanted.length === given.length && wanted.every((each) => given.includes(each.join()));
  const found = Object.entries(CANNED).find(same);
  return found ? found[0] : "";
}

function ACL({ document, save }) {
  const grants = list(document && document.AccessControlList && document.AccessControlList.Grant);
  const now = cannedOf(grants);
  const [chosen, setChosen] = useState(now);
  function submit() {
    const owner = { Grantee: { type: "CanonicalUser", ID: document.Owner.ID }, Permission: "FULL_CONTROL" };
    const others = CANNED[chosen].map(([group, Permission]) => ({
      Grantee: { type: "Group", URI: GROUPS + group },
      Permission,
    }));
    return save({ Owner: { ID: document.Owner.ID }, AccessControlList: { Grant: [owner, ...others] } });
  }
  return html`
    <${Form} submit=${submit} label=${say("app.save")} disabled=${!chosen}>
      <${Select} label=${say("setting.acl")} help=${say("setting.aclHelp")} name="acl" value=${chosen}
        onChange=${(event) => setChosen(event.target.value)}
        options=${choices([...(now ? [] : [""]), ...Object.keys(CANNED)], (each) => say("setting.acl." + each))} />
    <//>
  `;
}

const OWNERSHIPS = ["BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"];

function Ownership({ document, save }) {
  const [rule] = list(document && document.Rule);
  const [chosen, setChosen] = useState((rule && rule.ObjectOwnership) || OWNERSHIPS[0]);
  return html`
    <${Form} submit=${() => save({ Rule: [{ ObjectOwnership: chosen }] })} label=${say("app.save")}>
      <${Select} label=${say("setting.ownership")} name="ownership" value=${chosen}
        onChange=${(event) => setChosen(event.target.value)}
        options=${choices(OWNERSHIPS, (each) => say("setting.ownership." + each))} />
    <//>
  `;
}

const BLOCKS = ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"];

function PublicAccessBlock({ document, save }) {
  const [values, setValues] = useState(
    Object.fromEntries(BLOCKS.map((name) => [name, isOn(document && document[name])])));
  return html`
    <${Form} submit=${() => save(values)} label=${say("app.save")}>
      ${BLOCKS.map((name) => html`
        <${Check} label=${say("setting.block." + name)} name=${name} checked=${values[name]}
          onChange=${(event) => setValues({ ...values, [name]: event.target.checked })} />
      `)}
    <//>
  `;
}

function Tags({ document, save, remove }) {
  const tags = list(document && document.TagSet && document.TagSet.Tag);
  const [pairs, setPairs] = useState(tags.map(({ Key, Value }) => [Key, Value]));
  const submit = () => {
    const Tag = pairs.filter(([name]) => name).map(([Key, Value]) => ({ Key, Value }));
    return Tag.length ? save({ TagSet: { Tag } }) : remove();
  };
  return html`
    <${Form} submit=${submit} label=${say("app.save")}>
      <${Pairs} label=${say("setting.name.tags")} pairs=${pairs} change=${setPairs} />
    <//>
  `;
}

// By the names of the API; a policy has no form, for it is JSON in S3, too.
export const FORMS = {
  versioning: Versioning,
  lock: Lock,
  lifecycle: Lifecycle,
  cors: CORS,
  acl: ACL,
  ownership: Ownership,
  publicAccessBlock: PublicAccessBlock,
  tags: Tags,
};
