// Requests as they end, on all wires: filtered by the server, held while one looks, and explained.

import { useEffect, useRef, useState } from "./hooks.ceebd18b27.js";
import { call, segment } from "./api.3f20c599c2.js";
import { useEvents } from "./events.9af818e278.js";
import { addTexts, bytes, number, say } from "./messages.5d7ca40ed1.js";
import { go, link } from "./router.dcba0dcacc.js";
import { Button, Dialog, Empty, Field, html, Loaded, Page, Problem, Select, useAction } from "./ui.7967bae88c.js";

addTexts({
  "live.pause": "Pause",
  "live.resume": "Go on",
  "live.clear": "Clear",
  "live.new": "{count} new",
  "live.open": "Connected",
  "live.waiting": "Connecting",
  "live.dropped": "{count} more were too many to show",
  "live.empty": "No request yet",
  "live.emptyText": "Requests appear here as they end. Filters hold for the next ones.",
  "live.unfiltered": "Show all requests",
  "live.makeOne": "Open the buckets",
  "live.table": "Requests",
  "live.any": "any",
  "live.wire": "Wire",
  "live.status": "Status",
  "live.errors": "errors",
  "live.operation": "Operation",
  "live.bucket": "Bucket",
  "live.prefix": "Prefix of the object",
  "live.key": "Access key",
  "live.slower": "Slower than, in ms",
  "live.time": "Time",
  "live.target": "Target",
  "live.who": "Who",
  "live.duration": "Duration",
  "live.size": "Bytes",
  "live.code": "Code",
  "live.reason": "Reason",
  "live.address": "Address",
  "live.agent": "Program",
  "live.requestId": "Request",
  "live.trace": "Trace",
  "live.worker": "Process",
  "live.object": "Object",
  "live.received": "Received",
  "live.sent": "Sent",
  "live.why": "Why?",
  "live.allowed": "Allowed now",
  "live.refused": "Refused",
  "live.hint.SignatureDoesNotMatch":
    "The secret key of the client is another one, or a proxy has changed the path, the host or a header.",
  "live.hint.InvalidAccessKeyId": "There is no such key, or it was revoked, is disabled or has expired.",
  "live.hint.RequestTimeTooSkewed": "The clock of the client is wrong by more than 15 minutes.",
  "live.hint.AccessDenied": "The policy of the key, or that of the bucket, does not allow it.",
  "live.hint.NoSuchBucket": "The name is misspelled, or the client takes the first part of the path for another.",
  "live.hint.RATE_LIMITED": "The method has a limit of calls, which this address has reached.",
  "live.hint.UNAUTHENTICATED": "The call has no credentials, or none that a provider accepts.",
  "live.hint.PERMISSION_DENIED": "The caller is known, and may not call this method.",
});

const WIRES = ["s3", "http", "websocket", "grpc", "udp", "tcp"];
const STATUSES = ["error", "2xx", "3xx", "4xx", "5xx", "403", "404", "503"];
const HINTS = [
  "SignatureDoesNotMatch", "InvalidAccessKeyId", "RequestTimeTooSkewed", "AccessDenied", "NoSuchBucket",
  "RATE_LIMITED", "UNAUTHENTICATED", "PERMISSION_DENIED",
];
const MOST = 5000;
const ROW = 34;
const SHOWN = 60;
const DRAW_MS = 250;

const clock = new Intl.DateTimeFormat(undefined, {
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

function Details({ of, onClose }) {
  const rows = [
    ["time", clock.format(of.atMs)], ["wire", of.wire], ["operation", of.operation], ["status", of.status],
    ["code", of.code], ["reason", of.reason], ["bucket", of.bucket], ["object", of.key],
    ["who", of.accessKey || of.user], ["address", of.address], ["agent", of.agent],
    ["duration", number(of.ms) + " ms"], ["received", of.bytesIn && bytes(of.bytesIn)],
    ["sent", of.bytesOut && bytes(of.bytesOut)], ["requestId", of.requestId], ["trace", of.trace],
    ["worker", number(of.worker)],
  ];
  return html`
    <${Dialog} title=${of.operation + " · " + of.status} onClose=${onClose}>
      ${HINTS.includes(of.code) && html`<p>${say("live.hint." + of.code)}</p>`}
      <dl class="facts">
        ${rows.filter(([, value]) => value).map(([name, value]) => html`
          <dt>${say("live." + name)}</dt><dd>${value}</dd>
        `)}
      </dl>
      ${of.status >= 400 && of.wire === "s3" && of.accessKey && of.bucket && html`<${Why} of=${of} />`}
    <//>
  `;
}

function Filters({ query }) {
  const set = (name) => (event) => go(["live"], { ...query, [name]: event.target.value }, true);
  const choices = (values, texts = {}) => [["", say("live.any")], ...values.map((each) => [each, texts[each] || each])];
  const typed = ["operation", "bucket", "prefix", "key"];
  return html`
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
    </form>
  `;
}

// The newest first; only the rows that are seen are elements.
function Table({ events, onOpen, onScrolled, first, box }) {
  const rows = events.slice(first, first + SHOWN);
  const below = Math.max(0, events.length - first - SHOWN);
  const columns = ["time", "wire", "operation", "status", "target", "who", "duration", "size"];
  return html`
    <div ref=${box} class="scroll live" tabindex="0" role="region" aria-label=${say("live.table")}
      onScroll=${(event) => onScrolled(event.target.scrollTop)}>
      <table aria-rowcount=${events.length}>
        <thead><tr>${columns.map((name) => html`<th scope="col">${say("live." + name)}</th>`)}</tr></thead>
        <tbody>
          <tr class="space" aria-hidden="true"><td colspan="8" style=${{ height: first * ROW + "px" }}></td></tr>
          ${rows.map((event) => html`
            <tr key=${event.id}>
              <td>${clock.format(event.atMs)}</td>
              <td>${event.wire}</td>
              <td><button type="button" class="link" onClick=${() => onOpen(event)}>${event.operation}</button></td>
              <td class=${event.status >= 400 ? "bad" : ""}>${event.status} ${event.code || ""}</td>
              <td class="target">${target(event)}</td>
              <td>${event.accessKey || event.user || event.address}</td>
              <td class="number">${number(event.ms)} ms</td>
              <td class="number">${bytes((event.bytesIn || 0) + (event.bytesOut || 0))}</td>
            </tr>
          `)}
          <tr class="space" aria-hidden="true"><td colspan="8" style=${{ height: below * ROW + "px" }}></td></tr>
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
  const scrolled = (top) => setFirst(Math.max(0, Math.floor(top / ROW) - 10));
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
    <${Button} icon=${paused ? "play" : "pause"} aria-pressed=${paused}
      onClick=${paused ? goOn : () => setPaused(true)}>${say(paused ? "live.resume" : "live.pause")}<//>
    <${Button} onClick=${found.clear}>${say("live.clear")}<//>
  `;
  return html`
    <${Page} title=${say("nav.live")} actions=${actions}>
      <${Filters} query=${route.query} />
      <p class="quiet" role="status">
        ${say(state)}${found.dropped > 0 && " · " + say("live.dropped", { count: number(found.dropped) })}
        ${found.count > 0 && html` · <button type="button" class="link" onClick=${goOn}>
          ${say("live.new", { count: number(found.count) })}</button>`}
      </p>
      <${Loaded} of=${shown} isEmpty=${(events) => !events.length} empty=${empty}>
        ${(events) => html`
          <${Table} events=${events} onOpen=${setOpened} onScrolled=${scrolled} first=${first} box=${box} />
        `}
      <//>
      ${opened && html`<${Details} of=${opened} onClose=${() => setOpened(null)} />`}
    <//>
  `;
}
