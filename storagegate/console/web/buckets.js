// Buckets: the list, and one bucket with its objects, its settings and who may use it.

import { useEffect, useState } from "preact/hooks";
import { call, segment } from "./api.js";
import { DropTarget } from "./droptarget.js";
import { addTexts, bytes, date, number, say } from "./messages.js";
import { folderOf, shown } from "./objectnames.js";
import { Lazy } from "./objectlist.js";
import { Objects } from "./objects.js";
import { go, link } from "./router.js";
import {
  announce, Button, Check, Crumbs, Dialog, Empty, Field, Form, html, Icon, Loaded, Page, Search, useLoad,
} from "./ui.js";

addTexts({
  "buckets.new": "New bucket",
  "buckets.find": "Find a bucket",
  "buckets.empty": "No buckets yet",
  "buckets.emptyText": "A bucket holds objects. Create one, then drop files into it.",
  "buckets.emptyReader": "Buckets that your key may list appear here.",
  "buckets.none": "No bucket has a name that begins so",
  "buckets.name": "Bucket",
  "buckets.nameHelp": "3 to 63 lower-case letters, digits, dots and hyphens.",
  "buckets.locked": "Allow object lock (keeps versions; cannot be undone)",
  "buckets.create": "Create bucket",
  "buckets.made": "The bucket is created",
  "buckets.account": "Owner",
  "buckets.created": "Created",
  "buckets.objects": "Objects",
  "buckets.bytes": "Stored",
  "buckets.versioning": "Versions",
  "buckets.versioning.": "Never enabled",
  "buckets.versioning.Enabled": "On",
  "buckets.versioning.Suspended": "Suspended",
  "buckets.tab.objects": "Objects",
  "buckets.tab.settings": "Settings",
  "buckets.tab.access": "Access",
  "buckets.badge.Enabled": "Versions on",
  "buckets.badge.Suspended": "Versions suspended",
  "buckets.lock": "Object lock",
  "buckets.readOnly": "Read-only",
  "buckets.countObjects": "{count} objects",
  "buckets.countOne": "1 object",
  "buckets.countVersions": "{count} objects and older versions",
  "buckets.uploads": "{count} unfinished uploads, {size}",
  "buckets.owner": "Owner {account}",
  "buckets.createdAt": "Created {date}",
  "buckets.noSettings": "Your key may not change the settings of this bucket.",
});

const path = (bucket) => "buckets/" + segment(bucket);

function NewBucket({ onClose, onMade }) {
  const [values, setValues] = useState({ name: "", locked: false });
  const change = (some) => setValues((before) => ({ ...before, ...some }));
  return html`
    <${Dialog} title=${say("buckets.new")} onClose=${onClose}>
      <${Form} submit=${async () => onMade(await call("POST", "buckets", { body: values }))}
        label=${say("buckets.create")} onCancel=${onClose}>
        ${(error) => html`
          <${Field} label=${say("buckets.name")} help=${say("buckets.nameHelp")} required autofocus
            error=${error && (error.status === 400 || error.status === 409) ? error.message : ""}
            name="bucket" value=${values.name} onInput=${(event) => change({ name: event.target.value })} />
          <${Check} label=${say("buckets.locked")} checked=${values.locked}
            onChange=${(event) => change({ locked: event.target.checked })} />
        `}
      <//>
    <//>
  `;
}

const TABS = ["objects", "settings", "access"];

// The steps to a folder, in the bar.
function BucketCrumbs({ bucket, tab, prefix }) {
  const where = ["buckets", bucket, "objects"];
  const parts = tab === "objects" ? folderOf(prefix).split("/").slice(0, -1) : [];
  const folders = parts.map((part, at) => [shown(part) || "(/)", link(where, { prefix: parts.slice(0, at + 1).join("/") + "/" })]);
  const steps = [[say("nav.buckets"), link(["buckets"])], [bucket, link(where)], ...folders];
  if (tab !== "objects") steps.push([say("buckets.tab." + tab), ""]);
  steps[steps.length - 1] = [steps.at(-1)[0], ""];
  return html`<${Crumbs} steps=${steps} />`;
}

const Badges = ({ bucket }) => html`
    ${bucket.versioning && html`<span class="badge"><${Icon} name="history" />${say("buckets.badge." + bucket.versioning)}</span>`}
    ${bucket.lockEnabled && html`<span class="badge"><${Icon} name="lock" />${say("buckets.lock")}</span>`}
    ${!bucket.may.write && html`<span class="badge"><${Icon} name="eye" />${say("buckets.readOnly")}</span>`}
`;

function countText({ versioning, objects }) {
  if (versioning) return "buckets.countVersions";
  return objects === 1 ? "buckets.countOne" : "buckets.countObjects";
}

const About = ({ bucket }) => html`
  <p class="factsLine">
    <span>${say(countText(bucket), { count: number(bucket.objects) })}</span>
    <span>${bytes(bucket.bytes)}</span>
    ${bucket.uploads > 0 && html`<span>${say("buckets.uploads", { count: number(bucket.uploads), size: bytes(bucket.uploadBytes) })}</span>`}
    <span class="hidePhone hideDrawer">${say("buckets.owner", { account: bucket.account })}</span>
    <span class="hidePhone hideDrawer">${say("buckets.createdAt", { date: date(bucket.createdMs) })}</span>
  </p>
`;

// The address of the object beside one, of those that the list shows.
function neighbourOf(object) {
  return (step) => {
    const names = [...document.querySelectorAll(".listRow a")].map((each) => each.getAttribute("href"));
    const at = names.findIndex((href) => new URLSearchParams(href.split("?")[1]).get("object") === object);
    const found = at < 0 ? undefined : names[at + step];
    return found && new URLSearchParams(found.split("?")[1]).has("object") ? found : "";
  };
}

function BucketPage({ name, tab, query }) {
  const found = useLoad((signal) => call("GET", path(name), { signal }), [name]);
  const [jobs, setJobs] = useState([]);
  const [round, setRound] = useState(0);
  const [asks, setAsks] = useState(false);
  const reload = () => {
    setRound((before) => before + 1);
    found.reload();
  };
  const info = found.data;
  // The description of a bucket of another account may be refused though a policy lets one list it.
  const isKnown = info || (found.error && found.error.status === 403);
  const start = info && tab === "objects" ? info.keyPrefix : "";
  const isOutside = start && !(query.prefix || "").startsWith(start);
  useEffect(() => {
    if (isOutside) go(["buckets", name, "objects"], { prefix: start }, true);
  }, [isOutside]);
  const may = info ? info.may : { write: true, list: true };
  const { prefix = "", from, object, tab: part, versionId, ...rest } = query;
  const where = ["buckets", name, "objects"];
  const isList = tab === "objects";
  const actions = isList && isKnown && may.write && html`
    <${Button} icon="folderPlus" kind="shrinks" aria-label=${say("objects.newFolder")} onClick=${() => setAsks(true)}>${say("objects.newFolder")}<//>
    <${DropTarget} bucket=${name} prefix=${folderOf(prefix)} onDone=${reload} />
  `;
  const beside = isList && object !== undefined && html`
    <${Lazy} key=${object + "\n" + versionId} load=${() => import("./objectdetails.js")} part="ObjectDetails" bucket=${name} name=${object}
      tab=${part} versionId=${versionId} query=${{ prefix, from, ...rest, object }} may=${may} reload=${reload}
      neighbour=${neighbourOf(object)} onClose=${() => {
        go(where, { prefix, from, ...rest });
        document.querySelector("[role=grid]")?.focus({ preventScroll: true });
      }} />
  `;
  return html`
    <${Page} title=${name} crumbs=${html`<${BucketCrumbs} bucket=${name} tab=${tab} prefix=${prefix} />`} fixed=${isList}
      actions=${actions} about=${info && html`<${About} bucket=${info} />`} badges=${info && html`<${Badges} bucket=${info} />`} beside=${beside}>
      <nav class="tabs" aria-label=${name}>
        ${TABS.filter((each) => each === "objects" || (info && info.may.admin)).map((each) => html`
          <a href=${link(["buckets", name, each])} aria-current=${each === tab ? "page" : undefined}>${say("buckets.tab." + each)}</a>
        `)}
      </nav>
      ${isList && (isKnown && !isOutside
        ? html`<${Objects} bucket=${name} info=${info} query=${query} jobs=${jobs} setJobs=${setJobs} round=${round} reload=${reload} />`
        : html`<${Loaded} of=${found} rows=${12}>${() => null}<//>`)}
      ${!isList && html`
        <${Loaded} of=${found}>
          ${(bucket) => bucket.may.admin
            ? html`<${Lazy} load=${() => import("./bucketsettings.js")} part="BucketSettings" bucket=${name} tab=${tab} query=${query}
                reload=${found.reload} />`
            : html`<p class="notice">${say("buckets.noSettings")}</p>`}
        <//>
      `}
      ${asks && html`
        <${Lazy} load=${() => import("./objectdialogs.js")} part="NewFolder" bucket=${name} prefix=${folderOf(prefix)}
          onClose=${() => setAsks(false)} onDone=${(made) => {
            setAsks(false);
            reload();
            go(where, { prefix: made });
          }} />
      `}
    <//>
  `;
}

function BucketTable({ items }) {
  const most = Math.max(1, ...items.map((each) => each.bytes));
  return html`
    <div class="scroll edge cards" tabindex="0"><table>
      <thead><tr>
        <th scope="col">${say("buckets.name")}</th>
        <th scope="col" class="number">${say("buckets.objects")}</th>
        <th scope="col" class="number">${say("buckets.bytes")}</th>
        <th scope="col"><span class="hidden">${say("buckets.bytes")}</span></th>
        <th scope="col">${say("buckets.versioning")}</th>
        <th scope="col">${say("buckets.account")}</th>
        <th scope="col">${say("buckets.created")}</th>
      </tr></thead>
      <tbody>${items.map((bucket) => html`
        <tr key=${bucket.name}>
          <th scope="row"><a class="name" href=${link(["buckets", bucket.name, "objects"])}><${Icon} name="bucket" />${bucket.name}</a></th>
          <td class="number" data-label=${say("buckets.objects")}>${number(bucket.objects)}</td>
          <td class="number">${bytes(bucket.bytes)}</td>
          <td class="hidePhone"><svg class="meter" aria-hidden="true"><rect height="6" rx="3" width=${Math.round((58 * bucket.bytes) / most)} /></svg></td>
          <td class=${bucket.versioning ? "" : "quiet"}>${say("buckets.versioning." + bucket.versioning)}</td>
          <td>${bucket.account}</td><td class="hidePhone quiet">${date(bucket.createdMs)}</td>
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
    found.change((before) => ({ ...page, items: [...before.items, ...page.items] }));
  }
  const mayCreate = found.data && found.data.mayCreate !== false;
  const add = mayCreate && html`
    <${Button} icon="add" kind="primary" onClick=${() => setOpen(true)}>${say("buckets.new")}<//>
  `;
  const empty = prefix
    ? html`<${Empty} title=${say("buckets.none")}><a class="button" href=${link(["buckets"])}>${say("app.all")}</a><//>`
    : html`<${Empty} title=${say("buckets.empty")} text=${say(mayCreate ? "buckets.emptyText" : "buckets.emptyReader")}>${add}<//>`;
  return html`
    <${Page} title=${say("nav.buckets")} actions=${found.data && found.data.items.length > 0 && add} tools=${html`
      <${Search} label=${say("buckets.find")} value=${prefix}
        onInput=${(event) => go(["buckets"], { prefix: event.target.value }, true)} />`}>
      <${Loaded} of=${found} isEmpty=${(page) => !page.items.length} empty=${empty}>
        ${(page) => html`
          <${BucketTable} items=${page.items} />
          ${page.next && html`<${Button} onClick=${more}>${say("app.more")}<//>`}
        `}
      <//>
      ${open && html`
        <${NewBucket} onClose=${() => setOpen(false)} onMade=${(bucket) => {
          announce(say("buckets.made"));
          go(["buckets", bucket.name, "objects"]);
        }} />
      `}
    <//>
  `;
}

// Settings that stand on the tab of access.
const ACCESS = ["policy", "publicAccessBlock", "ownership", "acl"];

function tabOf(part, { setting }) {
  if (TABS.includes(part)) return part;
  if (!setting) return "objects";
  return ACCESS.includes(setting) ? "access" : "settings";
}

export default function Buckets({ route }) {
  const [, name, part] = route.path;
  return name === undefined
    ? html`<${BucketList} prefix=${route.query.prefix || ""} />`
    : html`<${BucketPage} key=${name} name=${name} tab=${tabOf(part, route.query)} query=${route.query} />`;
}
