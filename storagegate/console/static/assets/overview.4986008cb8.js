// The first page: whether all is well, what there is, and the figures of the last hour.

import { useEffect, useState } from "./hooks.ceebd18b27.js";
import { call } from "./api.3f20c599c2.js";
import { Chart } from "./charts.6c5e0d06c1.js";
import { useEvents } from "./events.9af818e278.js";
import { addTexts, age, bytes, date, number, say } from "./messages.5d7ca40ed1.js";
import { link } from "./router.dcba0dcacc.js";
import { html, Icon, Loaded, Page, useLoad } from "./ui.7967bae88c.js";

addTexts({
  "overview.ok": "All parts serve",
  "overview.unavailable": "Requests are not served",
  "overview.draining": "The daemon stops",
  "overview.version": "Version",
  "overview.started": "Started",
  "overview.workers": "Processes",
  "overview.objects": "Objects",
  "overview.bytes": "Stored",
  "overview.buckets": "Buckets",
  "overview.free": "Free on the disk",
  "overview.freeOf": "{free} of {total}",
  "overview.readOnly": "The store accepts no writes: {reason}",
  "overview.parts": "Parts",
  "overview.wires": "Requests of the last minute",
  "overview.wire": "Wire",
  "overview.perSecond": "A second",
  "overview.p50": "Median",
  "overview.p99": "99 of 100 within",
  "overview.errors": "Errors a second",
  "overview.live": "See them live",
  "overview.figures": "The last hour",
  "overview.figuresBegin": "The figures begin with the first visit to the console.",
  "overview.chartRequests": "Requests a second",
  "overview.chartErrors": "Errors a second",
  "overview.chartLatency": "99 of 100 requests within",
  "overview.chartBytes": "Bytes of S3 a second",
  "overview.chartCpu": "Processors in use",
  "overview.chartMemory": "Memory",
  "overview.received": "received",
  "overview.sent": "sent",
  "overview.cpu": "processors",
  "overview.memory": "memory",
});

const HOUR_STEPS = 720;
const POLL_MS = 30000;

const ms = (value) => number(value < 10 ? Math.round(value * 100) / 100 : Math.round(value)) + " ms";
const few = (value) => number(Math.round(value * 100) / 100);

function Health({ of }) {
  const wrong = Object.entries(of.parts).filter(([, text]) => text !== "ok" && text !== "listening");
  const warnings = Object.entries(of.warnings);
  return html`
    <section class="card">
      <h2 class=${of.status === "ok" ? "good" : "bad"} role="status">${say("overview." + of.status)}</h2>
      ${of.error && html`<p class="bad">${of.error}</p>`}
      ${[...wrong, ...warnings].map(([name, text]) => html`
        <p key=${name}><${Icon} name="warning" /> <strong>${name}</strong>: ${text}</p>
      `)}
      <details><summary>${say("overview.parts")}</summary>
        <dl class="facts">
          ${Object.entries(of.parts).map(([name, text]) => html`<dt>${name}</dt><dd>${text}</dd>`)}
        </dl>
      </details>
    </section>
  `;
}

function Facts({ of }) {
  const { store, disk } = of;
  const free = { free: bytes(disk.free), total: bytes(disk.total) };
  const rows = [
    ["version", of.version],
    ["started", html`<span title=${date(of.startedMs)}>${age(of.startedMs)}</span>`],
    ["workers", number(of.workers)],
    ["buckets", number(store.buckets)],
    ["objects", number(store.objects)],
    ["bytes", bytes(store.bytes)],
    ["free", say("overview.freeOf", free)],
  ];
  return html`
    <section class="card">
      ${store.readOnly && html`<p class="bad">${say("overview.readOnly", { reason: store.readOnly })}</p>`}
      <dl class="facts">
        ${rows.map(([name, value]) => html`<dt>${say("overview." + name)}</dt><dd>${value}</dd>`)}
      </dl>
    </section>
  `;
}

function Wires({ of }) {
  return html`
    <h2>${say("overview.wires")}</h2>
    <div class="scroll" tabindex="0">
      <table>
        <thead><tr>
          <th scope="col">${say("overview.wire")}</th>
          ${["perSecond", "p50", "p99", "errors"].map((name) => html`
            <th scope="col" class="number">${say("overview." + name)}</th>
          `)}
        </tr></thead>
        <tbody>
          ${Object.entries(of).map(([name, row]) => html`
            <tr key=${name}>
              <th scope="row"><a href=${link(["live"], { wire: name })}>${name}</a></th>
              <td class="number">${few(row.perSecond)}</td>
              <td class="number">${row.perSecond ? ms(row.p50Ms) : ""}</td>
              <td class="number">${row.perSecond ? ms(row.p99Ms) : ""}</td>
              <td class=${row.errors ? "number bad" : "number"}>${few(row.errors)}</td>
            </tr>
          `)}
        </tbody>
      </table>
    </div>
    <p><a href=${link(["live"])}>${say("overview.live")}</a></p>
  `;
}

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
  const wires = (figure) => Object.entries(series)
    .filter(([name]) => name.endsWith("." + figure))
    .map(([name, numbers]) => [name.slice(0, -figure.length - 1), numbers]);
  const some = (...pairs) => pairs.filter(([, name]) => series[name]).map(([text, name]) => [say(text), series[name]]);
  const charts = [
    ["overview.chartRequests", wires("perSecond"), few],
    ["overview.chartLatency", wires("p99Ms"), ms],
    ["overview.chartErrors", wires("errors"), few],
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
  useEvents({ topics: "metrics,health" }, (name, document) => {
    if (name === "health") setHealth(document);
    if (name !== "metrics") return;
    setValues(document.values);
    history.change((before) => before && append(before, document), Date.now());
  });
  useEffect(() => {
    if (found.error || !found.atMs) return undefined;
    const timer = setTimeout(found.reload, POLL_MS);
    return () => clearTimeout(timer);
  }, [found.atMs, found.error]);
  return html`
    <${Page} title=${say("nav.overview")} role="auditor">
      <${Loaded} of=${found}>
        ${(overview) => html`
          <div class="charts">
            <${Health} of=${health || overview} />
            <${Facts} of=${overview} />
          </div>
          <${Wires} of=${values ? latestWires(overview.wires, values) : overview.wires} />
        `}
      <//>
      <${Loaded} of=${history}>${(all) => html`<${Charts} of=${all} />`}<//>
    <//>
  `;
}
