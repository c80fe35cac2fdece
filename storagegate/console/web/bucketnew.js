// The dialog of a new bucket.

import { useId, useState } from "preact/hooks";
import { call, has } from "./api.js";
import { addTexts, say } from "./messages.js";
import { link } from "./router.js";
import { Art, Check, Dialog, Field, Form, html, Icon, useAction } from "./ui.js";

addTexts({
  "first.title": "Create the first bucket",
  "first.text": "A bucket holds objects: files under names such as",
  "first.clients": "Any S3 client works with it.",
  "first.head.key": "Make a key",
  "first.about.key": "Programs sign in with a key of their own. It may reach one bucket or one folder.",
  "first.go.key": "New key",
  "first.head.client": "Connect a client",
  "first.about.client": "Ready configuration for six clients is shown beside the secret of a new key.",
  "first.go.client": "Show keys",
  "first.head.gateway": "Call a service",
  "first.about.gateway": "One service answers over HTTP, WebSocket, gRPC, TCP and UDP.",
  "first.go.gateway": "Open the gateway",
  "buckets.nameHelp": "3 to 63 lower-case letters, digits, dots and hyphens.",
  "buckets.locked": "Allow object lock (keeps versions; cannot be undone)",
  "buckets.create": "Create bucket",
});

const NEXT = [
  ["key", "key", ["keys"], { make: "1" }],
  ["terminal", "client", ["keys"], {}],
  ["gateway", "gateway", ["gateway"], {}],
];

// The first visit: a name and a button, and what can be done next.
export function FirstBucket({ onMade }) {
  const [name, setName] = useState("");
  const [make, busy, error] = useAction(async () => onMade(await call("POST", "buckets", { body: { name } })));
  const id = useId();
  return html`
    <div class="state">
      <${Art} />
      <h2>${say("first.title")}</h2><p>${say("first.text")} <code>2026/report.pdf</code>. ${say("first.clients")}</p>
      <form class="firstBucket" onSubmit=${(event) => {
        event.preventDefault();
        make();
      }}>
        <input name="bucket" aria-label=${say("buckets.name")} aria-describedby=${id} aria-invalid=${error ? "true" : undefined} placeholder="invoices"
          autocomplete="off" spellcheck=${false} required value=${name} onInput=${(event) => setName(event.target.value)} />
        <button class="button primary" disabled=${busy}>${say("buckets.create")}</button>
        <small id=${id} class=${error ? "bad" : ""} role=${error ? "alert" : undefined}>${error ? error.message : say("buckets.nameHelp")}</small>
      </form>
    </div>
    <div class="nextSteps">
      ${NEXT.filter(([icon]) => icon !== "gateway" || has("auditor")).map(([icon, text, path, query]) => html`
        <section class="card"><${Icon} name=${icon} /><h3>${say("first.head." + text)}</h3><p class="quiet">${say("first.about." + text)}</p>
          <a href=${link(path, query)}>${say("first.go." + text)}</a></section>
      `)}
    </div>
  `;
}

export function NewBucket({ onClose, onMade }) {
  const [values, setValues] = useState({ name: "", locked: false });
  async function submit() {
    try {
      onMade(await call("POST", "buckets", { body: values }));
    } catch (error) {
      error.isShown = error.status === 400 || error.status === 409;
      throw error;
    }
  }
  const change = (some) => setValues((before) => ({ ...before, ...some }));
  return html`
    <${Dialog} title=${say("buckets.new")} onClose=${onClose}>
      <${Form} submit=${submit}
        label=${say("buckets.create")} onCancel=${onClose}>
        ${(error) => html`
          <${Field} label=${say("buckets.name")} help=${say("buckets.nameHelp")} required autofocus
            error=${error && error.isShown ? error.message : ""}
            name="bucket" value=${values.name} onInput=${(event) => change({ name: event.target.value })} />
          <${Check} label=${say("buckets.locked")} checked=${values.locked}
            onChange=${(event) => change({ locked: event.target.checked })} />
        `}
      <//>
    <//>
  `;
}
