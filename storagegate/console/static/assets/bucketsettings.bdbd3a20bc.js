// The settings of a bucket: each a section that is loaded when it is opened, as a form and as JSON.

import { useState } from "./hooks.ceebd18b27.js";
import { APIError, call, segment } from "./api.3f20c599c2.js";
import { FORMS } from "./bucketforms.9a6f4cfa16.js";
import { addTexts, say } from "./messages.5d7ca40ed1.js";
import { go, link } from "./router.dcba0dcacc.js";
import { announce, Button, Field, Form, html, Loaded, useLoad } from "./ui.7967bae88c.js";

addTexts({
  "setting.sections": "Settings",
  "setting.name.versioning": "Versions",
  "setting.name.lock": "Object lock",
  "setting.name.lifecycle": "Life cycle",
  "setting.name.policy": "Policy",
  "setting.name.cors": "CORS",
  "setting.name.acl": "ACL",
  "setting.name.ownership": "Ownership",
  "setting.name.publicAccessBlock": "Public access block",
  "setting.name.tags": "Tags",
  "setting.asForm": "As a form",
  "setting.asJSON": "As JSON",
  "setting.document": "The document of S3 as JSON",
  "setting.notMade": "It was never made; what is saved here makes it.",
  "setting.notJSON": "This is not JSON: {message}",
  "setting.saved": "The setting is saved",
  "setting.removed": "The setting is removed",
  "setting.remove": "Remove the setting",
  "setting.examples": "Begin with an example:",
  "setting.example.read": "all may read objects",
  "setting.example.list": "one account may list and read",
  "setting.example.secure": "only over TLS",
  "setting.now": "Now:",
  "setting.neverOn": "never enabled",
  "setting.status": "Versions",
  "setting.status.Enabled": "Enabled: a write or a deletion keeps what was there",
  "setting.status.Suspended": "Suspended: no new versions, older ones stay",
  "setting.versioningHelp": "Once enabled, versions are suspended, never disabled.",
  "setting.lockHelp": "Object lock takes versions, and cannot be disabled once it is enabled.",
  "setting.enableLock": "Enable object lock",
  "setting.defaultRetention": "Retention of new objects",
  "setting.mode.": "none",
  "setting.mode.GOVERNANCE": "GOVERNANCE: with the right to, one can bypass it",
  "setting.mode.COMPLIANCE": "COMPLIANCE: no key shortens or lifts it",
  "setting.period": "Period",
  "setting.unit": "Unit",
  "setting.unit.Days": "days",
  "setting.unit.Years": "years",
  "setting.ruleNumber": "Rule {number}",
  "setting.addRule": "Add a rule",
  "setting.removeRule": "Remove rule {number}",
  "setting.ruleElsewhere": "This rule has more than the form shows; it is changed as JSON, and stays as it is here.",
  "setting.rule.id": "Name",
  "setting.rule.prefix": "Keys that begin with",
  "setting.rule.expire": "Delete objects after days",
  "setting.rule.expireOld": "Delete older versions after days",
  "setting.rule.abort": "Abort uploads after days",
  "setting.rule.on": "The rule is applied",
  "setting.onePerLine": "One a line; * stands for any text.",
  "setting.cors.AllowedOrigin": "Origins",
  "setting.cors.AllowedHeader": "Header fields of requests",
  "setting.cors.ExposeHeader": "Header fields of answers that scripts may read",
  "setting.cors.maxAge": "Seconds that browsers keep the answer",
  "setting.acl": "Others than the owner may",
  "setting.aclHelp": "It needs an ownership that has lists, and no public access block against it.",
  "setting.acl.": "as the JSON says",
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

const SETTINGS = [
  "versioning", "lock", "lifecycle", "policy", "cors", "acl", "ownership", "publicAccessBlock", "tags",
];

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

function Setting({ bucket, name, asJSON }) {
  const path = "buckets/" + segment(bucket) + "/settings/" + name;
  const found = useLoad((signal) => read(path, signal), []);
  async function save(body) {
    await call("PUT", path, { body });
    announce(say("setting.saved"));
    found.reload();
  }
  async function remove() {
    await call("DELETE", path);
    announce(say("setting.removed"));
    found.reload();
  }
  const Shown = asJSON ? JSONEditor : FORMS[name];
  return html`
    <${Loaded} of=${found} rows=${4}>
      ${({ document }) => html`
        ${document === undefined && html`<p class="quiet">${say("setting.notMade")}</p>`}
        <${Shown} key=${found.atMs + String(asJSON)} bucket=${bucket} name=${name} save=${save} remove=${remove}
          document=${document === "" ? {} : document} />
        ${document !== undefined && REMOVABLE.has(name) && html`
          <${Form} submit=${remove} label=${say("setting.remove")} kind="danger" />
        `}
      `}
    <//>
  `;
}

// `query` says which section is open, {setting, view}, so that a link leads to it.
export function BucketSettings({ bucket, query }) {
  const { setting = "versioning", view } = query;
  const name = SETTINGS.includes(setting) ? setting : "versioning";
  const asJSON = view === "json" || !FORMS[name];
  const tab = (values, isCurrent, text) => html`
    <a href=${link(["buckets", bucket], values)} aria-current=${isCurrent ? "page" : undefined}
      onClick=${(event) => {
        event.preventDefault();
        go(["buckets", bucket], values, true);
      }}>${text}</a>
  `;
  return html`
    <nav class="tabs" aria-label=${say("setting.sections")}>
      ${SETTINGS.map((each) => tab({ setting: each, view }, each === name, say("setting.name." + each)))}
    </nav>
    ${FORMS[name] && html`
      <nav class="tabs" aria-label=${say("setting.name." + name)}>
        ${tab({ setting: name }, !asJSON, say("setting.asForm"))}
        ${tab({ setting: name, view: "json" }, asJSON, say("setting.asJSON"))}
      </nav>
    `}
    <${Setting} key=${name} bucket=${bucket} name=${name} asJSON=${asJSON} />
  `;
}
