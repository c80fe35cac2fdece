// Requests as they end, on all protocols: filtered by the server, held while one looks, and explained.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, segment, state } from "./api.js";
import { useEvents } from "./events.js";
import { JSONLines } from "./json.js";
import { addTexts, bytes, number, say } from "./messages.js";
import { go, link } from "./router.js";
import {
  Button, CopyButton, Empty, Field, Heads, html, Icon, IconButton, Loaded, Page, Problem, useAction, useEscape, useLoad,
} from "./ui.js";
import { useRowHeight } from "./virtuallist.js";

export { styled } from "./figures.js";

addTexts({
  "live.pause": "Pause",
  "live.resume": "Resume",
  "live.clear": "Clear",
  "live.new": "{count} new",
  "live.open": "Connected",
  "live.waiting": "Connecting",
  "live.dropped": "{count} more were dropped",
  "live.empty": "No requests yet",
  "live.emptyText": "Requests appear here as they end, and the last refused ones at once. Filters apply to new requests.",
  "live.unfiltered": "Show all requests",
  "live.makeOne": "Objects",
  "live.table": "Requests",
  "live.any": "any",
  "live.kept": "{count} requests",
  "live.full": "the last {count} are kept",
  "live.hold": "Scroll down to hold the list; new requests wait",
  "live.without": "Remove the filter: {name}",
  "live.wire": "Protocol",
  "live.status": "Status",
  "live.errors": "Errors",
  "live.slow": "Slower than 100 ms",
  "live.more": "Filter",
  "live.reasonTitle": "Why it was refused",
  "live.byStatement": "Refused by the policy of {bucket}",
  "live.byRule": "Refused",
  "live.statement": "Policy, statement {number} of {count}",
  "live.openAccess": "Open in Access",
  "live.gone": "The policy has changed since, and has no statement {number}.",
  "live.newer": "Newer request",
  "live.older": "Older request",
  "live.onlyKey": "Only this key",
  "live.onlyBucket": "Only this bucket",
  "live.json": "Copy as JSON",
  "live.operation": "Operation",
  "live.bucket": "Bucket",
  "live.prefix": "Object prefix",
  "live.key": "Access key",
  "live.slower": "Slower than (ms)",
  "live.time": "Time",
  "live.target": "Target",
  "live.who": "Caller",
  "live.duration": "Duration",
  "live.size": "Size",
  "live.code": "Code",
  "live.reason": "Reason",
  "live.address": "Address",
  "live.agent": "Client",
  "live.requestId": "Request",
  "live.trace": "Trace",
  "live.worker": "Process",
  "live.object": "Object",
  "live.received": "Received",
  "live.sent": "Sent",
  "live.why": "Check this access now",
  "live.allowed": "Allowed now",
  "live.refused": "Refused",
  "live.hint.SignatureDoesNotMatch":
    "The client has another secret key, or a proxy changed the path, the host or a header.",
  "live.hint.InvalidAccessKeyId": "The key does not exist, is disabled, or has expired.",
  "live.hint.RequestTimeTooSkewed": "The clock of the client is wrong by more than 15 minutes.",
  "live.hint.AccessDenied": "Neither the policy of the key nor the policy of the bucket allows it.",
  "live.hint.NoSuchBucket": "The name is misspelled, or the client takes the first part of the path for another.",
  "live.hint.RATE_LIMITED": "The method has a limit of calls, which this address has reached.",
  "live.hint.UNAUTHENTICATED": "The call has no credentials that a provider accepts.",
  "live.hint.PERMISSION_DENIED": "The caller is known, and may not call this method.",
});

const PROTOCOLS = { s3: "S3", http: "HTTP", websocket: "WebSocket", grpc: "gRPC", udp: "UDP", tcp: "TCP" };
const WIRES = Object.keys(PROTOCOLS);
const STATUSES = ["error", "2xx", "3xx", "4xx", "5xx", "403", "404", "503"];
const HINTS = [
  "SignatureDoesNotMatch", "InvalidAccessKeyId", "RequestTimeTooSkewed", "AccessDenied", "NoSuchBucket",
  "RATE_LIMITED", "UNAUTHENTICATED", "PERMISSION_DENIED",
];
const MOST = 5000;
const ROW = 28;
const CARD = 80;
const SHOWN = 60;
const DRAW_MS = 250;

const clock = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3,
});

const days = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

// Two digits say enough of a duration; seconds where it is long.
function took(value) {
  if (value >= 1000) return number(Math.round(value / 100) / 10) + " s";
  return number(value < 10 ? Math.round(value * 100) / 100 : Math.round(value * 10) / 10) + " ms";
}

const target = (event) => (event.bucket ? event.bucket + (event.key ? "/" + event.key : "") : "");

function accessOf(operation) {
  if (/^(Get|Head)Object/.test(operation)) return "read";
  if (/^DeleteObject/.test(operation)) return "delete";
  if (/^List(Objects|MultipartUploads)/.test(operation) || operation === "HeadBucket") return "list";
  return /Object|Upload|Part/.test(operation) ? "write" : "admin";
}

function Why({ of }) {
  const [verdict, setVerdict] = useState(null);
  const [ask, busy, error] = useAction(async () => {
    const body = { access: accessOf(of.operation), bucket: of.bucket, key: of.key || "" };
    setVerdict(await call("POST", "keys/" + segment(of.accessKey) + "/judge", { body }));
  });
  return html`
    <p class="buttons check"><${Button} kind="small" busy=${busy} onClick=${ask}>${say("live.why")}<//>
      <span role="status">${verdict && html`
        <strong class=${verdict.allowed ? "good" : "bad"}>
          ${say(verdict.allowed ? "live.allowed" : "live.refused")}</strong>: ${verdict.why}
      `}</span></p>
    ${error && html`<${Problem} error=${error} />`}
  `;
}

const statusClass = (status) => "status is" + String(status).slice(0, 1);

const sentence = (text) => text[0].toUpperCase() + text.slice(1);

// The members of a statement by which it decides.
const DECIDING = ["Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"];

// The statement of a bucket's policy that refused a request, as it is now.
function Statement({ bucket, number: place }) {
  const found = useLoad((signal) => call("GET", "buckets/" + segment(bucket) + "/settings/policy", { signal }), [bucket]);
  if (!found.data) return null;
  const statements = [found.data.Statement].flat();
  const statement = statements[place - 1];
  const href = link(["buckets", bucket, "access"], { statement: place });
  return html`
    <div class="code"><header><span>${say("live.statement", { number: place, count: statements.length })}</span>
      <a class="button bare small" href=${href}>${say("live.openAccess")}</a></header>
      <pre tabindex="0" class="isolated">${statement
        ? html`<${JSONLines} text=${JSON.stringify(statement, null, 2)} marked=${DECIDING} />` : say("live.gone", { number: place })}</pre></div>
  `;
}

function Reason({ of }) {
  const hint = HINTS.includes(of.code) && !of.rule;
  if (of.status < 400 || !(of.reason || hint)) return null;
  const mayCheck = of.wire === "s3" && of.accessKey && of.bucket;
  return html`
    <section class="part"><h3 class="hidden">${say("live.reasonTitle")}</h3>
      <div class=${of.status >= 500 || of.status === 403 ? "notice bad" : "notice warn"}><${Icon} name="error" /><div>
        <p><strong>${of.statement ? say("live.byStatement", { bucket: of.bucket }) : of.rule ? say("live.byRule") : of.reason}</strong></p>
        ${of.rule && html`<p class="isolated">${sentence(of.rule)}</p>`}
        ${hint && html`<p>${say("live.hint." + of.code)}</p>`}
      </div></div>
      ${of.statement > 0 && html`<${Statement} bucket=${of.bucket} number=${of.statement} />`}
      ${mayCheck && html`<${Why} key=${of.id} of=${of} />`}
    </section>
  `;
}

// What a request was, beside the list; arrows go to its neighbours.
function Details({ of, events, onOpen, onClose, query }) {
  useEscape(onClose);
  const at = events.findIndex((each) => each.id === of.id);
  const neighbour = (step) => (at < 0 ? undefined : events[at + step]);
  const object = of.key && html`<a class="isolated" href=${link(["buckets", of.bucket, "objects"], { object: of.key })}>${of.key}</a>`;
  const key = of.accessKey && html`<a href=${link(["keys", of.accessKey])}><code>${of.accessKey}</code></a>`;
  const rows = [
    ["time", days.format(of.atMs) + ", " + clock.format(of.atMs)], ["wire", PROTOCOLS[of.wire] || of.wire], ["code", of.code],
    ["reason", of.rule ? of.reason : ""], ["bucket", of.bucket], ["object", object],
    ["who", key || of.user], ["address", of.address], ["agent", of.agent],
    ["duration", took(of.ms)], ["received", of.bytesIn && bytes(of.bytesIn)],
    ["sent", of.bytesOut && bytes(of.bytesOut)], ["requestId", of.requestId], ["trace", of.trace],
    ["worker", number(of.worker)],
  ];
  const step = (name, icon, by) => html`<${IconButton} icon=${icon} kind="small" label=${say("live." + name)}
    disabled=${!neighbour(by)} onClick=${() => onOpen(neighbour(by))} />`;
  const { id, ...plain } = of;
  const only = (name, values) => html`
    <a class="button small" href=${link(["live"], { ...query, ...values })}>${say("live." + name)}</a>`;
  return html`
    <aside class="drawer narrow" aria-label=${of.operation + " · " + of.status}>
      <header><span class=${statusClass(of.status)}>${of.status}</span><h2>${of.operation}</h2>
        ${step("newer", "chevronLeft", -1)}${step("older", "chevronRight", 1)}
        <${IconButton} icon="close" kind="small" label=${say("app.close")} onClick=${onClose} /></header>
      <div class="drawerBody">
      <${Reason} of=${of} />
      <section class="part"><dl class="facts">
        ${rows.filter(([, value]) => value).map(([name, value]) => html`
          <dt>${say("live." + name)}</dt><dd>${value}</dd>
        `)}
      </dl></section>
      <section class="part buttons">
        ${of.accessKey && only("onlyKey", { key: of.accessKey })}
        ${of.bucket && only("onlyBucket", { bucket: of.bucket })}
        <${CopyButton} text=${JSON.stringify(plain, null, 2)} label=${say("live.json")} isLabelled />
      </section></div>
    </aside>
  `;
}

const TYPED = ["operation", "bucket", "prefix", "key", "slowerThanMs"];

function Filters({ query, events }) {
  const [open, setOpen] = useState(false);
  const put = (values) => go(["live"], { ...query, ...values }, true);
  const set = (name) => (event) => put({ [name]: event.target.value });
  // Of one of several values: the browser's own list.
  const select = (name, values, texts = {}) => html`
    <label class="chip" data-on=${query[name] ? "" : undefined}>${say("live." + name)}
      <select name=${name} value=${query[name] || ""} onChange=${set(name)}>
        <option value="">${say("live.any")}</option>
        ${values.map((each) => html`<option value=${each}>${texts[each] || each}</option>`)}
      </select></label>
  `;
  const textOf = (name) => say(name === "slowerThanMs" ? "live.slower" : "live." + name);
  const count = (digit) => events.filter((each) => String(each.status).startsWith(digit)).length;
  const toggle = (value, dot) => html`
    <button type="button" class="chip" aria-pressed=${query.status === value}
      onClick=${() => put({ status: query.status === value ? "" : value })}>
      <span class=${"dot " + dot}></span>${value} ${number(count(value[0]))}</button>
  `;
  return html`
    <div class="chips" role="group" aria-label=${say("live.more")}>
      ${select("wire", WIRES, PROTOCOLS)}
      ${select("status", STATUSES, { error: say("live.errors") })}
      ${TYPED.filter((name) => query[name]).map((name) => html`
        <button type="button" class="chip" aria-pressed="true" aria-label=${say("live.without", { name: textOf(name) })}
          onClick=${() => put({ [name]: "" })}>${textOf(name)} <b class="isolated">${query[name]}</b><${Icon} name="close" /></button>
      `)}
      <button type="button" class="chip" aria-expanded=${open} onClick=${() => setOpen(!open)}><${Icon} name="add" />${say("live.more")}</button>
      <span class="fill"></span>
      ${toggle("4xx", "warn")}${toggle("5xx", "gone")}
    </div>
    ${open && html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
      ${TYPED.map((name) => html`
        <${Field} label=${textOf(name)} name=${name} value=${query[name] || ""} onChange=${set(name)}
          ...${name === "slowerThanMs" ? { type: "number", min: 0 } : {}} />
      `)}
    </form>`}
  `;
}

const COLUMNS = [["time", "liveTime"], ["status", "liveStatus"], ["wire", "liveWire"], ["operation", "liveOperation"], ["target", ""],
  ["who", "liveWho"], ["duration", "liveShort number"], ["size", "liveShort number"]];

// What stays beside the details of a request.
const FEW = 5;

// The newest first; only the rows that are seen are elements.
function Table({ events, opened, onOpen, onScrolled, first, box, row, columns }) {
  const rows = events.slice(first, first + SHOWN);
  const below = Math.max(0, events.length - first - SHOWN);
  return html`
    <div ref=${box} class="scroll live cards" tabindex="0" role="region" aria-label=${say("live.table")}
      onScroll=${(event) => onScrolled(event.target.scrollTop)}>
      <table aria-rowcount=${events.length}>
        <${Heads} names=${COLUMNS} text=${(name) => say("live." + name)} />
        <tbody>
          <tr class="space" aria-hidden="true"><td colspan=${columns} style=${{ height: first * row + "px" }}></td></tr>
          ${rows.map((event) => html`
            <tr key=${event.id} class=${opened && opened.id === event.id ? "isOpen" : ""}>
              <td class="quiet">${clock.format(event.atMs)}</td>
              <td class=${statusClass(event.status)} title=${event.code}>${event.status}</td>
              <td class="quiet">${PROTOCOLS[event.wire] || event.wire}</td>
              <td class="lead"><button type="button" class="link" onClick=${() => onOpen(event)}>${event.operation}</button></td>
              <td class="target" title=${event.rule || event.reason}>${target(event) || html`<span class="quiet">${event.code}</span>`}</td>
              <td class="quiet">${event.accessKey || event.user || event.address}</td>
              <td class="number">${took(event.ms)}</td>
              <td class="number quiet">${bytes((event.bytesIn || 0) + (event.bytesOut || 0))}</td>
            </tr>
          `)}
          <tr class="space" aria-hidden="true"><td colspan=${columns} style=${{ height: below * row + "px" }}></td></tr>
        </tbody>
      </table>
    </div>
  `;
}

// What the page showed when it was left, for the key that saw it.
let left = { accessKey: "", events: [] };

// The events that are shown, and those that wait while the list is held.
function useRequests(query, isHeld) {
  const accessKey = state.session ? state.session.accessKey : "";
  const waiting = useRef([]);
  const [events, setEvents] = useState(left.accessKey === accessKey ? left.events : []);
  const ids = useRef(events.length ? events[0].id : 0);
  useEffect(() => {
    left = { accessKey, events };
  }, [events]);
  const [count, setCount] = useState(0);
  const [dropped, setDropped] = useState(0);
  const found = useEvents({ topics: "requests", ...query }, (name, document) => {
    if (name === "dropped") setDropped(document.total);
    // What was refused before the first visit; later ones are here already.
    const isFirst = name === "refusals" && !ids.current;
    const fresh = isFirst ? document.items.reverse() : name === "requests" ? [document] : [];
    for (const each of fresh) {
      ids.current += 1;
      waiting.current.push({ ...each, id: ids.current });
    }
    if (waiting.current.length > MOST) waiting.current.shift();
  });
  const show = () => {
    const fresh = waiting.current.reverse();
    waiting.current = [];
    if (fresh.length) setEvents((before) => [...fresh, ...before].slice(0, MOST));
    setCount(0);
  };
  useEffect(() => {
    const timer = setInterval(() => (isHeld ? setCount(waiting.current.length) : show()), DRAW_MS);
    return () => clearInterval(timer);
  }, [isHeld]);
  const clear = () => {
    waiting.current = [];
    setEvents([]);
    setCount(0);
  };
  return { ...found, events, count, dropped, clear };
}

export default function Live({ route }) {
  const [paused, setPaused] = useState(false);
  const [first, setFirst] = useState(0);
  const [opened, setOpened] = useState(null);
  const box = useRef();
  const found = useRequests(route.query, paused || first > 0);
  const row = useRowHeight(ROW, CARD);
  const scrolled = (top) => setFirst(Math.max(0, Math.floor(top / row) - 10));
  const goOn = () => {
    setPaused(false);
    if (box.current) box.current.scrollTop = 0;
  };
  useEffect(() => {
    const pressed = (event) => {
      const isTyping = event.target.closest("input, textarea, select, dialog");
      if (event.key.toLowerCase() !== "p" || event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
      if (paused) goOn();
      else setPaused(true);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [paused]);
  const isFiltered = Object.values(route.query).some((value) => value);
  const shown = { ...found, data: found.atMs ? found.events : undefined };
  const empty = html`
    <${Empty} title=${say("live.empty")} text=${say("live.emptyText")}>
      <a class="button" href=${link([isFiltered ? "live" : "buckets"])}>
        ${say(isFiltered ? "live.unfiltered" : "live.makeOne")}</a><//>
  `;
  const state = found.open ? "live.open" : "live.waiting";
  const actions = html`
    <${Button} icon=${paused ? "play" : "pause"} kind=${paused ? "primary" : ""} aria-pressed=${paused}
      onClick=${paused ? goOn : () => setPaused(true)}>${say(paused ? "live.resume" : "live.pause")}<//>
    <${Button} onClick=${found.clear}>${say("live.clear")}<//>
  `;
  const isBehind = found.count > 0;
  return html`
    <${Page} title=${say("nav.live")} actions=${actions} fixed
      tools=${html`<div class="fill"><${Filters} query=${route.query} events=${found.events} /></div>`}
      beside=${opened && html`<${Details} of=${opened} events=${found.events} onOpen=${setOpened}
        query=${route.query} onClose=${() => setOpened(null)} />`}>
      <${Loaded} of=${shown} isEmpty=${(events) => !events.length} empty=${empty}>
        ${(events) => html`
          <${Table} events=${events} opened=${opened} onOpen=${setOpened} onScrolled=${scrolled} first=${first} box=${box} row=${row}
            columns=${opened ? FEW : COLUMNS.length} />
        `}
      <//>
      <p class="listFoot edge" role="status">
        <span><span class=${found.open ? "dot ok" : "dot warn"}></span>${say(state)}</span>
        <span>${say("live.kept", { count: number(found.events.length) })}${found.events.length >= MOST
          && ", " + say("live.full", { count: number(MOST) })}${found.dropped > 0
          && " · " + say("live.dropped", { count: number(found.dropped) })}</span>
        <span class="fill"></span>
        ${isBehind
          ? html`<button type="button" class="link" onClick=${goOn}>${say("live.new", { count: number(found.count) })}</button>`
          : html`<span class="hidePhone">${say("live.hold")}</span>`}
      </p>
    <//>
  `;
}
