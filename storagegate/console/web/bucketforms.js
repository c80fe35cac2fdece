// The settings of a bucket as forms. Each is given the document of S3, and saves the changed one;
// what a form does not show of a document stays as it is.

import { useLayoutEffect, useState } from "preact/hooks";
import { APIError } from "./api.js";
import { list } from "./bucketstatements.js";
import { number, say } from "./messages.js";
import { Pairs } from "./pairs.js";
import { Button, Check, Confirm, Dialog, Field, Form, html, Select } from "./ui.js";

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

export const wrongIn = (error, field) => (error && error.details.field === field ? error.message : "");

// An error that a field shows, and no box below the form.
export const inField = (error, field, more) =>
  Object.assign(error, { details: { ...error.details, field, ...more }, isShown: true });

const lacks = (text, field, more) => inField(new APIError(0, "", text), field, more);

const CLIENT_ERRORS = new Set([400, 409]);

// Where a confirmed question leads, so that no other form asks again.
let leaving = "";

// Ask before a link, or Back, leaves what is changed and not saved: the question, if there is one.
function useLeave(isChanged) {
  const [to, setTo] = useState("");
  useLayoutEffect(() => {
    if (!isChanged) return undefined;
    const here = location.hash;
    leaving = "";
    // Before the event from which the router draws the page: it sees the old address again.
    const moved = () => {
      const { hash } = location;
      if (hash === here || hash === leaving) return;
      history.pushState(null, "", here);
      setTo(hash);
    };
    const clicked = (event) => {
      const found = event.target.closest("a[href^='#/']");
      if (!found || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      setTo(found.hash);
    };
    addEventListener("click", clicked, true);
    addEventListener("popstate", moved);
    return () => {
      removeEventListener("click", clicked, true);
      removeEventListener("popstate", moved);
    };
  }, [isChanged]);
  const stay = () => setTo("");
  return to && html`
    <${Confirm} title=${say("setting.leave")} text=${say("setting.leaveText")} label=${say("setting.leaveUnsaved")} onClose=${stay}
      act=${async () => {
        leaving = to;
        location.hash = to;
      }} />
  `;
}

// A form that saves a change. Nothing changed, nothing to save; a `consequence` is a sentence that is confirmed first:
// the change cannot be undone, or opens the bucket to others. A refusal is shown at the `field` that it concerns.
// `isTyped` says whether leaving loses something, where a form can be saved untouched.
export function ChangeForm({ isChanged, isTyped = isChanged, consequence, label = say("app.save"), save, field, children }) {
  const [asks, setAsks] = useState(false);
  const [refusal, setRefusal] = useState(null);
  async function store() {
    setRefusal(null);
    try {
      await save();
    } catch (error) {
      throw field && CLIENT_ERRORS.has(error.status) ? inField(error, field) : error;
    }
  }
  const close = () => setAsks(false);
  const leave = useLeave(isTyped);
  async function confirmed() {
    try {
      await store();
    } catch (error) {
      if (!error.isShown) throw error;
      close();
      setRefusal(error);
    }
  }
  return html`
    <${Form} label=${consequence ? label + "…" : label} disabled=${!isChanged}
      submit=${async () => (consequence ? setAsks(true) : store())}>
      ${(error) => children(error || refusal)}
    <//>
    ${leave}
    ${asks && html`
      <${Dialog} title=${label} onClose=${close}>
        <${Form} submit=${confirmed} label=${label} kind="danger" onCancel=${close}><p>${consequence}</p><//>
      <//>
    `}
  `;
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

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

function Lock({ document, save, info }) {
  const rule = (document && document.Rule && document.Rule.DefaultRetention) || {};
  const now = { mode: rule.Mode || "", unit: rule.Years ? "Years" : "Days", count: String(rule.Years || rule.Days || "") };
  const [values, setValues] = useState(now);
  const change = (some) => setValues((before) => ({ ...before, ...some }));
  const { mode, unit, count } = values;
  const wanted = { ObjectLockEnabled: "Enabled" };
  if (mode) wanted.Rule = { DefaultRetention: { Mode: mode, [unit]: count } };
  const needsVersions = document === undefined && info && info.versioning !== "Enabled";
  const period = say("setting.for." + unit, { count });
  let consequence = "";
  if (document === undefined) consequence = say("setting.lockAsks");
  if (mode === "COMPLIANCE" && !same(values, now)) consequence += " " + say("setting.complianceAsks", { period });
  return html`
    <p class="now"><span class=${document ? "badge ok" : "badge"}>${say(document ? "setting.lockOn" : "setting.notMade")}</span>
      ${needsVersions ? say("setting.needsVersions") : now.mode
        ? say("setting.lockNow", { mode: now.mode, period: say("setting.for." + now.unit, { count: now.count }) })
        : say(document ? "setting.lockNone" : "setting.lockHelp")}</p>
    <${ChangeForm} save=${() => save(wanted)} label=${say(document ? "app.save" : "setting.enableLock")} field="period"
      isChanged=${!needsVersions && (document === undefined || !same(values, now))} isTyped=${!same(values, now)} consequence=${consequence.trim()}>
      ${(error) => html`
        <${Select} label=${say("setting.defaultRetention")} name="mode" value=${mode} disabled=${needsVersions}
          error=${mode ? "" : wrongIn(error, "period")}
          onChange=${(event) => change({ mode: event.target.value })}
          options=${choices(["", "GOVERNANCE", "COMPLIANCE"], (each) => say("setting.mode." + each))} />
        ${mode && html`<div class="two">
          <${Field} label=${say("setting.period")} type="number" min="1" name="period" required value=${count}
            error=${wrongIn(error, "period")} onInput=${(event) => change({ count: event.target.value })} />
          <${Select} label=${say("setting.unit")} name="unit" value=${unit}
            onChange=${(event) => change({ unit: event.target.value })}
            options=${choices(["Days", "Years"], (each) => say("setting.unit." + each))} />
        </div>`}
      `}
    <//>
  `;
}

const KINDS = ["", "AES256", "aws:kms"];

function Encryption({ document, save, remove }) {
  const [rule = {}] = list(document && document.Rule);
  const before = rule.ApplyServerSideEncryptionByDefault || {};
  const blocked = list((rule.BlockedEncryptionTypes || {}).EncryptionType);
  const now = { kind: before.SSEAlgorithm || "", key: before.KMSMasterKeyID || "", blocks: blocked.includes("SSE-C") };
  const [values, setValues] = useState(now);
  const change = (some) => setValues((old) => ({ ...old, ...some }));
  const { kind, blocks } = values;
  const key = kind === "aws:kms" ? values.key.trim() : "";
  const wanted = { kind, key, blocks };
  const submit = () => {
    const made = withMembers(rule, {
      ApplyServerSideEncryptionByDefault: kind && withMembers(before, { SSEAlgorithm: kind, KMSMasterKeyID: key }),
      BlockedEncryptionTypes: blocks === now.blocks ? rule.BlockedEncryptionTypes : blocks && { EncryptionType: ["SSE-C"] },
    });
    if (!blocks && now.blocks) delete made.BlockedEncryptionTypes;
    return kind || blocks ? save({ Rule: [made] }) : remove();
  };
  return html`
    <p class="now"><span class=${now.kind ? "badge ok" : "badge"}>${say("setting.encryptionBadge." + now.kind)}</span>
      ${now.key ? say("setting.encryptionNow.key", { key: now.key }) : say("setting.encryptionNow." + now.kind)}</p>
    <${ChangeForm} save=${async () => submit()} isChanged=${!same(wanted, now)} field="encryption"
      consequence=${now.kind && !kind ? say("setting.removeText.encryption") : ""}>
      ${(error) => html`
        <${Select} label=${say("setting.encryption")} help=${say("setting.encryptionHelp")} name="encryption" value=${kind}
          error=${wrongIn(error, "encryption")} onChange=${(event) => change({ kind: event.target.value })}
          options=${choices(KINDS, (each) => say("setting.encryption." + each))} />
        ${kind === "aws:kms" && html`
          <${Field} label=${say("setting.masterKey")} help=${say("setting.masterKeyHelp")} name="masterKey" spellcheck=${false}
            value=${values.key} onInput=${(event) => change({ key: event.target.value })} />
        `}
        <p><label class="switchLine"><input type="checkbox" role="switch" class="switch" name="blocks" checked=${blocks}
          onChange=${(event) => change({ blocks: event.target.checked })} /> ${say("setting.blockCustomerKeys")}</label></p>
      `}
    <//>
  `;
}

// The actions of a rule, and where its document has their days.
const RULE_ACTIONS = [
  ["expire", "Expiration", "Days"],
  ["expireOld", "NoncurrentVersionExpiration", "NoncurrentDays"],
  ["abort", "AbortIncompleteMultipartUpload", "DaysAfterInitiation"],
];

const KNOWN = new Set(["ID", "Status", "Filter", ...RULE_ACTIONS.map(([, member]) => member)]);

function isPlain(rule) {
  const filter = rule.Filter || {};
  return Object.keys(rule).every((name) => KNOWN.has(name)) &&
    Object.keys(filter).every((name) => name === "Prefix") &&
    RULE_ACTIONS.every(([, member, days]) => !rule[member] || Object.keys(rule[member]).join() === days);
}

const isWrong = (rule, member, days) => rule[member] && !/^[1-9]\d*$/.test(rule[member][days]);

const prefixOf = (rule) => (rule.Filter && rule.Filter.Prefix) || "";

// What a rule does, in a sentence.
function ruleText(rule) {
  if (!isPlain(rule)) return say("setting.ruleElsewhere");
  const parts = RULE_ACTIONS.filter(([, member, days]) => rule[member] && !isWrong(rule, member, days)).map(([name, member, days]) =>
    say("setting.does." + name, { days: number(rule[member][days]) }));
  const where = prefixOf(rule) ? say("setting.below", { prefix: prefixOf(rule) }) : say("setting.everywhere");
  return parts.length ? where + " " + parts.join(", ") : say("setting.doesNothing");
}

// A rule: a line that says what it does, and its fields below.
const RuleBox = ({ title, text, isOn: on, isOpen, children }) => html`
  <details class="rule" open=${isOpen}>
    <summary><b>${title}</b>${on !== undefined && html`<span class=${on ? "badge ok" : "badge"}>${say(on ? "setting.on" : "setting.off")}</span>`}
      <span class="quiet">${text}</span></summary>
    <div class="ruleBody">${children}</div>
  </details>
`;

function LifecycleRule({ rule, number: at, isNew, change, remove, error, info }) {
  const isEmpty = !RULE_ACTIONS.some(([, member]) => rule[member]);
  const isRefused = error && error.details.rule === at;
  // One message, at the first field that it concerns.
  const wrong = isRefused && RULE_ACTIONS.find(([, member, days]) => isEmpty || isWrong(rule, member, days));
  const field = (name, value, members, more) => html`
    <${Field} label=${say("setting.rule." + name)} name=${name + at} value=${value || ""}
      onInput=${(event) => change(withMembers(rule, members(event.target.value)))} ...${more} />
  `;
  return html`
    <${RuleBox} title=${rule.ID || say("setting.ruleNumber", { number: at })} text=${ruleText(rule)}
      isOn=${rule.Status === "Enabled"} isOpen=${isNew || Boolean(wrong)}>
      ${isPlain(rule) && html`
        <div class="two">${field("id", rule.ID, (ID) => ({ ID }))}
          ${field("prefix", prefixOf(rule), (Prefix) => ({ Filter: { Prefix } }), { help: say("setting.rule.prefixHelp") })}</div>
        <div class="two">${RULE_ACTIONS.map(([name, member, days]) => field(name, rule[member] && rule[member][days],
          (value) => ({ [member]: value && { [days]: value } }), {
            inputmode: "numeric", error: wrong && wrong[0] === name ? error.message : "", placeholder: say("app.never"),
            help: name === "expireOld" && info && !info.versioning ? say("setting.version.") : "",
          }))}</div>
        <${Check} label=${say("setting.rule.on")} checked=${rule.Status === "Enabled"}
          onChange=${(event) => change({ ...rule, Status: event.target.checked ? "Enabled" : "Disabled" })} />
      `}
      <${Button} icon="trash" kind="small" onClick=${remove}>${say("setting.removeRule", { number: at })}<//>
    <//>
  `;
}

// A form of rules, each drawn by `of`; `made` is a new one. `check(rule)` returns what a rule lacks, or nothing;
// `asks(rules, before)` what their consequence is.
function Rules({ member, of: Rule, made, finish = (rule) => rule, check = () => "", asks = () => "", document, save, remove, info }) {
  const before = list(document && document[member]);
  const [rules, setRules] = useState(before);
  const submit = async () => {
    rules.forEach((rule, at) => {
      const text = check(rule);
      if (text) throw lacks(text, "rule", { rule: at + 1 });
    });
    await (rules.length ? save({ ...document, [member]: rules.map(finish) }) : remove());
  };
  return html`
    <${ChangeForm} save=${submit} isChanged=${!same(rules, before)}
      consequence=${rules.every((rule) => !check(rule)) ? asks(rules.map(finish), before) : ""}>
      ${(error) => html`${rules.map((rule, at) => html`
        <${Rule} key=${at} rule=${rule} number=${at + 1} isNew=${at >= before.length} error=${error} info=${info}
          change=${(changed) => setRules(rules.with(at, changed))}
          remove=${() => setRules(rules.filter((each) => each !== rule))} />
      `)}
      <${Button} icon="add" onClick=${() => setRules([...rules, { ...made }])}>${say("setting.addRule")}<//>`}
    <//>
  `;
}

// Rules that begin to delete objects, or do it in another way.
function lifecycleAsks(rules, before, info) {
  const deletes = ({ Status, Expiration, NoncurrentVersionExpiration }) => Status === "Enabled" && (Expiration || NoncurrentVersionExpiration);
  const known = new Set(before.map((rule) => JSON.stringify(rule)));
  const found = rules.filter((rule) => deletes(rule) && !known.has(JSON.stringify(rule)));
  if (!found.length) return "";
  const isLost = !info || info.versioning !== "Enabled" || found.some((rule) => rule.NoncurrentVersionExpiration);
  return found.map((rule) => ruleText(rule) + ".").join(" ") + " " + say(isLost ? "setting.lifecycleAsks" : "setting.lifecycleKeeps");
}

function lacking(rule) {
  if (!isPlain(rule)) return "";
  if (RULE_ACTIONS.some(([, member, days]) => isWrong(rule, member, days))) return say("setting.ruleDays");
  return RULE_ACTIONS.some(([, member]) => rule[member]) ? "" : say("setting.ruleEmpty");
}

const Lifecycle = (given) => html`
  <p class="now">${say("setting.lifecycleHelp")}</p>
  <${Rules} ...${given} member="Rule" of=${LifecycleRule} made=${{ Status: "Enabled", Filter: {} }}
    asks=${(rules, before) => lifecycleAsks(rules, before, given.info)}
    check=${lacking}
    finish=${(rule) => (isPlain(rule) ? { ...rule, Filter: { Prefix: prefixOf(rule) } } : rule)} />
`;

const METHODS = ["GET", "HEAD", "PUT", "POST", "DELETE"];

function CORSRule({ rule, number: at, isNew, change, remove, error }) {
  const [texts, setTexts] = useState(() => Object.fromEntries(
    ["AllowedOrigin", "AllowedHeader", "ExposeHeader"].map((name) => [name, list(rule[name]).join("\n")])));
  const wrong = error && error.details.rule === at ? error.message : "";
  const area = (name, more) => html`
    <${Field} label=${say("setting.cors." + name)} help=${say("setting.onePerLine")}>
      ${(given) => html`
        <textarea class="short" name=${name + at} spellcheck=${false} ...${given} ...${more}
          value=${texts[name]} onInput=${(event) => {
            setTexts({ ...texts, [name]: event.target.value });
            change(withMembers(rule, { [name]: lines(event.target.value) }));
          }}></textarea>
      `}
    <//>
  `;
  const methods = list(rule.AllowedMethod);
  return html`
    <${RuleBox} title=${list(rule.AllowedOrigin).join(", ") || say("setting.ruleNumber", { number: at })}
      text=${say("setting.corsNow", { methods: methods.join(", ") || "–" })} isOpen=${isNew || Boolean(wrong)}>
      ${area("AllowedOrigin", { required: true })}
      <fieldset class="checks"><legend>${say("setting.cors.methods")}</legend>${METHODS.map((method) => html`
        <${Check} label=${method} checked=${methods.includes(method)} aria-invalid=${wrong ? "true" : undefined} onChange=${(event) => change({
          ...rule,
          AllowedMethod: event.target.checked
            ? [...methods, method] : methods.filter((each) => each !== method),
        })} />
      `)}</fieldset>
      ${wrong && html`<p class="help bad" role="alert">${wrong}</p>`}
      ${area("AllowedHeader")}${area("ExposeHeader")}
      <${Field} label=${say("setting.cors.maxAge")} type="number" min="0" name=${"maxAge" + at}
        value=${rule.MaxAgeSeconds || ""}
        onInput=${(event) => change(withMembers(rule, { MaxAgeSeconds: event.target.value }))} />
      <${Button} icon="trash" kind="small" onClick=${remove}>${say("setting.removeRule", { number: at })}<//>
    <//>
  `;
}

const CORS = (given) => html`
  <${Rules} ...${given} member="CORSRule" of=${CORSRule} made=${{ AllowedMethod: ["GET"] }}
    check=${(rule) => (list(rule.AllowedMethod).length ? "" : say("setting.cors.noMethod"))} />
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
    <p class="now"><span class=${now === "private" ? "badge" : "badge warn"}>${say("setting.aclBadge." + now)}</span>
      ${now && say("setting.aclNow", { what: say("setting.acl." + now) })}</p>
    <${ChangeForm} save=${submit} isChanged=${Boolean(chosen) && chosen !== now} field="acl"
      consequence=${chosen && CANNED[chosen].length && chosen !== now ? say("setting.aclAsks." + chosen) : ""}>
      ${(error) => html`
        <${Select} label=${say("setting.acl")} help=${say("setting.aclHelp")} name="acl" value=${chosen} error=${wrongIn(error, "acl")}
          onChange=${(event) => setChosen(event.target.value)}
          options=${choices([...(now ? [] : [""]), ...Object.keys(CANNED)], (each) => say("setting.acl." + each))} />
      `}
    <//>
  `;
}

const OWNERSHIPS = ["BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"];

function Ownership({ document, save }) {
  const [rule] = list(document && document.Rule);
  const now = (rule && rule.ObjectOwnership) || "";
  const [chosen, setChosen] = useState(now);
  return html`
    ${now && html`<p class="now"><span class="badge">${now}</span> ${say("setting.ownershipNow", { who: say("setting.ownership." + now) })}</p>`}
    <${ChangeForm} save=${() => save({ Rule: [{ ObjectOwnership: chosen }] })} isChanged=${Boolean(chosen) && chosen !== now} field="ownership"
      consequence=${chosen !== OWNERSHIPS[0] && chosen !== now && (!now || now === OWNERSHIPS[0]) ? say("setting.ownershipAsks") : ""}>
      ${(error) => html`
        <${Select} label=${say("setting.ownership")} name="ownership" value=${chosen} error=${wrongIn(error, "ownership")}
          onChange=${(event) => setChosen(event.target.value)}
          options=${choices([...(now ? [] : [""]), ...OWNERSHIPS], (each) => (each ? say("setting.ownership." + each) : say("setting.choose")))} />
      `}
    <//>
  `;
}

const BLOCKS = ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"];

function PublicAccessBlock({ document, save }) {
  const now = Object.fromEntries(BLOCKS.map((name) => [name, isOn(document && document[name])]));
  const [values, setValues] = useState(now);
  const opens = BLOCKS.filter((name) => now[name] && !values[name]);
  const count = BLOCKS.filter((name) => now[name]).length;
  return html`
    ${document !== undefined && html`<p class="now"><span class=${count === BLOCKS.length ? "badge ok" : count ? "badge" : "badge warn"}>
      ${say("setting.blockNow", { count, all: BLOCKS.length })}</span></p>`}
    <${ChangeForm} save=${() => save(values)} isChanged=${!same(values, now)}
      consequence=${opens.map((name) => say("setting.blockAsks." + name)).join(" ")}>
      ${() => BLOCKS.map((name) => html`
        <p><label class="switchLine"><input type="checkbox" role="switch" class="switch" name=${name} checked=${values[name]}
          onChange=${(event) => setValues({ ...values, [name]: event.target.checked })} /> ${say("setting.block." + name)}</label></p>
      `)}
    <//>
  `;
}

const MOST_TAGS = 50;

// What is wrong with tags: [the row, the text].
function wrongTag(pairs) {
  const seen = new Set();
  for (const [at, [name, value]] of pairs.entries()) {
    if (!name && value) return [at, say("setting.tagNoName")];
    if (name && seen.has(name)) return [at, say("setting.tagTwice", { name })];
    if (name.length > 128 || value.length > 256) return [at, say("setting.tagLong")];
    if (name.startsWith("aws:")) return [at, say("setting.tagReserved")];
    seen.add(name);
  }
  return pairs.length > MOST_TAGS ? [MOST_TAGS, say("setting.tagsMany", { count: MOST_TAGS })] : null;
}

function Tags({ document, save, remove }) {
  const now = list(document && document.TagSet && document.TagSet.Tag).map(({ Key, Value }) => [Key, Value]);
  const [pairs, setPairs] = useState(now);
  const wanted = pairs.filter(([name, value]) => name || value);
  const submit = () => {
    const wrong = wrongTag(wanted);
    if (wrong) throw lacks(wrong[1], "tags", { row: wrong[0] });
    const Tag = wanted.map(([Key, Value]) => ({ Key, Value }));
    return Tag.length ? save({ TagSet: { Tag } }) : remove();
  };
  return html`
    <${ChangeForm} save=${async () => submit()} isChanged=${!same(wanted, now)} field="tags">
      ${(error) => html`
        <${Pairs} label=${say("setting.name.tags")} pairs=${pairs} change=${setPairs} error=${wrongIn(error, "tags")}
          wrong=${error && error.details.row} />
      `}
    <//>
  `;
}

// By the names of the API; the policy has a page of its own.
export const FORMS = {
  versioning: Versioning,
  lock: Lock,
  encryption: Encryption,
  lifecycle: Lifecycle,
  cors: CORS,
  acl: ACL,
  ownership: Ownership,
  publicAccessBlock: PublicAccessBlock,
  tags: Tags,
};
