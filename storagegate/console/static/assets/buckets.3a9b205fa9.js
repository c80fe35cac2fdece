// Buckets: the list, one bucket with its usage and settings, making one.

import { useEffect, useState } from "./hooks.ceebd18b27.js";
import { call, segment } from "./api.3f20c599c2.js";
import { addTexts, bytes, date, number, say } from "./messages.5d7ca40ed1.js";
import { Objects } from "./objects.45f9108388.js";
import { go, link } from "./router.dcba0dcacc.js";
import {
  announce, Button, Check, Confirm, Dialog, Empty, Field, Form, html, Loaded, Page, useLoad,
} from "./ui.7967bae88c.js";

addTexts({
  "buckets.new": "New bucket",
  "buckets.find": "Find by the beginning of the name",
  "buckets.empty": "No bucket yet",
  "buckets.emptyText": "Objects are kept in buckets.",
  "buckets.none": "No bucket's name begins so",
  "buckets.name": "Name",
  "buckets.nameHelp": "3 to 63 small letters, digits, dots and hyphens.",
  "buckets.locked": "Objects can be locked (with versions; this cannot be undone)",
  "buckets.create": "Make the bucket",
  "buckets.made": "The bucket is made",
  "buckets.account": "Account",
  "buckets.created": "Created",
  "buckets.objects": "Objects",
  "buckets.bytes": "Size",
  "buckets.uploads": "Uploads in progress",
  "buckets.uploadBytes": "Size of their parts",
  "buckets.region": "Region",
  "buckets.versioning": "Versions",
  "buckets.may": "Your key may",
  "buckets.deleteText": "Only an empty bucket can be deleted. This cannot be undone.",
  "buckets.deleted": "The bucket is deleted",
  "buckets.settings": "Settings",
});

const path = (bucket) => "buckets/" + segment(bucket);

function NewBucket({ onClose, onMade }) {
  const [values, setValues] = useState({ name: "", locked: false });
  const change = (some) => setValues((before) => ({ ...before, ...some }));
  return html`
    <${Dialog} title=${say("buckets.new")} onClose=${onClose}>
      <${Form} submit=${async () => onMade(await call("POST", "buckets", { body: values }))}
        label=${say("buckets.create")} onCancel=${onClose}>
        <${Field} label=${say("buckets.name")} help=${say("buckets.nameHelp")} required autofocus
          name="bucket" value=${values.name} onInput=${(event) => change({ name: event.target.value })} />
        <${Check} label=${say("buckets.locked")} checked=${values.locked}
          onChange=${(event) => change({ locked: event.target.checked })} />
      <//>
    <//>
  `;
}

// The settings are fetched with the first bucket that is opened by its administrator.
function Settings(given) {
  const [module, setModule] = useState(null);
  useEffect(() => {
    import("./bucketsettings.bdbd3a20bc.js").then(setModule);
  }, []);
  return module && html`<${module.BucketSettings} ...${given} />`;
}

function BucketDetails({ name, query }) {
  const found = useLoad((signal) => call("GET", path(name), { signal }), [name]);
  const [open, setOpen] = useState(false);
  async function remove() {
    await call("DELETE", path(name));
    announce(say("buckets.deleted"));
    go(["buckets"]);
  }
  const may = found.data && found.data.may;
  return html`
    <${Page} title=${name} actions=${may && html`
      ${may.list && html`
        <a class="button primary" href=${link(["buckets", name, "objects"])}>${say("buckets.objects")}</a>
      `}
      ${may.admin && html`
        <${Button} icon="trash" kind="danger" onClick=${() => setOpen(true)}>${say("app.delete")}<//>
      `}
    `}>
      <p><a href=${link(["buckets"])}>${say("nav.buckets")}</a></p>
      <${Loaded} of=${found}>
        ${(bucket) => html`
          <dl class="facts">
            <dt>${say("buckets.account")}</dt><dd>${bucket.account}</dd>
            <dt>${say("buckets.created")}</dt><dd>${date(bucket.createdMs)}</dd>
            <dt>${say("buckets.objects")}</dt><dd>${number(bucket.objects)}</dd>
            <dt>${say("buckets.bytes")}</dt><dd>${bytes(bucket.bytes)}</dd>
            <dt>${say("buckets.uploads")}</dt><dd>${number(bucket.uploads)}</dd>
            <dt>${say("buckets.uploadBytes")}</dt><dd>${bytes(bucket.uploadBytes)}</dd>
            ${bucket.region && html`<dt>${say("buckets.region")}</dt><dd>${bucket.region}</dd>`}
            ${bucket.versioning && html`
              <dt>${say("buckets.versioning")}</dt><dd>${bucket.versioning}</dd>
            `}
            <dt>${say("buckets.may")}</dt>
            <dd>${Object.keys(bucket.may).filter((each) => bucket.may[each]).join(", ") || say("app.none")}</dd>
          </dl>
          ${bucket.may.admin && html`
            <section class="card">
              <h2>${say("buckets.settings")}</h2>
              <${Settings} bucket=${name} query=${query} />
            </section>
          `}
        `}
      <//>
      ${open && html`
        <${Confirm} title=${say("app.delete")} text=${say("buckets.deleteText")} name=${name} act=${remove}
          label=${say("app.delete")} onClose=${() => setOpen(false)} />
      `}
    <//>
  `;
}

function BucketTable({ items }) {
  return html`
    <div class="scroll" tabindex="0"><table>
      <thead><tr>
        <th scope="col">${say("buckets.name")}</th><th scope="col">${say("buckets.account")}</th>
        <th scope="col" class="number">${say("buckets.objects")}</th>
        <th scope="col" class="number">${say("buckets.bytes")}</th>
        <th scope="col">${say("buckets.created")}</th>
      </tr></thead>
      <tbody>${items.map((bucket) => html`
        <tr key=${bucket.name}>
          <th scope="row"><a href=${link(["buckets", bucket.name])}>${bucket.name}</a></th>
          <td>${bucket.account}</td><td class="number">${number(bucket.objects)}</td>
          <td class="number">${bytes(bucket.bytes)}</td><td>${date(bucket.createdMs)}</td>
        </tr>
      `)}</tbody>
    </table></div>
  `;
}

function BucketList({ prefix }) {
  const found = useLoad((signal) => call("GET", "buckets", { query: { prefix }, signal }), [prefix]);
  const [open, setOpen] = useState(false);
  async function more() {
    const page = await call("GET", "buckets", { query: { prefix, after: found.data.next } });
    found.change((before) => ({ items: [...before.items, ...page.items], next: page.next }));
  }
  const add = html`
    <${Button} icon="add" kind="primary" onClick=${() => setOpen(true)}>${say("buckets.new")}<//>
  `;
  const empty = prefix
    ? html`<${Empty} title=${say("buckets.none")}><a class="button" href=${link(["buckets"])}>${say("app.all")}</a><//>`
    : html`<${Empty} title=${say("buckets.empty")} text=${say("buckets.emptyText")}>${add}<//>`;
  return html`
    <${Page} title=${say("nav.buckets")} actions=${add}>
      <input type="search" aria-label=${say("buckets.find")} placeholder=${say("buckets.find")} value=${prefix}
        onInput=${(event) => go(["buckets"], { prefix: event.target.value }, true)} />
      <${Loaded} of=${found} isEmpty=${(page) => !page.items.length} empty=${empty}>
        ${(page) => html`
          <${BucketTable} items=${page.items} />
          ${page.next && html`<${Button} onClick=${more}>${say("app.more")}<//>`}
        `}
      <//>
      ${open && html`
        <${NewBucket} onClose=${() => setOpen(false)} onMade=${(bucket) => {
          announce(say("buckets.made"));
          go(["buckets", bucket.name]);
        }} />
      `}
    <//>
  `;
}

export default function Buckets({ route }) {
  const [, name, part] = route.path;
  if (part === "objects")
    return html`<${Objects} key=${name} bucket=${name} route=${route} />`;
  return name === undefined
    ? html`<${BucketList} prefix=${route.query.prefix || ""} />`
    : html`<${BucketDetails} key=${name} name=${name} query=${route.query} />`;
}
