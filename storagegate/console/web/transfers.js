// Transfers: all uploads of this page, and those that wait for their files.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, segment, state } from "./api.js";
import { chooseFiles, DropButtons } from "./droptarget.js";
import { bytes, date, number, say } from "./messages.js";
import { link } from "./router.js";
import { stateOf } from "./transferstates.js";
import "./transfertexts.js";
import { announce, Button, Confirm, Empty, Field, html, IconButton, Loaded, Page, Select, useLoad } from "./ui.js";
import { isOf, uploads } from "./upload.js";
import { useUploads } from "./uploadstate.js";
import { VirtualList } from "./virtuallist.js";

const MOST_BUCKETS = 1000;
const MOST_LOOKED = 20;
const MOST_UNFINISHED = 100;
const ROW_PX = 56;

const base = (bucket) => "buckets/" + segment(bucket);

function duration(seconds) {
  const steps = [["hour", 3600], ["minute", 60], ["second", 1]];
  const [unit, size] = steps.find(([, each]) => seconds >= each * 2) || steps[2];
  const options = { style: "unit", unit, unitDisplay: "long", maximumFractionDigits: 0 };
  return new Intl.NumberFormat(undefined, options).format(Math.ceil(seconds / size));
}

function Row({ item, index, top, count }) {
  const folder = item.key.slice(0, item.key.lastIndexOf("/") + 1);
  const name = item.key;
  return html`
    <div role="listitem" class="listRow transfer" aria-setsize=${count} aria-posinset=${index + 1}
      style=${{ top: top + "px", height: ROW_PX + "px" }}>
      <span class="name">
        <a href=${link(["buckets", item.bucket, "objects"], { prefix: folder })}><bdi>${name}</bdi></a>
        <small class=${item.state === "failed" ? "bad" : ""}>${item.bucket} · ${bytes(item.size)} · ${stateOf(item)}</small>
        ${item.isOpen && !item.isWhole && html`<progress max=${item.size} value=${item.sent}
          aria-label=${name}></progress>`}
      </span>
      ${item.isOpen && html`<${IconButton} icon="pause" label=${say("transfers.pause")}
        onClick=${() => uploads.pause(item)} />`}
      ${(item.state === "paused" || (item.state === "failed" && !item.isUnreadable)) && html`
        <${IconButton} icon="play" label=${say(item.state === "failed" ? "app.retry" : "transfers.resume")}
          onClick=${() => uploads.resume(item)} />`}
      ${item.state !== "done" && html`<${IconButton} icon="close" label=${say("app.cancel")}
        onClick=${() => uploads.cancel(item)} />`}
    </div>
  `;
}

function held() {
  if (!state.session || state.ended) return say("transfers.signedOut");
  if (!state.online) return say("transfers.offline");
  return uploads.isPaused ? say("transfers.held") : "";
}

function Summary() {
  const [asks, setAsks] = useState(false);
  const { files, doneFiles, bytes: all, sent, perSecond, secondsLeft, failed, counting } = uploads.figures();
  const parts = [
    say("transfers.sum", { done: number(doneFiles), files: number(files), sent: bytes(sent), bytes: bytes(all) }),
    counting ? say("transfers.counting") : "",
    uploads.isRunning && !uploads.isHeld ? say("transfers.speed", { speed: bytes(Math.round(perSecond)) }) : "",
    secondsLeft !== null && uploads.isRunning ? say("transfers.left", { time: duration(secondsLeft) }) : "",
    failed ? say("transfers.failed", { count: number(failed) }) : "",
    uploads.isRunning ? held() : "",
  ];
  const canGoOn = uploads.isPaused || uploads.items.some((item) => !item.isOpen && !item.isUnreadable);
  return html`
    <div class="card">
      <p id="sum">${parts.filter((part) => part).join(" · ")}</p>
      <progress max=${all || 1} value=${all ? sent : 1} aria-label=${say("transfers.progress")}></progress>
      <div class="buttons">
        ${uploads.isRunning && !uploads.isPaused && html`
          <${Button} icon="pause" onClick=${() => uploads.pauseAll()}>${say("transfers.pauseAll")}<//>`}
        ${canGoOn && html`
          <${Button} icon="play" onClick=${() => uploads.resumeAll()}>${say("transfers.resumeAll")}<//>`}
        ${(uploads.items.length > 0 || uploads.sources.length > 0) && html`
          <${Button} icon="close" onClick=${() => setAsks(true)}>${say("transfers.cancelAll")}<//>`}
        ${uploads.done.length > 0 && html`
          <${Button} onClick=${() => uploads.clear()}>${say("transfers.clear")}<//>`}
      </div>
      ${asks && html`<${Confirm} title=${say("transfers.cancelAll")} text=${say("transfers.cancelText")}
        label=${say("transfers.cancelAll")} onClose=${() => setAsks(false)} act=${async () => {
          uploads.cancelAll();
          setAsks(false);
        }} />`}
    </div>
  `;
}

// Buckets, and the uploads in them that no page goes on with.
async function load(signal) {
  const { items: buckets } = await call("GET", "buckets", { query: { limit: MOST_BUCKETS }, signal });
  const unfinished = [];
  for (const { name } of buckets.filter((each) => each.uploads !== 0).slice(0, MOST_LOOKED)) {
    const query = { limit: MOST_UNFINISHED };
    const page = await call("GET", base(name) + "/uploads", { query, signal }).catch((error) => {
      if (error.status === 403 || error.status === 404) return { items: [] };
      throw error;
    });
    unfinished.push(...page.items.map((each) => ({ ...each, bucket: name })));
    if (unfinished.length >= MOST_UNFINISHED) break;
  }
  return { buckets, unfinished: unfinished.slice(0, MOST_UNFINISHED) };
}

function Unfinished({ items, reload }) {
  const taken = new Set([...uploads.items, ...uploads.done].map((item) => item.upload && item.upload.id));
  const left = items.filter((each) => each.size !== null && !taken.has(each.id));
  if (!left.length) return null;
  async function abort({ bucket, id }) {
    await call("DELETE", base(bucket) + "/uploads/" + segment(id)).catch((error) => announce(error.message));
    reload();
  }
  return html`
    <section>
      <h2>${say("transfers.unfinished")}</h2>
      <p>${say("transfers.unfinishedText")}</p>
      <ul class="plain">
        ${left.map((each) => html`
          <li class="row" key=${each.id}>
            <span><bdi>${each.bucket}/${each.key}</bdi>${" "}<small>${say("transfers.unfinishedRow", {
              size: bytes(each.size), date: date(each.startedMs),
            })}</small></span>
            <${IconButton} icon="trash" label=${say("transfers.abort", { name: each.key })}
              onClick=${() => abort(each)} />
          </li>
        `)}
      </ul>
    </section>
  `;
}

export default function Transfers({ route }) {
  const all = useUploads();
  const found = useLoad(load, []);
  const [bucket, setBucket] = useState(route.query.bucket || "");
  const [prefix, setPrefix] = useState(route.query.prefix || "");
  const handle = useRef(null);
  const onSpan = useMemo(() => () => {}, []);
  const rows = [...all.items, ...all.done];
  const { unfinished, buckets } = found.data || { unfinished: [], buckets: [] };
  const writable = buckets.filter((each) => !each.may || each.may.write);
  const target = bucket || (writable.length === 1 ? writable[0].name : "");
  useEffect(() => {
    if (!all.isRunning && found.data) found.reload();
  }, [all.isRunning]);
  function add(source) {
    let refused = false;
    const place = (file, path) => {
      const same = unfinished.find((each) => isOf(each, file) && ("/" + each.key).endsWith("/" + path));
      if (same) return { bucket: same.bucket, key: same.key, upload: same };
      if (target) return { bucket: target, key: prefix + path };
      if (!refused) announce(say("transfers.noBucket"));
      refused = true;
      return null;
    };
    uploads.add(source, place);
  }
  const draw = (index, top) => {
    const item = rows[index];
    return item && html`<${Row} key=${index} item=${item} index=${index} top=${top} count=${rows.length} />`;
  };
  return html`
    <${Page} title=${say("nav.transfers")} actions=${html`
      <${DropButtons} add=${add} place=${target ? target + "/" + prefix : say("transfers.noBucket")} />
    `}>
      <${Loaded} of=${found}>
        ${() => html`
          <div class="targets">
            <${Select} label=${say("transfers.bucket")} value=${target}
              options=${[["", ""], ...writable.map(({ name }) => [name, name])]}
              onChange=${(event) => setBucket(event.target.value)} />
            <${Field} label=${say("transfers.prefix")} value=${prefix}
              onInput=${(event) => setPrefix(event.target.value)} />
          </div>
        `}
      <//>
      ${rows.length || all.isRunning
        ? html`
          <${Summary} />
          <${VirtualList} count=${rows.length} row=${draw} height=${ROW_PX} onSpan=${onSpan} handle=${handle}
            boxed role="list" aria-label=${say("transfers.list")} />
        `
        : found.data && html`<${Empty} title=${say("transfers.empty")} text=${say("transfers.emptyText")}>
            <${Button} icon="add" onClick=${chooseFiles}>${say("transfers.files")}<//><//>`}
      <${Unfinished} items=${unfinished} reload=${found.reload} />
    <//>
  `;
}
