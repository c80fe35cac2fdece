// The secret of a key, shown once, with the configuration of programs beside it.

import { useState } from "preact/hooks";
import { call } from "./api.js";
import { addTexts, age, say } from "./messages.js";
import { Button, CopyButton, Dialog, html, Icon, Loaded, useLoad } from "./ui.js";

addTexts({
  "keys.accessKey": "Access key",
  "keys.secretKey": "Secret key",
  "keys.made": "Key created",
  "keys.secretOnce": "The secret is shown once. Store it now; later it can only be rotated.",
  "keys.done": "I have stored it",
  "keys.clients": "Ready configuration",
  "keys.lastUse": "Last used {age}.",
  "keys.neverUsed": "The key has never been used.",
});

export const lastUse = (ms) => (ms ? say("keys.lastUse", { age: age(ms) }) : say("keys.neverUsed"));

// The configuration of programs that speak S3, by their names.
const CLIENTS = {
  "AWS CLI": ({ id, secret, url, region }) =>
    `aws configure set aws_access_key_id ${id}\naws configure set aws_secret_access_key ${secret}\n` +
    `aws configure set region ${region}\naws configure set endpoint_url ${url}`,
  rclone: ({ id, secret, url, region }) =>
    `[storagegate]\ntype = s3\nprovider = Other\naccess_key_id = ${id}\nsecret_access_key = ${secret}\n` +
    `endpoint = ${url}\nregion = ${region}`,
  s3cmd: ({ id, secret, url, region }) => {
    const { host, protocol } = new URL(url);
    return `[default]\naccess_key = ${id}\nsecret_key = ${secret}\nhost_base = ${host}\nhost_bucket = ${host}\n` +
      `bucket_location = ${region}\nuse_https = ${protocol === "https:" ? "True" : "False"}`;
  },
  boto3: ({ id, secret, url, region }) =>
    `import boto3\n\ns3 = boto3.client(\n    "s3",\n    endpoint_url="${url}",\n    region_name="${region}",\n` +
    `    aws_access_key_id="${id}",\n    aws_secret_access_key="${secret}",\n)`,
  restic: ({ id, secret, url }) =>
    `export AWS_ACCESS_KEY_ID=${id}\nexport AWS_SECRET_ACCESS_KEY=${secret}\nexport RESTIC_REPOSITORY=s3:${url}/BUCKET`,
  Environment: ({ id, secret, url, region }) =>
    `export AWS_ACCESS_KEY_ID=${id}\nexport AWS_SECRET_ACCESS_KEY=${secret}\nexport AWS_REGION=${region}\n` +
    `export AWS_ENDPOINT_URL=${url}`,
};

const MASK = "•".repeat(12);
const PLACE = "SECRET_KEY";

// A command that works with what the key reaches.
function trial({ bucket, prefix, policy }) {
  if (policy === "writeonly") return "";
  const isOne = bucket && !/[*?[]/.test(bucket);
  return "\n\n# Try it\naws s3 ls" + (isOne ? ` s3://${bucket}/${(prefix || "").replace(/\*$/, "")}` : "");
}

// The configuration of six programs; without a secret there is its place.
export function ClientSetup({ of, secret }) {
  const found = useLoad((signal) => call("GET", "endpoint", { signal }), []);
  const [client, setClient] = useState(Object.keys(CLIENTS)[0]);
  const more = ["AWS CLI", "Environment"].includes(client) ? trial(of) : "";
  const text = (shown) => CLIENTS[client]({ id: of.accessKey, secret: shown, ...found.data }) + more;
  return html`<${Loaded} of=${found} rows=${2}>${() => html`
    <div class="toolbar" role="group" aria-label=${say("keys.clients")}>
      ${Object.keys(CLIENTS).map((name) => html`
        <button type="button" class="chip" aria-pressed=${name === client} onClick=${() => setClient(name)}>${name}</button>`)}
    </div>
    <div class="code"><header><span>${client}</span><${CopyButton} text=${text(secret || PLACE)} /></header>
      <pre tabindex="0">${text(secret ? MASK : PLACE)}</pre></div>
  `}<//>`;
}

export function Secret({ made, onClose }) {
  return html`
    <${Dialog} title=${say("keys.made")} wide>
      <p class="notice warn"><${Icon} name="warning" />${say("keys.secretOnce")}</p>
      ${["accessKey", "secretKey"].map((name) => html`
        <div class="code"><header><span>${say("keys." + name)}</span><${CopyButton} text=${made[name]} /></header>
          <pre id=${name}>${made[name]}</pre></div>
      `)}
      <${ClientSetup} of=${made} secret=${made.secretKey} />
      <form><div class="buttons"><${Button} kind="primary" onClick=${onClose}>${say("keys.done")}<//></div></form>
    <//>
  `;
}
