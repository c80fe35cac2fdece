// Whether a key may do something, and the rule that decides, as the daemon says.

import { useState } from "preact/hooks";
import { call, segment } from "./api.js";
import { addTexts, say } from "./messages.js";
import { link } from "./router.js";
import { Field, Form, html, Icon, Select } from "./ui.js";

addTexts({
  "check.title": "Check an access",
  "check.run": "Check",
  "check.key": "Key",
  "check.access": "Access",
  "check.bucket": "Bucket",
  "check.object": "Object key",
  "check.read": "Read (GetObject)",
  "check.write": "Write (PutObject)",
  "check.delete": "Delete (DeleteObject)",
  "check.list": "List (ListObjectsV2)",
  "check.admin": "Administer the bucket",
  "check.allowed": "Allowed",
  "check.refused": "Refused",
  "check.open": "Open in Access",
});

const ACCESSES = ["read", "write", "delete", "list", "admin"];

// `keys` are [access key, text]. Without `bucket`, `keys` has one key, and the form asks for the bucket.
export function AccessCheck({ keys, bucket }) {
  const [values, setValues] = useState({ checkKey: keys[0][0], access: "read", bucket: bucket || "", key: "" });
  const [verdict, setVerdict] = useState(null);
  const set = (name) => (event) => {
    setVerdict(null);
    setValues({ ...values, [name]: event.target.value });
  };
  const { checkKey, ...body } = values;
  const judge = async () => setVerdict(await call("POST", "keys/" + segment(checkKey) + "/judge", { body }));
  return html`
    <${Form} submit=${judge} label=${say("check.run")} kind="">
      ${bucket && html`<${Select} label=${say("check.key")} name="checkKey" value=${checkKey} onChange=${set("checkKey")} options=${keys} />`}
      <${Select} label=${say("check.access")} value=${values.access} onChange=${set("access")}
        options=${ACCESSES.map((name) => [name, say("check." + name)])} />
      <div class="two">
        ${!bucket && html`<${Field} label=${say("check.bucket")} required value=${values.bucket} onInput=${set("bucket")} />`}
        <${Field} label=${say("check.object")} name="checkObject" value=${values.key} onInput=${set("key")} />
      </div>
    <//>
    <div role="status">${verdict && html`
      <div class=${verdict.allowed ? "notice ok" : "notice bad"}><${Icon} name=${verdict.allowed ? "ok" : "error"} /><p class="isolated">
        <strong>${say(verdict.allowed ? "check.allowed" : "check.refused")}</strong>: ${verdict.why}
        ${verdict.statement > 0 && html` <a href=${link(["buckets", values.bucket, "access"], { statement: verdict.statement })}>${say("check.open")}</a>`}</p></div>`}</div>
  `;
}
