// The settings of a bucket: each a section that is loaded when it is opened, as a form and as JSON.

import { useState } from "preact/hooks";
import { APIError, call, segment } from "./api.js";
import { FORMS } from "./bucketforms.js";
import { addTexts, say } from "./messages.js";
import { go, link } from "./router.js";
import { announce, Button, Confirm, Field, Form, html, Loaded, useLoad } from "./ui.js";

export { styled } from "./figures.js";

addTexts({
  "setting.sections": "Settings",
  "setting.name.versioning": "Versions",
  "setting.name.lock": "Object lock",
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
  "setting.removeText": "The bucket then behaves as if it had never been configured.",
  "setting.delete": "Delete",
  "setting.name.delete": "Delete bucket",
  "setting.deleteBucket": "Delete bucket",
  "setting.deleteText": "Only an empty bucket can be deleted. This cannot be undone.",
  "setting.deleted": "The bucket is deleted",
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
  "setting.ruleEmpty": "Enter at least one number of days",
  "setting.lockHelp": "Object lock requires versions, and cannot be disabled once it is enabled.",
  "setting.enableLock": "Enable object lock",
  "setting.defaultRetention": "Retention of new objects",
  "setting.mode.": "none",
  "setting.mode.GOVERNANCE": "GOVERNANCE: keys with the right to bypass it can delete",
  "setting.mode.COMPLIANCE": "COMPLIANCE: no key can shorten or lift it",
  "setting.period": "Period",
  "setting.unit": "Unit",
  "setting.unit.Days": "days",
  "setting.unit.Years": "years",
  "setting.ruleNumber": "Rule {number}",
  "setting.addRule": "Add rule",
  "setting.removeRule": "Remove rule {number}",
  "setting.ruleElsewhere": "This rule has members that the form does not show. Change it as JSON.",
  "setting.rule.id": "Name",
  "setting.rule.prefix": "Keys that begin with",
  "setting.rule.expire": "Delete objects after days",
  "setting.rule.expireOld": "Delete older versions after days",
  "setting.rule.abort": "Abort uploads after days",
  "setting.rule.on": "On",
  "setting.onePerLine": "One per line; * stands for any text.",
  "setting.cors.AllowedOrigin": "Origins",
  "setting.cors.AllowedHeader": "Request headers",
  "setting.cors.ExposeHeader": "Response headers that scripts may read",
  "setting.cors.maxAge": "Seconds that browsers cache the result",
  "setting.acl": "Everyone but the owner may",
  "setting.aclHelp": "Requires an ownership with ACLs, and no public access block against it.",
  "setting.acl.": "see the JSON",
  "setting.acl.private": "nothing",
  "setting.acl.public-read": "list, without signing in",
  "setting.acl.public-read-write": "list and write, without signing in",
  "setting.acl.authenticated-read": "list, with any key",
  "setting.ownership": "Objects belong to",
  "setting.ownership.BucketOwnerEnforced": "the bucket's owner; ACLs are disabled",
  "setting.ownership.BucketOwnerPreferred": "the bucket's owner, where the writer agrees",
  "setting.ownership.ObjectWriter": "the account that wrote them",
  "setting.block.BlockPublicAcls": "Refuse ACLs that make something public",
  "setting.block.IgnorePublicAcls": "Ignore ACLs that make something public",
  "setting.block.BlockPublicPolicy": "Refuse policies that make something public",
  "setting.block.RestrictPublicBuckets": "Let only the owner's account use a public policy",
});

// By the tabs of the page of a bucket.
const SETTINGS = {
  settings: ["versioning", "lock", "lifecycle", "cors", "tags", "delete"],
  access: ["policy", "publicAccessBlock", "ownership", "acl"],
};

// Those that S3 has an operation for that removes them, or a document without rules.
const REMOVABLE = new Set(["lifecycle", "policy", "cors", "ownership", "publicAccessBlock", "tags"]);

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

function JSONEditor({ bucket, name, document, save }) {
  const [text, setText] = useState(document === undefined ? "" : JSON.stringify(document, null, 2));
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
    ${name === "policy" && html`
      <p>${say("setting.examples")}</p>
      <div class="buttons">${Object.entries(EXAMPLES).map(([example, make]) => html`
        <${Button} onClick=${() => setText(JSON.stringify(make(bucket), null, 2))}>
          ${say("setting.example." + example)}<//>
      `)}</div>
    `}
    <${Form} submit=${submit} label=${say("app.save")} disabled=${!text.trim()}>
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

function Setting({ bucket, name, asJSON, reload }) {
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
  }
  const Shown = asJSON ? JSONEditor : FORMS[name];
  return html`
    <${Loaded} of=${found} rows=${4}>
      ${({ document }) => html`
        ${document === undefined && name !== "versioning" && html`
          <p class="now"><span class="badge">${say("setting.notMade")}</span></p>`}
        <${Shown} key=${found.atMs + String(asJSON)} bucket=${bucket} name=${name} save=${save} remove=${remove}
          document=${document === "" ? {} : document} />
        ${document !== undefined && REMOVABLE.has(name) && html`
          <${Button} kind="danger" onClick=${() => setAsks(true)}>${say("setting.remove")}<//>
        `}
      `}
    <//>
    ${asks && html`
      <${Confirm} title=${say("setting.name." + name)} text=${say("setting.removeText")} act=${remove}
        label=${say("setting.delete")} onClose=${() => setAsks(false)} />
    `}
  `;
}

function DeleteBucket({ bucket }) {
  const [asks, setAsks] = useState(false);
  async function remove() {
    await call("DELETE", "buckets/" + segment(bucket));
    announce(say("setting.deleted"));
    go(["buckets"]);
  }
  return html`
    <p class="now">${say("setting.deleteText")}</p>
    <${Button} icon="trash" kind="danger" onClick=${() => setAsks(true)}>${say("setting.deleteBucket")}<//>
    ${asks && html`
      <${Confirm} title=${say("setting.deleteBucket")} text=${say("setting.deleteText")} name=${bucket} act=${remove}
        label=${say("setting.delete")} onClose=${() => setAsks(false)} />
    `}
  `;
}

// `query` says which section is open, {setting, view}, so that a link leads to it; `reload` describes the bucket anew.
export function BucketSettings({ bucket, tab, query, reload }) {
  const names = SETTINGS[tab];
  const { setting, view } = query;
  const name = names.includes(setting) ? setting : names[0];
  const asJSON = name !== "delete" && (view === "json" || !FORMS[name]);
  const to = (values, isCurrent, text) => html`
    <a href=${link(["buckets", bucket, tab], values)} aria-current=${isCurrent ? "page" : undefined}
      onClick=${(event) => {
        event.preventDefault();
        go(["buckets", bucket, tab], values, true);
      }}>${text}</a>
  `;
  return html`
    <div class="settings">
      <nav class="settingsNav" aria-label=${say("setting.sections")}>
        ${names.map((each) => to({ setting: each, view }, each === name, say("setting.name." + each)))}
      </nav>
      <section class="card">
        <h2>${say("setting.name." + name)}</h2>
        ${name === "delete"
          ? html`<${DeleteBucket} bucket=${bucket} />`
          : html`
            ${FORMS[name] && html`
              <nav class="tabs" aria-label=${say("setting.name." + name)}>
                ${to({ setting: name }, !asJSON, say("setting.asForm"))}
                ${to({ setting: name, view: "json" }, asJSON, say("setting.asJSON"))}
              </nav>
            `}
            <${Setting} key=${name} bucket=${bucket} name=${name} asJSON=${asJSON} reload=${reload} />
          `}
      </section>
    </div>
  `;
}
