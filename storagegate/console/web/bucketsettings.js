// The settings of a bucket: all of them, or one as a form and as JSON.

import { useState } from "preact/hooks";
import { APIError, call, has, segment } from "./api.js";
import { FORMS } from "./bucketforms.js";
import { addTexts, say } from "./messages.js";
import { go, link } from "./router.js";
import { Policy } from "./bucketpolicy.js";
import { BucketKeys } from "./bucketkeys.js";
import { contentOf, DeleteBucket, EmptyBucket, mayEmpty } from "./bucketactions.js";
import { announce, Button, Confirm, Field, Form, html, Loaded, useLoad } from "./ui.js";

export { styled } from "./figures.js";

addTexts({
  "setting.sections": "Settings",
  "setting.all": "All settings",
  "setting.name.versioning": "Versions",
  "setting.name.lock": "Object lock",
  "setting.name.encryption": "Encryption",
  "setting.name.lifecycle": "Lifecycle",
  "setting.name.policy": "Policy",
  "setting.name.cors": "CORS",
  "setting.name.acl": "ACL",
  "setting.name.ownership": "Ownership",
  "setting.name.publicAccessBlock": "Public access",
  "setting.name.tags": "Tags",
  "setting.asForm": "Form",
  "setting.asJSON": "JSON",
  "setting.document": "S3 document as JSON",
  "setting.notMade": "Not configured",
  "setting.notJSON": "This is not JSON: {message}",
  "setting.malformed": "This is not a valid document of the setting {name}: a member is missing, misspelled or out of range.",
  "setting.saved": "The setting is saved",
  "setting.removed": "The setting is removed",
  "setting.delete": "Delete",
  "setting.name.delete": "Delete",
  "setting.deleteBucket": "Delete bucket",
  "setting.remove": "Remove setting…",
  "setting.examples": "Start from an example:",
  "setting.example.read": "Anyone may read objects",
  "setting.example.list": "One account may list and read",
  "setting.example.secure": "Only over TLS",
  "setting.keepVersions": "Keep older versions",
  "setting.version.": "Never enabled",
  "setting.version.Enabled": "On",
  "setting.version.Suspended": "Suspended",
  "setting.versionNow.": "An overwrite or a deletion removes the old bytes for good.",
  "setting.versionNow.Enabled": "An overwrite or a deletion keeps the old bytes as an older version.",
  "setting.versionNow.Suspended": "New writes replace the object; older versions stay.",
  "setting.enableVersions": "Enable versions",
  "setting.suspendVersions": "Suspend versions",
  "setting.enableVersionsText": "Every overwrite and deletion then keeps the old bytes, which count towards the size of the bucket. Versions can be suspended, but never disabled.",
  "setting.suspendVersionsText": "New writes then replace the object for good. Older versions stay, and can be restored.",
  "setting.leave": "Leave without saving?",
  "setting.leaveText": "What you changed on this page is not saved.",
  "setting.leaveUnsaved": "Leave",
  "setting.ruleDays": "Enter a whole number of days, from 1",
  "setting.lifecycleHelp": "A rule deletes objects, older versions or unfinished uploads that reach an age in days.",
  "setting.ruleEmpty": "Enter at least one number of days",
  "setting.on": "On",
  "setting.off": "Off",
  "setting.choose": "Choose",
  "setting.lockHelp": "Objects are then kept until a date, or as long as a legal hold is on.",
  "setting.lockOn": "On",
  "setting.lockNone": "New objects get no retention of their own.",
  "setting.lockNow": "New objects are kept for {period} in {mode} mode.",
  "setting.lockAsks": "Object lock cannot be disabled once it is enabled, and versions stay on.",
  "setting.complianceAsks": "For {period} no key, not even the root pair, can delete or overwrite a new version.",
  "setting.needsVersions": "Requires versions.",
  "setting.for.Days": "{count} days",
  "setting.for.Years": "{count} years",
  "setting.enableLock": "Enable object lock",
  "setting.defaultRetention": "Retention of new objects",
  "setting.mode.": "None",
  "setting.mode.GOVERNANCE": "GOVERNANCE: keys with the right to bypass it can delete",
  "setting.mode.COMPLIANCE": "COMPLIANCE: no key can shorten or lift it",
  "setting.period": "Period",
  "setting.unit": "Unit",
  "setting.unit.Days": "days",
  "setting.unit.Years": "years",
  "setting.encryption": "Default encryption of new objects",
  "setting.encryptionHelp": "A request that names an encryption itself gets that one. Objects that exist stay as they are.",
  "setting.encryption.": "None",
  "setting.encryption.AES256": "SSE-S3: with the keys of this server",
  "setting.encryption.aws:kms": "SSE-KMS: with a master key of your choice",
  "setting.encryptionBadge.": "None",
  "setting.encryptionBadge.AES256": "SSE-S3",
  "setting.encryptionBadge.aws:kms": "SSE-KMS",
  "setting.encryptionNow.": "New objects are encrypted only if their request or the server's configuration asks for it.",
  "setting.encryptionNow.AES256": "New objects are encrypted with the keys of this server.",
  "setting.encryptionNow.aws:kms": "New objects are encrypted with the default master key.",
  "setting.encryptionNow.key": "New objects are encrypted with the master key {key}.",
  "setting.masterKey": "Master key",
  "setting.masterKeyHelp": "A name, or an ARN that ends in one. Empty for the default key.",
  "setting.blockCustomerKeys": "Refuse writes with keys of clients (SSE-C)",
  "setting.ruleNumber": "Rule {number}",
  "setting.addRule": "Add rule",
  "setting.removeRule": "Remove rule {number}",
  "setting.ruleElsewhere": "This rule has members that the form does not show. Change it as JSON.",
  "setting.below": "Keys that begin with {prefix}:",
  "setting.everywhere": "All keys:",
  "setting.doesNothing": "No action yet",
  "setting.does.expire": "deleted after {days} days",
  "setting.does.expireOld": "older versions deleted after {days} days",
  "setting.does.abort": "unfinished uploads aborted after {days} days",
  "setting.lifecycleAsks": "What is old enough is deleted within a day, and cannot be restored.",
  "setting.lifecycleKeeps": "What is old enough is deleted within a day; older versions keep it.",
  "setting.rule.id": "Name",
  "setting.rule.prefix": "Keys that begin with",
  "setting.rule.prefixHelp": "Empty for every object of the bucket.",
  "setting.rule.expire": "Delete objects after, days",
  "setting.rule.expireOld": "Delete older versions after, days",
  "setting.rule.abort": "Abort unfinished uploads after, days",
  "setting.rule.on": "On",
  "setting.onePerLine": "One per line; * stands for any text.",
  "setting.cors.AllowedOrigin": "Origins",
  "setting.cors.AllowedHeader": "Request headers",
  "setting.cors.ExposeHeader": "Response headers that scripts may read",
  "setting.cors.maxAge": "Seconds that browsers cache the result",
  "setting.cors.methods": "Methods",
  "setting.cors.noMethod": "Choose at least one method",
  "setting.corsNow": "Pages of these origins may use {methods}",
  "setting.tagNoName": "Enter a name for this value",
  "setting.tagTwice": "The name {name} comes twice",
  "setting.tagLong": "A name has at most 128 characters, a value 256",
  "setting.tagReserved": "Names that begin with aws: are reserved",
  "setting.tagsMany": "A bucket has at most {count} tags",
  "setting.acl": "Everyone but the owner may",
  "setting.aclHelp": "Requires an ownership with ACLs, and no public access block against it.",
  "setting.acl.": "see the JSON",
  "setting.acl.private": "nothing",
  "setting.acl.public-read": "list, without signing in",
  "setting.acl.public-read-write": "list and write, without signing in",
  "setting.acl.authenticated-read": "list, with any key",
  "setting.aclBadge.": "Other grants",
  "setting.aclBadge.private": "Private",
  "setting.aclBadge.public-read": "Public read",
  "setting.aclBadge.public-read-write": "Public read and write",
  "setting.aclBadge.authenticated-read": "Any key",
  "setting.aclNow": "By the ACL of the bucket, everyone but the owner may: {what}.",
  "setting.aclAsks.public-read": "Anyone who reaches this server can then list the names in this bucket, without signing in.",
  "setting.aclAsks.public-read-write": "Anyone who reaches this server can then list, store, overwrite and delete objects in this bucket, without signing in.",
  "setting.aclAsks.authenticated-read": "Every key of every account can then list the names in this bucket.",
  "setting.ownership": "Objects belong to",
  "setting.ownership.BucketOwnerEnforced": "the bucket's owner; ACLs are disabled",
  "setting.ownership.BucketOwnerPreferred": "the bucket's owner, where the writer agrees",
  "setting.ownership.ObjectWriter": "the account that wrote them",
  "setting.ownershipNow": "New objects belong to {who}.",
  "setting.ownershipAsks": "ACLs work again: an ACL of the bucket or of one object can then open it to others, and writers can own what they store.",
  "setting.block.BlockPublicAcls": "Refuse ACLs that make something public",
  "setting.block.IgnorePublicAcls": "Ignore ACLs that make something public",
  "setting.block.BlockPublicPolicy": "Refuse policies that make something public",
  "setting.block.RestrictPublicBuckets": "Let only the owner's account use a public policy",
  "setting.blockNow": "{count} of {all} on",
  "setting.blockAsks.BlockPublicAcls": "ACLs can then make objects of this bucket public.",
  "setting.blockAsks.IgnorePublicAcls": "Public ACLs that exist then take effect again.",
  "setting.blockAsks.BlockPublicPolicy": "A policy can then make this bucket public.",
  "setting.blockAsks.RestrictPublicBuckets": "A public policy that exists then takes effect for everyone again.",
  "setting.removeText.policy": "Everyone whom the policy lets in is shut out, and what it denies is allowed again.",
  "setting.removeText.publicAccessBlock": "ACLs and policies can then make this bucket public again.",
  "setting.removeText.lifecycle": "Nothing is deleted by itself any more.",
  "setting.removeText.encryption": "New objects are then stored without encryption, unless their request or the server's configuration asks for it. Objects that exist stay encrypted.",
  "setting.removeText.cors": "Pages of other origins can then no longer use the bucket from a browser.",
  "setting.removeText.ownership": "The bucket then behaves as if it had never been configured; ACLs may work again.",
  "setting.removeText.tags": "The bucket then has no tags.",
});

// By the tabs of the page of a bucket.
const SETTINGS = {
  settings: ["versioning", "lock", "encryption", "lifecycle", "cors", "tags", "delete"],
  access: ["policy", "publicAccessBlock", "ownership", "acl"],
};

// Those that S3 has an operation for that removes them, or a document without rules.
const REMOVABLE = new Set(["encryption", "lifecycle", "policy", "cors", "ownership", "publicAccessBlock", "tags"]);

const statement = (bucket, Principal, Action, more) => ({
  Version: "2012-10-17",
  Statement: [{
    Effect: "Allow",
    Principal,
    Action,
    Resource: ["arn:aws:s3:::" + bucket, "arn:aws:s3:::" + bucket + "/*"],
    ...more,
  }],
});

const EXAMPLES = {
  read: (bucket) =>
    statement(bucket, "*", ["s3:GetObject"], { Resource: ["arn:aws:s3:::" + bucket + "/*"] }),
  list: (bucket) => statement(bucket, { AWS: ["ACCOUNT"] }, ["s3:ListBucket", "s3:GetObject"]),
  secure: (bucket) => statement(bucket, "*", ["s3:*"], {
    Effect: "Deny", Condition: { Bool: { "aws:SecureTransport": "false" } },
  }),
};

function JSONEditor({ document, save }) {
  const before = document === undefined ? "" : JSON.stringify(document, null, 2);
  const [text, setText] = useState(before);
  async function submit() {
    let body;
    try {
      body = JSON.parse(text);
    } catch (error) {
      throw new APIError(0, "", say("setting.notJSON", { message: error.message }));
    }
    await save(body);
  }
  return html`
    <${Form} submit=${submit} label=${say("app.save")} disabled=${!text.trim() || text === before}>
      <${Field} label=${say("setting.document")}>
        ${(given) => html`
          <textarea ...${given} spellcheck=${false} value=${text}
            onInput=${(event) => setText(event.target.value)}></textarea>
        `}
      <//>
    <//>
  `;
}

async function read(path, signal) {
  try {
    return { document: (await call("GET", path, { signal })) ?? undefined };
  } catch (error) {
    if (error.status === 404 && error.code !== "OFFLINE") return { document: undefined };
    throw error;
  }
}

function Setting({ bucket, info, name, asJSON, statement, reload }) {
  const path = "buckets/" + segment(bucket) + "/settings/" + name;
  const found = useLoad((signal) => read(path, signal), []);
  const [asks, setAsks] = useState(false);
  async function save(body) {
    try {
      await call("PUT", path, { body });
    } catch (error) {
      // The pages have no XML: the API makes it of this document.
      if (error.code === "MalformedXML") error.message = say("setting.malformed", { name: say("setting.name." + name) });
      throw error;
    }
    announce(say("setting.saved"));
    found.reload();
    reload();
  }
  async function remove() {
    await call("DELETE", path);
    announce(say("setting.removed"));
    setAsks(false);
    found.reload();
    reload();
  }
  const Shown = name === "policy" ? Policy : asJSON ? JSONEditor : FORMS[name];
  const saysItself = ["versioning", "lock", "encryption", "policy"].includes(name);
  return html`
    <${Loaded} of=${found} rows=${4}>
      ${({ document }) => html`
        ${document === undefined && !saysItself && html`
          <p class="now"><span class="badge">${say("setting.notMade")}</span></p>`}
        <${Shown} key=${found.atMs + String(asJSON)} bucket=${bucket} info=${info} save=${save} remove=${remove} examples=${EXAMPLES} statement=${statement}
          document=${document === "" ? {} : document} />
        ${document !== undefined && REMOVABLE.has(name) && html`
          <${Button} kind="danger" onClick=${() => setAsks(true)}>${say("setting.remove")}<//>
        `}
      `}
    <//>
    ${asks && html`
      <${Confirm} title=${say("setting.name." + name)} text=${say("setting.removeText." + name)} act=${remove}
        label=${say("setting.delete")} onClose=${() => setAsks(false)} />
    `}
  `;
}

// `onJob(job)` gets the job that empties the bucket.
function Removal({ info, onJob }) {
  const [dialog, setDialog] = useState("");
  const close = () => setDialog("");
  return html`
    ${mayEmpty(info) && html`
      <h3>${say("bucket.emptyRun")}</h3><p class="now">${say("bucket.emptyNow", { what: contentOf(info) })}</p>
      <${Button} icon="close" kind="danger" onClick=${() => setDialog("empty")}>${say("bucket.empty")}<//>`}
    <h3>${say("setting.deleteBucket")}</h3><p class="now">${say("bucket.deleteText")}</p>
    <${Button} icon="trash" kind="danger" onClick=${() => setDialog("delete")}>${say("bucket.delete")}<//>
    ${dialog === "empty" && html`<${EmptyBucket} bucket=${info} onClose=${close} onDone=${onJob} />`}
    ${dialog === "delete" && html`<${DeleteBucket} bucket=${info} onClose=${close} onDone=${() => go(["buckets"])} />`}
  `;
}

// `query` says which section is open, {setting, view}, so that a link leads to it; `reload` describes the bucket anew.
export function BucketSettings({ bucket, info, tab, query, reload, onJob }) {
  const names = SETTINGS[tab];
  const { setting, view } = query;
  // All settings stand below each other, unless one is chosen; a policy takes a page of its own.
  const chosen = names.includes(setting) ? setting : tab === "access" ? names[0] : "";
  const to = (values, isCurrent, text) => html`
    <a href=${link(["buckets", bucket, tab], values)} aria-current=${isCurrent ? "page" : undefined}
      onClick=${(event) => {
        event.preventDefault();
        go(["buckets", bucket, tab], values, true);
      }}>${text}</a>
  `;
  function section(name) {
    const asJSON = FORMS[name] !== undefined && chosen !== "" && view === "json";
    return html`
      <section class="card" key=${name}>
        <header><h2>${say("setting.name." + name)}</h2>
          ${!chosen && FORMS[name] && to({ setting: name, view: "json" }, false, say("setting.asJSON"))}</header>
        ${name === "delete"
          ? html`<${Removal} info=${info} onJob=${onJob} />`
          : html`
            ${chosen && FORMS[name] && html`
              <nav class="tabs" aria-label=${say("setting.name." + name)}>
                ${to({ setting: name }, !asJSON, say("setting.asForm"))}
                ${to({ setting: name, view: "json" }, asJSON, say("setting.asJSON"))}
              </nav>
            `}
            <${Setting} key=${name} bucket=${bucket} info=${info} name=${name} asJSON=${asJSON} reload=${reload} statement=${query.statement} />
          `}
      </section>
    `;
  }
  return html`
    <div class="settings">
      <nav class="settingsNav" aria-label=${say("setting.sections")}>
        ${tab === "settings" && to({}, !chosen, say("setting.all"))}
        ${names.map((each) => to({ setting: each, view }, each === chosen, say("setting.name." + each)))}
      </nav>
      <div>${(chosen ? [chosen] : names).map(section)}
        ${tab === "access" && has("auditor") && html`<${BucketKeys} bucket=${bucket} info=${info} />`}</div>
    </div>
  `;
}
