// The secret of a key, shown once, with the configuration of programs beside it.

import { useState } from "preact/hooks";
import { call } from "./api.js";
import { addTexts, say } from "./messages.js";
import { Button, CopyButton, Dialog, html, useLoad } from "./ui.js";

addTexts({
  "keys.made": "Key created",
  "keys.secretOnce": "The secret is shown this once. Store it now.",
  "keys.done": "I have stored it",
  "keys.clients": "Ready configuration",
});

export function localTime(ms) {
  if (!ms) return "";
  const at = new Date(ms);
  return new Date(ms - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}

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

export function Secret({ made, onClose }) {
  const found = useLoad((signal) => call("GET", "endpoint", { signal }), []);
  const [client, setClient] = useState(Object.keys(CLIENTS)[0]);
  const text = (secret) => CLIENTS[client]({ id: made.accessKey, secret, ...found.data });
  return html`
    <${Dialog} title=${say("keys.made")} wide>
      <p>${say("keys.secretOnce")}</p>
      ${["accessKey", "secretKey"].map((name) => html`
        <div class="code"><header>${say("keys." + name)}<${CopyButton} text=${made[name]} /></header>
          <pre id=${name}>${made[name]}</pre></div>
      `)}
      ${found.data && html`
        <div class="toolbar" role="group" aria-label=${say("keys.clients")}>
          ${Object.keys(CLIENTS).map((name) => html`
            <button type="button" class="chip" aria-pressed=${name === client} onClick=${() => setClient(name)}>${name}</button>`)}
        </div>
        <div class="code"><header>${client}<${CopyButton} text=${text(made.secretKey)} /></header><pre tabindex="0">${text(MASK)}</pre></div>
      `}
      <form><div class="buttons"><${Button} kind="primary" onClick=${onClose}>${say("keys.done")}<//></div></form>
    <//>
  `;
}
