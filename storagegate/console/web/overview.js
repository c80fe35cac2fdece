// The first page: whether all is well, what there is, and the figures of the last hour.

import { useEffect, useState } from "preact/hooks";
import { call } from "./api.js";
import { Chart } from "./charts.js";
import { useEvents } from "./events.js";
import { addTexts, age, bytes, date, number, say } from "./messages.js";
import { link } from "./router.js";
import { html, Icon, Loaded, Page, useLoad } from "./ui.js";

export { styled } from "./figures.js";

addTexts({
  "overview.ok": "Healthy",
  "overview.unavailable": "Requests are not served",
  "overview.draining": "Shutting down",
  "overview.listening": "All {count} components are running",
  "overview.started": "Started",
  "overview.workers": "Processes",
  "overview.memory": "Memory",
  "overview.buckets": "Buckets",
  "overview.objects": "Objects",
  "overview.objectsNote": "Older versions included",
  "overview.bytes": "Stored",
  "overview.bytesNote": "{free} free on the disk",
  "overview.requests": "Requests/s",
  "overview.peak": "Peak {value}/s in the last hour",
  "overview.errors": "Errors/s",
  "overview.share": "{percent} of requests",
  "overview.p99": "p99",
  "overview.p50": "p50",
  "overview.slowest": "The slowest protocol",
  "overview.readOnly": "The store accepts no writes: {reason}",
  "overview.wires": "Protocols",
  "overview.wire": "Protocol",
  "overview.lastMinute": "Last minute",
  "overview.lastHour": "Last hour",
  "overview.disk": "Disk",
  "overview.used": "used",
  "overview.storedHere": "Objects",
  "overview.other": "Other files",
  "overview.free": "Free",
  "overview.bucket": "Bucket",
  "overview.topBuckets": "Top buckets",
  "overview.allBuckets": "All buckets",
  "overview.noBuckets": "No buckets yet",
  "overview.refusals": "Recent refusals",
  "overview.live": "Open in Live",
  "overview.noRefusals": "No request was refused since this page was opened.",
  "overview.operation": "Operation",
  "overview.status": "Status",
  "overview.reason": "Reason",
  "overview.figures": "Last hour",
  "overview.figuresBegin": "The daemon records these figures from the first visit to the console on.",
  "overview.chartBytes": "S3 bytes/s",
  "overview.chartCpu": "CPU in use",
  "overview.chartMemory": "Memory",
  "overview.received": "received",
  "overview.sent": "sent",
  "overview.cpu": "processors",
});

const MOST_BUCKETS = 1000;
const TOP_BUCKETS = 6;
const MOST_REFUSALS = 6;
const SPARK_POINTS = 60;
const HOUR_STEPS = 720;
const POLL_MS = 30000;

const ms = (value) => number(value < 10 ? Math.round(value * 100) / 100 : Math.round(value)) + " ms";
const few = (value) => number(Math.round(value * 100) / 100);

// A line without axes, as a picture beside a figure; of many values each point is the mean of some.
function Spark({ values, isBad, inRow, label }) {
  const known = values.map((each) => each || 0);
  const size = Math.max(1, Math.ceil(known.length / SPARK_POINTS));
  const points = [];
  for (let at = 0; at < known.length; at += size) {
    const some = known.slice(at, at + size);
    points.push(some.reduce((sum, each) => sum + each, 0) / some.length);
  }
  if (points.length < 2) return html`<svg class=${inRow ? "spark inRow" : "spark"} aria-hidden="true"></svg>`;
  const most = Math.max(...points, 1e-9);
  const line = points.map((each, at) =>
    (at ? "L" : "M") + ((at * 100) / (points.length - 1)).toFixed(1) + " " + (35 - (34 * each) / most).toFixed(1)).join("");
  return html`
    <svg class=${"spark" + (isBad ? " isBad" : "") + (inRow ? " inRow" : "")} viewBox="0 0 100 36" preserveAspectRatio="none"
      role="img" aria-label=${label}><path class="area" d=${line + "L100 36L0 36Z"} /><path d=${line} /></svg>
  `;
}

function Health({ of, overview, memory }) {
  const wrong = Object.entries(of.parts).filter(([, text]) => text !== "ok" && text !== "listening");
  const warnings = Object.entries(of.warnings);
  const isWell = of.status === "ok";
  const facts = [
    ["started", html`<span title=${date(overview.startedMs)}>${age(overview.startedMs)}</span>`],
    ["workers", number(overview.workers)],
    ["buckets", number(overview.store.buckets)],
    ...(memory ? [["memory", bytes(memory)]] : []),
  ];
  return html`
    <div class="strip">
      <div>
        <span class=${isWell ? "dot ok" : "dot gone"}></span>
        <strong role="status">${say("overview." + of.status)}</strong>
        <span class="quiet">${isWell && !wrong.length && say("overview.listening", { count: number(Object.keys(of.parts).length) })}</span>
        ${of.error && html`<span class="bad">${of.error}</span>`}
      </div>
      ${facts.map(([name, value]) => html`<dl><dt>${say("overview." + name)}</dt><dd>${value}</dd></dl>`)}
    </div>
    ${overview.store.readOnly && html`<p class="notice bad">${say("overview.readOnly", { reason: overview.store.readOnly })}</p>`}
    ${[...wrong, ...warnings].map(([name, text]) => html`
      <p class="notice warn" key=${name}><${Icon} name="warning" /><span><strong>${name}</strong>: ${text}</span></p>
    `)}
  `;
}

const PROTOCOLS = { s3: "S3", http: "HTTP", websocket: "WebSocket", grpc: "gRPC", udp: "UDP", tcp: "TCP" };

// The sum, or the greatest, of a figure of all protocols at each step.
function across(series, figure, join) {
  const found = Object.entries(series).filter(([name]) => name.endsWith("." + figure)).map(([, values]) => values);
  const length = Math.max(0, ...found.map((each) => each.length));
  return Array.from({ length }, (_, at) => join(found.map((each) => each[at] || 0)));
}

const sumOf = (values) => values.reduce((sum, each) => sum + each, 0);

const percentOf = (part, whole) =>
  new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 2 }).format(whole ? part / whole : 0);

function Tiles({ overview, wires, series }) {
  const now = Object.values(wires);
  const perSecond = sumOf(now.map((each) => each.perSecond));
  const errors = sumOf(now.map((each) => each.errors));
  const p99 = Math.max(0, ...now.map((each) => (each.perSecond ? each.p99Ms : 0)));
  const requests = across(series, "perSecond", sumOf);
  const tile = (name, value, note, spark) => html`
    <dl class="tile"><dt>${say("overview." + name)}</dt><dd>${value}</dd><dd><small>${note}</small>${spark}</dd></dl>
  `;
  const line = (values, name, isBad) => html`<${Spark} values=${values} isBad=${isBad}
    label=${say("overview." + name) + ", " + say("overview.lastHour")} />`;
  return html`
    <div class="tiles">
      ${tile("objects", number(overview.store.objects), say("overview.objectsNote"))}
      ${tile("bytes", bytes(overview.store.bytes), say("overview.bytesNote", { free: bytes(overview.disk.free) }))}
      ${tile("requests", few(perSecond), say("overview.peak", { value: few(Math.max(0, ...requests)) }), line(requests, "requests"))}
      ${tile("errors", few(errors), say("overview.share", { percent: percentOf(errors, perSecond) }),
        line(across(series, "errors", sumOf), "errors", true))}
      ${tile("p99", p99 ? ms(p99) : "–", say("overview.slowest"),
        line(across(series, "p99Ms", (values) => Math.max(...values)), "p99"))}
    </div>
  `;
}

function Protocols({ of, series }) {
  return html`
    <section class="card flush"><header><h2>${say("overview.wires")}</h2><small>${say("overview.lastMinute")}</small></header>
      <div class="scroll" tabindex="0">
        <table>
          <thead><tr>
            <th scope="col">${say("overview.wire")}</th>
            ${["requests", "p50", "p99", "errors"].map((name) => html`
              <th scope="col" class=${name === "p50" ? "number hidePhone" : "number"}>${say("overview." + name)}</th>
            `)}
            <th scope="col" class="number hidePhone">${say("overview.lastHour")}</th>
          </tr></thead>
          <tbody>
            ${Object.entries(of).map(([name, row]) => html`
              <tr key=${name}>
                <th scope="row"><a href=${link(["live"], { wire: name })}>${PROTOCOLS[name] || name}</a></th>
                <td class="number">${few(row.perSecond)}</td>
                <td class="number hidePhone">${row.perSecond ? ms(row.p50Ms) : "–"}</td>
                <td class="number">${row.perSecond ? ms(row.p99Ms) : "–"}</td>
                <td class=${row.errors ? "number bad" : "number quiet"}>${few(row.errors)}</td>
                <td class="hidePhone"><${Spark} inRow values=${series[name + ".perSecond"] || []}
                  label=${(PROTOCOLS[name] || name) + ", " + say("overview.lastHour")} /></td>
              </tr>
            `)}
          </tbody>
        </table>
      </div>
    </section>
  `;
}

const ROUND = 2 * Math.PI * 40;

function Disk({ of }) {
  const { disk, store } = of;
  const used = disk.total - disk.free;
  const share = disk.total ? used / disk.total : 0;
  const rows = [["storedHere", store.bytes], ["other", Math.max(0, used - store.bytes)], ["free", disk.free]];
  const percent = percentOf(Math.round(share * 100), 100);
  return html`
    <section class="card"><header><h2>${say("overview.disk")}</h2><small>${bytes(disk.total)}</small></header>
      <div class="diskRow">
        <svg class="gauge" viewBox="0 0 96 96" role="img" aria-label=${percent + " " + say("overview.used")}>
          <circle cx="48" cy="48" r="40" /><circle class="value" cx="48" cy="48" r="40" transform="rotate(-90 48 48)"
            stroke-dasharray=${ROUND * share + " " + ROUND} />
          <text x="48" y="50">${percent}</text><text class="unit" x="48" y="64">${say("overview.used")}</text></svg>
        <dl class="facts fill">${rows.map(([name, value]) => html`<dt>${say("overview." + name)}</dt><dd class="number">${bytes(value)}</dd>`)}</dl>
      </div>
    </section>
  `;
}

function TopBuckets() {
  const found = useLoad((signal) => call("GET", "buckets", { query: { limit: MOST_BUCKETS }, signal }), []);
  if (!found.data) return html`<section class="card flush"><header><h2>${say("overview.topBuckets")}</h2></header></section>`;
  const top = [...found.data.items].sort((one, other) => other.bytes - one.bytes).slice(0, TOP_BUCKETS);
  const most = Math.max(1, ...top.map((each) => each.bytes));
  return html`
    <section class="card flush"><header><h2>${say("overview.topBuckets")}</h2><a href=${link(["buckets"])}>${say("overview.allBuckets")}</a></header>
      ${top.length ? html`<div class="scroll" tabindex="0"><table>
        <thead><tr><th scope="col">${say("overview.bucket")}</th><th scope="col" class="number">${say("overview.objects")}</th>
          <th scope="col" class="number">${say("overview.bytes")}</th><td class="hidePhone"></td></tr></thead>
        <tbody>${top.map((each) => html`
          <tr key=${each.name}><th scope="row"><a class="name" href=${link(["buckets", each.name, "objects"])}><${Icon} name="bucket" />${each.name}</a></th>
            <td class="number">${number(each.objects - (each.older || 0))}</td><td class="number">${bytes(each.bytes)}</td>
            <td class="hidePhone"><svg class="meter" aria-hidden="true"><rect height="6" rx="3" width=${Math.round((58 * each.bytes) / most)} /></svg></td></tr>
        `)}</tbody></table></div>` : html`<p class="cardText quiet">${say("overview.noBuckets")}</p>`}
    </section>
  `;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const Refusals = ({ events }) => html`
  <section class="card flush"><header><h2>${say("overview.refusals")}</h2>
    <a href=${link(["live"], { status: "error" })}>${say("overview.live")}</a></header>
    ${events.length
      ? html`<div class="scroll" tabindex="0"><table><tbody>${events.map((each) => html`
          <tr key=${each.id}><td class="number">${clock.format(each.atMs)}</td><td class=${"status is" + String(each.status).slice(0, 1)}>${each.status}</td>
            <td>${each.operation}</td><td class="long quiet">${each.reason || each.code}</td></tr>`)}</tbody></table></div>`
      : html`<p class="cardText quiet">${say("overview.noRefusals")}</p>`}
  </section>
`;

// A step at the end of the history; series that it does not have go on without a value.
function append(history, { endMs, values }) {
  if (endMs <= history.endMs) return history;
  const length = Math.max(0, ...Object.values(history.series).map((each) => each.length));
  const skipped = length ? Math.min(Math.round((endMs - history.endMs) / history.stepMs) - 1, HOUR_STEPS) : 0;
  const series = {};
  for (const name of new Set([...Object.keys(history.series), ...Object.keys(values)])) {
    const before = history.series[name] || Array(length).fill(null);
    const found = [...before, ...Array(skipped).fill(null), values[name] ?? null];
    series[name] = found.slice(-HOUR_STEPS);
  }
  return { ...history, endMs, series };
}

function Charts({ of }) {
  const { series, endMs, stepMs } = of;
  const count = Math.max(0, ...Object.values(series).map((each) => each.length));
  const times = Array.from({ length: count }, (_, at) => (endMs - (count - 1 - at) * stepMs) / 1000);
  const some = (...pairs) => pairs.filter(([, name]) => series[name]).map(([text, name]) => [say(text), series[name]]);
  const charts = [
    ["overview.chartBytes", some(["overview.received", "s3.bytesIn"], ["overview.sent", "s3.bytesOut"]), bytes],
    ["overview.chartCpu", some(["overview.cpu", "cpu"]), few],
    ["overview.chartMemory", some(["overview.memory", "memory"]), bytes],
  ];
  return html`
    <h2>${say("overview.figures")}</h2>
    ${count < HOUR_STEPS && html`<p class="quiet">${say("overview.figuresBegin")}</p>`}
    <div class="charts">
      ${charts.filter(([, rows]) => rows.length).map(([title, rows, format]) => html`
        <${Chart} key=${title} title=${say(title)} times=${times} series=${rows} format=${format} />
      `)}
    </div>
  `;
}

function latestWires(known, values) {
  const names = new Set([...Object.keys(known), ...Object.keys(values)
    .filter((name) => name.endsWith(".perSecond")).map((name) => name.slice(0, -10))]);
  const of = (name, figure) => values[name + "." + figure] ?? 0;
  return Object.fromEntries([...names].map((name) => [name, {
    perSecond: of(name, "perSecond"), p50Ms: of(name, "p50Ms"), p99Ms: of(name, "p99Ms"), errors: of(name, "errors"),
  }]));
}

export default function Overview() {
  const found = useLoad((signal) => call("GET", "overview", { signal }), []);
  const history = useLoad((signal) => call("GET", "metrics", { query: { seconds: 3600 }, signal }), []);
  const [health, setHealth] = useState(null);
  const [values, setValues] = useState(null);
  const [refused, setRefused] = useState([]);
  useEvents({ topics: "metrics,health,requests", status: "error" }, (name, document) => {
    if (name === "health") setHealth(document);
    if (name === "requests")
      setRefused((before) => [{ ...document, id: (before.length ? before[0].id : 0) + 1 }, ...before].slice(0, MOST_REFUSALS));
    if (name !== "metrics") return;
    setValues(document.values);
    history.change((before) => before && append(before, document), Date.now());
  });
  useEffect(() => {
    if (found.error || !found.atMs) return undefined;
    const timer = setTimeout(found.reload, POLL_MS);
    return () => clearTimeout(timer);
  }, [found.atMs, found.error]);
  const series = history.data ? history.data.series : {};
  return html`
    <${Page} title=${say("nav.overview")} role="auditor">
      <${Loaded} of=${found}>
        ${(overview) => {
          const wires = values ? latestWires(overview.wires, values) : overview.wires;
          return html`
            <${Health} of=${health || overview} overview=${overview} memory=${values && values.memory} />
            <${Tiles} overview=${overview} wires=${wires} series=${series} />
            <div class="columns wide"><${Protocols} of=${wires} series=${series} /><${Disk} of=${overview} /></div>
            <div class="columns"><${TopBuckets} /><${Refusals} events=${refused} /></div>
          `;
        }}
      <//>
      <${Loaded} of=${history}>${(all) => html`<${Charts} of=${all} />`}<//>
    <//>
  `;
}
