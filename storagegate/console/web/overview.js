// The first page: whether all is well, what there is, and the figures of the last hour.

import { useEffect, useState } from "preact/hooks";
import { call } from "./api.js";
import { Chart } from "./charts.js";
import { useEvents } from "./events.js";
import { addTexts, age, bytes, date, exactClock, number, say, signed } from "./messages.js";
import { link } from "./router.js";
import { Heads, html, Icon, Loaded, Page, useLoad } from "./ui.js";

export { styled } from "./figures.js";

addTexts({
  "overview.ok": "Healthy",
  "overview.unavailable": "Requests are not served",
  "overview.draining": "Shutting down",
  "overview.listening": "All {count} components are running",
  "overview.started": "Uptime",
  "overview.workers": "Processes",
  "overview.memory": "Memory",
  "overview.backup": "Last backup",
  "overview.damaged": "Damaged objects",
  "overview.objects": "Objects",
  "overview.objectsNote": "Older versions included",
  "overview.versions": "{count} versions",
  "overview.inDay": "{value} in 24 h",
  "overview.bytes": "Stored",
  "overview.bytesNote": "Older versions included",
  "overview.week": "since {age}",
  "overview.requests": "Requests/s",
  "overview.peak": "Peak {value}/s in 1 h",
  "overview.errors": "Errors",
  "overview.share": "{value}/s",
  "overview.p99": "p99",
  "overview.p50": "p50",
  "overview.slowest": "p50 {value}, of {name}",
  "overview.noRequests": "No request for 1 min",
  "overview.listener": "Listener",
  "overview.readOnly": "The store accepts no writes: {reason}",
  "overview.wires": "Protocols",
  "overview.wire": "Protocol",
  "overview.lastMinute": "Last minute",
  "overview.lastHour": "Last hour",
  "overview.disk": "Disk",
  "overview.used": "used",
  "overview.storedHere": "Objects and versions",
  "overview.uploads": "Unfinished uploads",
  "overview.other": "Other files",
  "overview.free": "Free",
  "overview.otherHelp": "Files of other programs on this disk, the catalog, and blobs that are not removed yet",
  "overview.full": "Full in about {time}",
  "overview.rate": "At {rate} a day, the mean of the last {window}",
  "overview.notFilling": "Not filling up",
  "overview.shrinks": "The used space has not grown in the last {window}",
  "overview.noForecast": "The time until it is full is known after a day of history",
  "overview.days": "{count} days",
  "overview.hours": "{count} hours",
  "overview.years": "more than 5 years",
  "overview.bucket": "Bucket",
  "overview.topBuckets": "Top buckets",
  "overview.allBuckets": "All {count} buckets",
  "overview.oneBucket": "All buckets",
  "overview.growth": "24 h",
  "overview.noBuckets": "No buckets yet",
  "overview.refusals": "Recent refusals",
  "overview.live": "Open in Live",
  "overview.noRefusals": "No request was refused since the first visit to the console.",
  "overview.time": "Time",
  "overview.operation": "Operation",
  "overview.status": "Status",
  "overview.reason": "Reason",
  "overview.figures": "Last hour",
  "overview.figuresBegin": "The daemon records these figures from the first visit to the console on.",
  "overview.chartRequests": "Requests/s",
  "overview.answered": "answered",
  "overview.failed": "errors",
  "overview.chartBytes": "S3 bytes/s",
  "overview.chartCpu": "CPU in use",
  "overview.chartMemory": "Memory",
  "overview.received": "received",
  "overview.sent": "sent",
  "overview.cpu": "processors",
});

const MOST_REFUSALS = 6;
const MOST_FRESH = 100;
const SPARK_POINTS = 60;
const FEWEST_POINTS = 6;
const HOUR_STEPS = 720;
const POLL_MS = 30000;

const ms = (value) => number(value < 10 ? Math.round(value * 100) / 100 : Math.round(value)) + " ms";
const textOf = (name) => say("overview." + name);
const few = (value) => number(Math.round(value * 100) / 100);
const DAY_MS = 86400000;
const LONGEST_DAYS = 5 * 365;

function spanOf(ms) {
  const days = ms / DAY_MS;
  if (days > LONGEST_DAYS) return say("overview.years");
  if (days >= 2) return say("overview.days", { count: number(Math.round(days)) });
  return say("overview.hours", { count: number(Math.round(days * 24)) });
}

function uptime(ms) {
  const minutes = Math.max(0, Math.floor(ms / 60000));
  const [days, hours] = [Math.floor(minutes / 1440), Math.floor(minutes / 60) % 24];
  if (days) return `${days} d ${hours} h`;
  return hours ? `${hours} h ${minutes % 60} min` : `${minutes} min`;
}

// A figure with its unit small: "412.6 GB", "348 /s".
function withUnit(text) {
  const at = text.lastIndexOf(" ");
  return at < 0 ? text : html`${text.slice(0, at)} <small class="unit">${text.slice(at + 1)}</small>`;
}

// A line without axes, as a picture beside a figure; of many values each point is the mean of some.
function Spark({ values, isBad, inRow, label, isLevel }) {
  const known = values.map((each) => each || 0);
  const size = Math.max(1, Math.ceil(known.length / SPARK_POINTS));
  const points = [];
  for (let at = 0; at < known.length; at += size) {
    const some = known.slice(at, at + size);
    points.push(some.reduce((sum, each) => sum + each, 0) / some.length);
  }
  // Some points are no curve yet.
  if (points.length < FEWEST_POINTS) return html`
    <svg class=${inRow ? "spark inRow" : "spark"} viewBox="0 0 100 36" preserveAspectRatio="none" aria-hidden="true">
      <path class="none" d="M0 35H100" /></svg>`;
  // A level that hardly changes fills the picture between its least and its most.
  const least = isLevel ? Math.min(...points) : 0;
  const span = Math.max(Math.max(...points) - least, 1e-9);
  const line = points.map((each, at) =>
    (at ? "L" : "M") + ((at * 100) / (points.length - 1)).toFixed(1) + " " + (35 - (34 * (each - least)) / span).toFixed(1)).join("");
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
    ["started", html`<span title=${date(overview.startedMs)}>${uptime(Date.now() - overview.startedMs)}</span>`],
    ["workers", number(overview.workers)],
    ...(memory ? [["memory", bytes(memory)]] : []),
    ...(overview.store.kind === "cluster" ? [] : [["backup", html`<a href=${link(["maintenance"])}
      title=${date(overview.store.backupMs)}>${overview.store.backupMs ? age(overview.store.backupMs) : say("app.never")}</a>`]]),
    ["damaged", overview.store.damaged
      ? html`<a class="bad" href=${link(["maintenance"])}>${number(overview.store.damaged)}</a>` : "0"],
  ];
  return html`
    <div class="strip">
      <div>
        <span class=${isWell ? "dot ok" : "dot gone"}></span>
        <strong role="status">${say("overview." + of.status)}</strong>
        <span class="quiet">${isWell && !wrong.length && say("overview.listening", { count: number(Object.keys(of.parts).length) })}</span>
        ${of.error && html`<span class="bad">${of.error}</span>`}
      </div>
      ${facts.map(([name, value]) => html`<dl class=${name === "workers" ? "hidePhone" : ""}><dt>${say("overview." + name)}</dt><dd>${value}</dd></dl>`)}
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

const percentOf = (part, whole) => number(whole ? Math.round((1000 * part) / whole) / 10 : 0) + " %";

function Tiles({ overview, wires, series }) {
  const { growth, store } = overview;
  const busy = Object.entries(wires).filter(([, each]) => each.perSecond);
  const perSecond = sumOf(busy.map(([, each]) => each.perSecond));
  const errors = sumOf(busy.map(([, each]) => each.errors));
  const slowest = busy.sort(([, one], [, other]) => other.p99Ms - one.p99Ms)[0];
  const requests = across(series, "perSecond", sumOf);
  const tile = (name, value, note, spark) => html`
    <dl class="tile"><dt>${say("overview." + name)}</dt><dd>${withUnit(value)}</dd><dd><small>${note}</small>${spark}</dd></dl>
  `;
  const line = (values, name, isBad) => html`<${Spark} values=${values} isBad=${isBad}
    label=${say("overview." + name) + ", " + say("overview.lastHour")} />`;
  const level = (name) => growth && html`<${Spark} values=${growth.series[name]} isLevel
    label=${say("overview." + name) + " " + say("overview.week", { age: age(growth.series.atMs[0]) })} />`;
  const day = (name, format) => (growth && growth.day
    ? say("overview.inDay", { value: signed(growth.day[name], format) }) : say("overview." + name + "Note"));
  const idle = say("overview.noRequests");
  return html`
    <div class="tiles">
      ${tile("objects", number(store.objects), day("objects", number), level("objects"))}
      ${tile("bytes", bytes(store.bytes), day("bytes", bytes), level("bytes"))}
      ${tile("requests", few(perSecond), say("overview.peak", { value: few(Math.max(0, ...requests)) }), line(requests, "requests"))}
      ${tile("errors", percentOf(errors, perSecond),
        say("overview.share", { value: few(errors) }), line(across(series, "errors", sumOf), "errors", true))}
      ${tile("p99", slowest ? ms(slowest[1].p99Ms) : "–", slowest
        ? say("overview.slowest", { value: ms(slowest[1].p50Ms), name: PROTOCOLS[slowest[0]] || slowest[0] }) : idle,
        line(across(series, "p99Ms", (values) => Math.max(...values)), "p99"))}
    </div>
  `;
}

// WebSocket is served by the listener of HTTP.
const listenerOf = (listeners, name) => listeners[name] || (name === "websocket" ? listeners.http : "") || "–";

function Protocols({ of, series, listeners }) {
  const heads = ["wire", ["listener", "hidePhone"], ["requests", "number"], ["p50", "number hidePhone"], ["p99", "number"],
    ["errors", "number"], ["lastHour", "number hidePhone"]];
  return html`
    <section class="card flush"><header><h2>${say("overview.wires")}</h2><small>${say("overview.lastMinute")}</small></header>
      <div class="scroll" tabindex="0">
        <table>
          <${Heads} names=${heads} text=${textOf} />
          <tbody>
            ${Object.entries(of).map(([name, row]) => html`
              <tr key=${name}>
                <th scope="row"><a class="name" href=${link(["live"], { wire: name })}><span class="dot ok"></span>${PROTOCOLS[name] || name}</a></th>
                <td class="quiet hidePhone"><code>${listenerOf(listeners, name)}</code></td>
                <td class="number">${few(row.perSecond)}</td>
                <td class="number hidePhone">${row.perSecond ? ms(row.p50Ms) : "–"}</td>
                <td class="number">${row.perSecond ? ms(row.p99Ms) : "–"}</td>
                <td class=${row.errors ? "number bad" : "number quiet"}>${percentOf(row.errors, row.perSecond)}</td>
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

function Forecast({ of }) {
  if (!of) return html`<small>${say("overview.noForecast")}</small>`;
  const window = spanOf(of.windowMs);
  if (of.fullMs === null)
    return html`<strong>${say("overview.notFilling")}</strong><small>${say("overview.shrinks", { window })}</small>`;
  return html`<strong class=${of.fullMs < 7 * DAY_MS ? "bad" : of.fullMs < 30 * DAY_MS ? "warn" : ""}>${say("overview.full", { time: spanOf(of.fullMs) })}</strong>
    <small>${say("overview.rate", { rate: bytes(of.bytesPerDay), window })}</small>`;
}

function Disk({ of }) {
  const { disk, store, growth } = of;
  const used = disk.total - disk.free;
  const share = disk.total ? used / disk.total : 0;
  // The blobs of a cluster are on disks of their own.
  const own = store.kind === "cluster" ? 0 : store.bytes + store.uploadBytes;
  const rows = [
    ...(store.kind === "cluster" ? [] : [["storedHere", store.bytes], ["uploads", store.uploadBytes]]),
    ["other", Math.max(0, used - own)], ["free", disk.free],
  ];
  const percent = percentOf(Math.round(share * 100), 100);
  return html`
    <section class="card"><header><h2>${say("overview.disk")}</h2><small>${bytes(disk.total)}</small></header>
      <div class="diskRow">
        <svg class="gauge" viewBox="0 0 96 96" role="img" aria-label=${percent + " " + say("overview.used")}>
          <circle cx="48" cy="48" r="40" /><circle class="value" cx="48" cy="48" r="40" transform="rotate(-90 48 48)"
            stroke-dasharray=${ROUND * share + " " + ROUND} />
          <text x="48" y="50">${percent}</text><text class="unit" x="48" y="64">${say("overview.used")}</text></svg>
        ${growth && html`<p class="fill forecast"><${Forecast} of=${growth.disk} /></p>`}
      </div>
      <svg class="stack" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">${rows.map(([name, value], at) => html`
        <rect class=${"use " + name} height="8" width=${(100 * value) / (disk.total || 1)}
          x=${(100 * sumOf(rows.slice(0, at).map(([, before]) => before))) / (disk.total || 1)} />`)}</svg>
      <dl class="facts diskSums">${rows.map(([name, value]) => html`<dt title=${name === "other" ? say("overview.otherHelp") : undefined}><span class=${"use " + name}></span>${say("overview." + name)}</dt><dd class="number">${bytes(value)}</dd>`)}</dl>
    </section>
  `;
}

function TopBuckets({ of, count }) {
  const most = Math.max(1, ...of.map((each) => each.bytes));
  const hasGrowth = of.some((each) => each.growth !== null);
  return html`
    <section class="card flush"><header><h2>${say("overview.topBuckets")}</h2>
      <a href=${link(["buckets"])}>${say(count > 1 ? "overview.allBuckets" : "overview.oneBucket", { count: number(count) })}</a></header>
      ${of.length ? html`<div class="scroll" tabindex="0"><table>
        <thead><tr><th scope="col">${say("overview.bucket")}</th><th scope="col" class="number">${say("overview.objects")}</th>
          <th scope="col" class="number">${say("overview.bytes")}</th><td class="hidePhone"></td>
          ${hasGrowth && html`<th scope="col" class="number">${say("overview.growth")}</th>`}</tr></thead>
        <tbody>${of.map((each) => html`
          <tr key=${each.name}><th scope="row"><a class="name" href=${link(["buckets", each.name, "objects"])}><${Icon} name="bucket" />${each.name}</a></th>
            <td class="number">${each.older === null ? say("overview.versions", { count: number(each.objects) }) : number(each.objects - each.older)}</td>
            <td class="number">${bytes(each.bytes)}</td>
            <td class="hidePhone"><svg class="meter" aria-hidden="true"><rect height="6" rx="3" width=${Math.round((58 * each.bytes) / most)} /></svg></td>
            ${hasGrowth && html`<td class="number quiet">${each.growth === null ? "–" : signed(each.growth, bytes)}</td>`}</tr>
        `)}</tbody></table></div>` : html`<p class="cardText quiet">${say("overview.noBuckets")}</p>`}
    </section>
  `;
}

// Why a request was refused, with the way to the rule: the statement, or the key.
function Reason({ of }) {
  const found = of.rule || of.reason || of.code;
  const text = found[0].toUpperCase() + found.slice(1);
  if (of.statement) return html`<a href=${link(["buckets", of.bucket, "access"], { statement: of.statement })}>${text}</a>`;
  return of.rule && of.accessKey ? html`<a href=${link(["keys", of.accessKey])}>${text}</a>` : text;
}

const Refusals = ({ events }) => html`
  <section class="card flush"><header><h2>${say("overview.refusals")}</h2>
    <a href=${link(["live"], { status: "error" })}>${say("overview.live")}</a></header>
    ${events.length
      ? html`<div class="scroll" tabindex="0"><table class="dense">
          <${Heads} names=${["time", "status", "operation", "reason"]} text=${textOf} />
          <tbody>${events.map((each) => html`
          <tr key=${each.atMs + each.trace}><td class="number" title=${date(each.atMs)}>${exactClock.format(each.atMs)}</td><td class=${"status is" + String(each.status).slice(0, 1)}>${each.status}</td>
            <td class="fixedText">${each.operation}${each.count > 1 && html` <small class="times">× ${number(each.count)}</small>`}</td><td class="clip"><${Reason} of=${each} /></td></tr>`)}</tbody></table></div>`
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
  const errors = across(series, "errors", sumOf);
  const answered = across(series, "perSecond", sumOf).map((each, at) => Math.max(0, each - (errors[at] || 0)));
  const charts = [
    ["overview.chartRequests", answered.length ? [[say("overview.answered"), answered], [say("overview.failed"), errors]] : [], few],
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

const isRefused = (each) => [401, 403, 429].includes(each.status);

// The refused requests since the overview was loaded, and before them the ones that the daemon has kept; equal ones
// are one row.
function refusalsOf(fresh, kept) {
  const found = new Map();
  for (const each of [...fresh, ...kept]) {
    const kind = [each.status, each.operation, each.bucket, each.accessKey, each.rule || each.code].join();
    const known = found.get(kind);
    if (known) known.count += each.count || 1;
    else found.set(kind, { ...each, count: each.count || 1 });
  }
  return [...found.values()].slice(0, MOST_REFUSALS);
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
      if (isRefused(document)) setRefused((before) => [document, ...before].slice(0, MOST_FRESH));
    if (name !== "metrics") return;
    setValues(document.values);
    history.change((before) => before && append(before, document), Date.now());
  });
  useEffect(() => setRefused([]), [found.atMs]);
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
            <div class="columns wide"><${Protocols} of=${wires} series=${series} listeners=${overview.listeners} /><${Disk} of=${overview} /></div>
            <div class="columns"><${TopBuckets} of=${overview.top} count=${overview.store.buckets} />
              <${Refusals} events=${refusalsOf(refused, overview.refusals)} /></div>
          `;
        }}
      <//>
      <${Loaded} of=${history}>${(all) => html`<${Charts} of=${all} />`}<//>
    <//>
  `;
}
