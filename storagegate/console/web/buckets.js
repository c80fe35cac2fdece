// One bucket with its objects, its settings and who may use it; the list of buckets is in a module of its own.

import { useEffect, useState } from "preact/hooks";
import { call, segment } from "./api.js";
import { AccessBadge } from "./bucketaccess.js";
import { DropTarget } from "./droptarget.js";
import { addTexts, bytes, date, number, say } from "./messages.js";
import { folderOf, shown } from "./objectnames.js";
import { Lazy } from "./objectlist.js";
import { Objects } from "./objects.js";
import { go, link } from "./router.js";
import { Button, Crumbs, html, Icon, Loaded, Page, useLoad } from "./ui.js";

addTexts({
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
  "buckets.older": "{count} older versions, {size}",
  "buckets.olderOne": "1 older version, {size}",
  "buckets.inAll": "{size} in all",
  "buckets.uploads": "{count} unfinished uploads, {size}",
  "buckets.uploadOne": "1 unfinished upload, {size}",
  "buckets.owner": "Owner {account}",
  "buckets.createdAt": "Created {date}",
  "buckets.noSettings": "Your key may not change the settings of this bucket.",
});

const path = (bucket) => "buckets/" + segment(bucket);

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
    <${AccessBadge} access=${bucket.access} />
    ${!bucket.may.write && html`<span class="badge"><${Icon} name="eye" />${say("buckets.readOnly")}</span>`}
`;

// How many current objects there are, and apart from them how many older versions.
function countText({ objects, older, olderBytes }) {
  if (older === null) return [say("buckets.countVersions", { count: number(objects) })];
  const current = objects - older;
  return [
    say(current === 1 ? "buckets.countOne" : "buckets.countObjects", { count: number(current) }),
    older > 0 && say(older === 1 ? "buckets.olderOne" : "buckets.older", { count: number(older), size: bytes(olderBytes) }),
  ].filter(Boolean);
}

const About = ({ bucket }) => html`
  <p class="factsLine">
    ${bucket.objects !== null && html`${countText(bucket).map((text) => html`<span>${text}</span>`)}
    <span class=${bucket.older === 0 ? "" : "hideDrawer"}>${bucket.older === 0 ? bytes(bucket.bytes) : say("buckets.inAll", { size: bytes(bucket.bytes) })}</span>`}
    ${bucket.uploads > 0 && html`<span>${say(bucket.uploads === 1 ? "buckets.uploadOne" : "buckets.uploads", { count: number(bucket.uploads), size: bytes(bucket.uploadBytes) })}</span>`}
    <span class="hidePhone hideDrawer">${say("buckets.owner", { account: bucket.account })}</span>
    <span class="hidePhone hideDrawer">${say("buckets.createdAt", { date: date(bucket.createdMs) })}</span>
  </p>
`;

function BucketPage({ name, tab, query }) {
  const found = useLoad((signal) => call("GET", path(name), { signal }), [name]);
  const [jobs, setJobs] = useState([]);
  const [round, setRound] = useState(0);
  const [asks, setAsks] = useState(false);
  // What the list tells of its rows: the address of the object beside one.
  const [beside, setBeside] = useState(null);
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
    <${DropTarget} bucket=${name} prefix=${folderOf(prefix)} keeps=${info && info.versioning === "Enabled"} onDone=${reload} />
  `;
  const drawer = isList && object !== undefined && html`
    <${Lazy} key=${object + "\n" + versionId} load=${() => import("./objectdetails.js")} part="ObjectDetails" bucket=${name} info=${info} name=${object}
      tab=${part} versionId=${versionId} query=${{ prefix, from, ...rest, object }} may=${may} reload=${reload}
      neighbour=${(step) => (beside && beside.of(object, step)) || ""} onClose=${() => {
        go(where, { prefix, from, ...rest });
        document.querySelector("[role=grid]")?.focus({ preventScroll: true });
      }} />
  `;
  return html`
    <${Page} title=${name} crumbs=${html`<${BucketCrumbs} bucket=${name} tab=${tab} prefix=${prefix} />`} fixed=${isList}
      actions=${actions} about=${info && html`<${About} bucket=${info} />`} badges=${info && html`<${Badges} bucket=${info} />`} beside=${drawer}>
      <nav class="tabs" aria-label=${name}>
        ${TABS.filter((each) => each === "objects" || (info && info.may.admin)).map((each) => html`
          <a href=${link(["buckets", name, each])} aria-current=${each === tab ? "page" : undefined}>${say("buckets.tab." + each)}</a>
        `)}
      </nav>
      ${isList && (isKnown && !isOutside
        ? html`<${Objects} bucket=${name} info=${info} query=${query} jobs=${jobs} setJobs=${setJobs} round=${round} reload=${reload}
            onBeside=${setBeside} />`
        : html`<${Loaded} of=${found} rows=${12}>${() => null}<//>`)}
      ${!isList && html`
        <${Loaded} of=${found}>
          ${(bucket) => bucket.may.admin
            ? html`<${Lazy} load=${() => import("./bucketsettings.js")} part="BucketSettings" bucket=${name} info=${bucket} tab=${tab} query=${query}
                reload=${found.reload} onJob=${(job) => {
                  setJobs((before) => [...before, job]);
                  reload();
                  go(where);
                }} />`
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
    ? html`<${Lazy} load=${() => import("./bucketlist.js")} part="BucketList" prefix=${route.query.prefix || ""}
        until=${html`<${Page} title=${say("nav.buckets")} />`} />`
    : html`<${BucketPage} key=${name} name=${name} tab=${tabOf(part, route.query)} query=${route.query} />`;
}
