// The list of buckets.

import { useState } from "preact/hooks";
import { call } from "./api.js";
import { Access } from "./bucketaccess.js";
import { addTexts, bytes, number, say, signed } from "./messages.js";
import { endOf, Lazy } from "./objectlist.js";
import { go, link } from "./router.js";
import { announce, Button, Empty, html, Icon, IconButton, Loaded, Page, Search, useLoad } from "./ui.js";

addTexts({
  "buckets.new": "New bucket",
  "buckets.find": "Find a bucket",
  "buckets.empty": "No buckets yet",
  "buckets.emptyReader": "Buckets that your key may list appear here.",
  "buckets.none": "No bucket has a name that begins so",
  "buckets.name": "Bucket",
  "buckets.made": "The bucket is created",
  "buckets.account": "Owner",
  "buckets.growth": "Growth, 24 h",
  "buckets.access": "Access",
  "buckets.actionsOf": "Actions for {name}",
  "buckets.objects": "Objects",
  "buckets.bytes": "Stored",
  "buckets.versioning": "Versions",
  "buckets.versioning.": "Never enabled",
  "buckets.versioning.Enabled": "On",
  "buckets.versioning.Suspended": "Suspended",
  "buckets.olderVersions": "Older versions",
  "buckets.withOlder": "with older versions",
  "buckets.sum": "{count} buckets, {size}",
  "buckets.sumOne": "1 bucket, {size}",
});

// Current objects; all versions together where they are too many to count apart.
const Counts = ({ of: { objects, older } }) => html`
  ${objects === null ? "–" : number(objects - older)}${older === null && objects !== null && html`<small>${say("buckets.withOlder")}</small>`}
`;

// `onMenu(bucket, element)` opens the menu of a row.
function BucketTable({ items, onMenu }) {
  const hasVersions = items.some((bucket) => bucket.versioning);
  const hasGrowth = items.some((bucket) => bucket.growth !== null);
  const most = Math.max(1, ...items.map((each) => each.bytes));
  return html`
    <div class="scroll edge cards" tabindex="0"><table>
      <thead><tr>
        <th scope="col">${say("buckets.name")}</th>
        <th scope="col" class="number">${say("buckets.objects")}</th>
        <th scope="col" class="number">${say("buckets.bytes")}</th>
        <th scope="col"><span class="hidden">${say("buckets.bytes")}</span></th>
        ${hasGrowth && html`<th scope="col" class="number">${say("buckets.growth")}</th>`}
        <th scope="col">${say("buckets.versioning")}</th>
        ${hasVersions && html`<th scope="col" class="number">${say("buckets.olderVersions")}</th>`}
        <th scope="col">${say("buckets.access")}</th>
        <th scope="col">${say("buckets.account")}</th>
        <th scope="col"><span class="hidden">${say("app.actions")}</span></th>
      </tr></thead>
      <tbody>${items.map((bucket) => html`
        <tr key=${bucket.name}>
          <th scope="row"><a class="name" href=${link(["buckets", bucket.name, "objects"])}><${Icon} name="bucket" />${bucket.name}</a></th>
          <td class="number" data-label=${say("buckets.objects")}><${Counts} of=${bucket} /></td>
          <td class="number">${bucket.bytes === null ? "–" : bytes(bucket.bytes)}</td>
          <td class="hidePhone"><svg class="meter" aria-hidden="true"><rect height="6" rx="3" width=${Math.round((58 * bucket.bytes) / most)} /></svg></td>
          ${hasGrowth && html`<td class="number quiet hidePhone">${bucket.growth === null ? "–" : signed(bucket.growth, bytes)}</td>`}
          <td class=${bucket.versioning ? "fixedText" : "fixedText hidePhone quiet"} data-label=${say("buckets.versioning")}>${say("buckets.versioning." + bucket.versioning)}</td>
          ${hasVersions && html`<td class="number" data-label=${say("buckets.olderVersions")}>${bucket.older ? number(bucket.older) : ""}</td>`}
          <td><${Access} access=${bucket.access} /></td>
          <td class="hidePhone quiet">${bucket.account}</td>
          <td class="ends menuCell"><${IconButton} icon="more" kind="small" label=${say("buckets.actionsOf", { name: bucket.name })} aria-haspopup="menu"
            onClick=${(event) => onMenu(bucket, event.currentTarget)} /></td>
        </tr>
      `)}</tbody>
    </table></div>
  `;
}

// The menu of a row. `actions` are the module of what it does.
const RowMenu = ({ actions, bucket, at, ask, onClose }) => html`
  <${Lazy} load=${() => import("./menu.js")} part="Menu" label=${say("buckets.actionsOf", { name: bucket.name })} at=${at} onClose=${onClose}
    items=${actions.itemsOf(bucket, (part) => go(["buckets", bucket.name, part]), ask)} />
`;

export function BucketList({ prefix }) {
  const found = useLoad((signal) => call("GET", "buckets", { query: { prefix }, signal }), [prefix]);
  const [open, setOpen] = useState(false);
  const [menu, setMenu] = useState(null);
  const [dialog, setDialog] = useState(null);
  const [jobs, setJobs] = useState([]);
  async function more() {
    const page = await call("GET", "buckets", { query: { prefix, after: found.data.next } });
    found.change((before) => ({ ...page, items: [...before.items, ...page.items] }));
  }
  const made = (bucket) => {
    announce(say("buckets.made"));
    go(["buckets", bucket.name, "objects"]);
  };
  const mayCreate = found.data && found.data.mayCreate !== false;
  const add = mayCreate && html`
    <${Button} icon="add" kind="primary" onClick=${() => setOpen(true)}>${say("buckets.new")}<//>
  `;
  const empty = prefix
    ? html`<${Empty} title=${say("buckets.none")}><a class="button" href=${link(["buckets"])}>${say("app.all")}</a><//>`
    : mayCreate
      ? html`<${Lazy} load=${() => import("./bucketnew.js")} part="FirstBucket" onMade=${made} />`
      : html`<${Empty} title=${say("buckets.empty")} text=${say("buckets.emptyReader")} />`;
  return html`
    <${Page} title=${say("nav.buckets")} actions=${found.data && found.data.items.length > 0 && add}
      tools=${(prefix || !found.data || found.data.items.length > 0) && html`<${Search} label=${say("buckets.find")} value=${prefix}
        onInput=${(event) => go(["buckets"], { prefix: event.target.value }, true)} />`}>
      <${Loaded} of=${found} isEmpty=${(page) => !page.items.length} empty=${empty}>
        ${(page) => html`
          ${jobs.map((job) => html`
            <${Lazy} key=${job.id} load=${() => import("./objectjobs.js")} part="JobProgress" job=${job} onEnd=${() => {
              endOf(job, setJobs);
              found.reload();
            }}
              onClose=${() => setJobs((before) => before.filter((each) => each !== job))}
              onAgain=${(started) => setJobs((before) => before.map((each) => (each === job ? started : each)))} />
          `)}
          <${BucketTable} items=${page.items} onMenu=${async (bucket, at) =>
            setMenu({ bucket, at, actions: await import("./bucketactions.js") })} />
          ${page.next
            ? html`<${Button} onClick=${more}>${say("app.more")}<//>`
            : page.items[0].bytes !== null && html`<p class="sums">${say(page.items.length === 1 ? "buckets.sumOne" : "buckets.sum", {
              count: number(page.items.length), size: bytes(page.items.reduce((sum, each) => sum + each.bytes, 0)),
            })}</p>`}
        `}
      <//>
      ${menu && html`<${RowMenu} key=${menu.bucket.name} ...${menu} ask=${(part) => setDialog({ part, bucket: menu.bucket })} onClose=${() => setMenu(null)} />`}
      ${dialog && html`
        <${Lazy} load=${() => import("./bucketactions.js")} part=${dialog.part} bucket=${dialog.bucket} onClose=${() => setDialog(null)} onDone=${(job) => {
          setDialog(null);
          if (job) setJobs((before) => [...before, job]);
          found.reload();
        }} />
      `}
      ${open && html`
        <${Lazy} load=${() => import("./bucketnew.js")} part="NewBucket" onClose=${() => setOpen(false)} onMade=${made} />
      `}
    <//>
  `;
}
