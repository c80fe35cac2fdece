// Requests as they end, on all protocols: filtered by the server, held while one looks, and explained.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, segment } from "./api.js";
import { useEvents } from "./events.js";
import { addTexts, bytes, number, say } from "./messages.js";
import { go, link } from "./router.js";
import { Button, Empty, Field, html, Icon, IconButton, Loaded, Page, Problem, Select, useAction, useEscape } from "./ui.js";
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
  "live.emptyText": "Requests appear here as they end. Filters apply to new requests.",
  "live.unfiltered": "Show all requests",
  "live.makeOne": "Objects",
  "live.table": "Requests",
  "live.any": "Any",
  "live.wire": "Protocol",
  "live.status": "Status",
  "live.errors": "Errors",
  "live.slow": "Slower than 100 ms",
  "live.more": "More filters",
  "live.reasonTitle": "Why it was refused",
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

const WIRES = ["s3", "http", "websocket", "grpc", "udp", "tcp"];
const STATUSES = ["error", "2xx", "3xx", "4xx", "5xx", "403", "404", "503"];
const HINTS = [
  "SignatureDoesNotMatch", "InvalidAccessKeyId", "RequestTimeTooSkewed", "AccessDenied", "NoSuchBucket",
  "RATE_LIMITED", "UNAUTHENTICATED", "PERMISSION_DENIED",
];
const MOST = 5000;
const ROW = 28;
const CARD = 60;
const SHOWN = 60;
const DRAW_MS = 250;

const clock = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3,
});

const target = (event) => (event.bucket ? event.bucket + (event.key ? "/" + event.key : "") : "");

function accessOf(operation) {
  if (/^(Get|Head)Object/.test(operation)) return "read";
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
    <p><${Button} busy=${busy} onClick=${ask}>${say("live.why")}<//></p>
    <p role="status">${verdict && html`
      <strong class=${verdict.allowed ? "good" : "bad"}>
        ${say(verdict.allowed ? "live.allowed" : "live.refused")}</strong>: ${verdict.why}
    `}</p>
    ${error && html`<${Problem} error=${error} />`}
  `;
}

const statusClass = (status) => "status is" + String(status).slice(0, 1);

function Details({ of, onClose }) {
  useEscape(onClose);
  const rows = [
    ["time", clock.format(of.atMs)], ["wire", of.wire], ["operation", of.operation], ["status", of.status],
    ["code", of.code], ["reason", of.reason], ["bucket", of.bucket], ["object", of.key],
    ["who", of.accessKey || of.user], ["address", of.address], ["agent", of.agent],
    ["duration", number(of.ms) + " ms"], ["received", of.bytesIn && bytes(of.bytesIn)],
    ["sent", of.bytesOut && bytes(of.bytesOut)], ["requestId", of.requestId], ["trace", of.trace],
    ["worker", number(of.worker)],
  ];
  const isRefusal = of.status >= 400 && of.wire === "s3" && of.accessKey && of.bucket;
  return html`
    <aside class="drawer" aria-label=${of.operation + " · " + of.status}>
      <header><span class=${statusClass(of.status)}>${of.status}</span><h2>${of.operation}</h2>
        <${IconButton} icon="close" kind="small" label=${say("app.close")} onClick=${onClose} /></header>
      <div class="drawerBody">
      ${(of.reason || HINTS.includes(of.code)) && html`<section class="part"><h3>${say("live.reasonTitle")}</h3>
        ${of.reason && html`<p>${of.reason}</p>`}
      ${HINTS.includes(of.code) && html`<p class="quiet">${say("live.hint." + of.code)}</p>`}
      ${isRefusal && html`<${Why} of=${of} />`}</section>`}
      <section class="part"><dl class="facts">
        ${rows.filter(([, value]) => value).map(([name, value]) => html`
          <dt>${say("live." + name)}</dt><dd>${value}</dd>
        `)}
      </dl></section></div>
    </aside>
  `;
}

function Filters({ query }) {
  const put = (values) => go(["live"], { ...query, ...values }, true);
  const set = (name) => (event) => put({ [name]: event.target.value });
  const choices = (values, texts = {}) => [["", say("live.any")], ...values.map((each) => [each, texts[each] || each])];
  const typed = ["operation", "bucket", "prefix", "key"];
  const chip = (name, value, text) => html`
    <button type="button" class="chip" aria-pressed=${query[name] === value}
      onClick=${() => put({ [name]: query[name] === value ? "" : value })}>${text}
      ${query[name] === value && html`<${Icon} name="close" />`}</button>
  `;
  return html`
    <div class="chips">
      ${chip("status", "error", say("live.errors"))}
      ${["403", "5xx"].map((each) => chip("status", each, each))}
      ${WIRES.map((each) => chip("wire", each, each))}
      ${chip("slowerThanMs", "100", say("live.slow"))}
    </div>
    <details open=${typed.some((name) => query[name])}><summary>${say("live.more")}</summary>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Select} label=${say("live.wire")} value=${query.wire || ""} options=${choices(WIRES)}
        onChange=${set("wire")} />
      <${Select} label=${say("live.status")} value=${query.status || ""} onChange=${set("status")}
        options=${choices(STATUSES, { error: say("live.errors") })} />
      ${typed.map((name) => html`
        <${Field} label=${say("live." + name)} value=${query[name] || ""} onChange=${set(name)} />
      `)}
      <${Field} label=${say("live.slower")} type="number" min="0" value=${query.slowerThanMs || ""}
        onChange=${set("slowerThanMs")} />
    </form></details>
  `;
}

const COLUMNS = [["time", "liveTime"], ["wire", "liveWire"], ["operation", "liveOperation"], ["status", "liveStatus"], ["target", ""], ["who", "liveWho"],
  ["duration", "liveShort number"], ["size", "liveShort number"]];

// What stays beside the details of a request.
const FEW = 5;

// The newest first; only the rows that are seen are elements.
function Table({ events, onOpen, onScrolled, first, box, row, columns }) {
  const rows = events.slice(first, first + SHOWN);
  const below = Math.max(0, events.length - first - SHOWN);
  return html`
    <div ref=${box} class="scroll live cards" tabindex="0" role="region" aria-label=${say("live.table")}
      onScroll=${(event) => onScrolled(event.target.scrollTop)}>
      <table aria-rowcount=${events.length}>
        <thead><tr>${COLUMNS.map(([name, kind]) => html`<th scope="col" class=${kind}>${say("live." + name)}</th>`)}</tr></thead>
        <tbody>
          <tr class="space" aria-hidden="true"><td colspan=${columns} style=${{ height: first * row + "px" }}></td></tr>
          ${rows.map((event) => html`
            <tr key=${event.id}>
              <td>${clock.format(event.atMs)}</td>
              <td>${event.wire}</td>
              <td class="lead"><button type="button" class="link" onClick=${() => onOpen(event)}>${event.operation}</button></td>
              <td class=${statusClass(event.status)}>${event.status} ${event.code || ""}</td>
              <td class="target">${target(event)}</td>
              <td>${event.accessKey || event.user || event.address}</td>
              <td class="number">${number(event.ms)} ms</td>
              <td class="number">${bytes((event.bytesIn || 0) + (event.bytesOut || 0))}</td>
            </tr>
          `)}
          <tr class="space" aria-hidden="true"><td colspan=${columns} style=${{ height: below * row + "px" }}></td></tr>
        </tbody>
      </table>
    </div>
  `;
}

// The events that are shown, and those that wait while the list is held.
function useRequests(query, isHeld) {
  const waiting = useRef([]);
  const ids = useRef(0);
  const [events, setEvents] = useState([]);
  const [count, setCount] = useState(0);
  const [dropped, setDropped] = useState(0);
  const found = useEvents({ topics: "requests", ...query }, (name, document) => {
    if (name === "dropped") setDropped(document.total);
    if (name !== "requests") return;
    ids.current += 1;
    waiting.current.push({ ...document, id: ids.current });
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
  return html`
    <${Page} title=${say("nav.live")} actions=${actions} fixed tools=${html`<div class="fill"><${Filters} query=${route.query} /></div>`}
      beside=${opened && html`<${Details} of=${opened} onClose=${() => setOpened(null)} />`}>
      <p class="quiet" role="status">
        ${say(state)}${found.dropped > 0 && " · " + say("live.dropped", { count: number(found.dropped) })}
        ${found.count > 0 && html` · <button type="button" class="link" onClick=${goOn}>
          ${say("live.new", { count: number(found.count) })}</button>`}
      </p>
      <${Loaded} of=${shown} isEmpty=${(events) => !events.length} empty=${empty}>
        ${(events) => html`
          <${Table} events=${events} onOpen=${setOpened} onScrolled=${scrolled} first=${first} box=${box} row=${row}
            columns=${opened ? FEW : COLUMNS.length} />
        `}
      <//>
    <//>
  `;
}
