// Maintenance: scrubbing, damage, the last commands, the times of syncs, and the doctor.

import { useEffect, useState } from "preact/hooks";
import { call, has } from "./api.js";
import "./maintenancetexts.js";
import { age, bytes, date, number, say } from "./messages.js";
import { shown } from "./objectnames.js";
import { link } from "./router.js";
import { announce, Button, Heads, html, Loaded, Page, Problem, useAction, useLoad } from "./ui.js";

const POLL_MS = 10000;

const LEVELS = { problem: "bad", warning: "warn", ok: "good" };

const ms = (value) =>
  value === null
    ? say("maintenance.over")
    : say("maintenance.ms", { value: number(Math.round(value * 100) / 100) });

const textOf = (name) => say("maintenance." + name);

function Scrub({ scrub }) {
  const limit = say("maintenance.limit", { bytes: bytes(scrub.limitPerSecond) });
  const rate = scrub.perSecond === null ? say("maintenance.measuring") : bytes(scrub.perSecond);
  return html`
    <section class="card">
      <h2>${say("maintenance.scrub")}</h2>
      <dl class="facts">
        <dt>${say("maintenance.rounds")}</dt><dd>${number(scrub.rounds)}</dd>
        <dt>${say("maintenance.bytes")}</dt><dd>${bytes(scrub.bytes)}</dd>
        <dt>${say("maintenance.perSecond")}</dt><dd>${rate} <small>${limit}</small></dd>
      </dl>
      <p class="quiet after">${say("maintenance.scrubText")}</p>
    </section>
  `;
}

function Damage({ found }) {
  const { damaged, damagedCount } = found;
  return html`
    <section class="card">
      <h2>${say("maintenance.damage")}</h2>
      ${damagedCount
        ? html`<p class="bad">${say("maintenance.damaged", { count: number(damagedCount) })}</p>`
        : html`<p><span class="dot ok"></span>${say("maintenance.whole")}</p>`}
      ${damaged.length > 0 && html`
        <div class="scroll" tabindex="0"><table>
          <${Heads} names=${["bucket", "key", "version", "blob"]} text=${textOf} />
          <tbody>${damaged.map((each) => html`
            <tr>
              <td>${each.bucket || say("maintenance.unknown")}</td>
              <td class="long">${each.bucket && html`
                <a href=${link(["buckets", each.bucket, "objects"], { object: each.key })}>
                  <bdi>${shown(each.key)}</bdi></a>
              `}</td>
              <td>${each.versionId}</td>
              <td class="long">${each.blob || say("maintenance.inCatalog")}</td>
            </tr>
          `)}</tbody>
        </table></div>
      `}
    </section>
  `;
}

function Command({ name, result }) {
  const parts = [];
  if (result) {
    const seconds = number(Math.round((result.endedMs - result.startedMs) / 1000));
    parts.push(age(result.endedMs), say("maintenance.took", { seconds }));
    if (result.verify) parts.push(say("maintenance.verified"));
    if (result.repair) parts.push(say("maintenance.repaired"));
    if (result.to) parts.push(say("maintenance.to", { place: result.to }));
  }
  const isBad = result && (result.error || result.problems > 0);
  let outcome = say("maintenance.good");
  if (isBad && result.error) outcome = say("maintenance.brokenOff", { error: result.error });
  else if (isBad) outcome = say("maintenance.problems", { count: number(result.problems) });
  return html`
    <dt>${say("maintenance." + name)}</dt>
    <dd>${result
      ? html`<span class=${isBad ? "bad" : "good"}>${outcome}</span>
          <small title=${date(result.endedMs)}> ${parts.join(", ")}</small>`
      : say("maintenance.never", { command: say("maintenance." + name + "Text") })}</dd>
  `;
}

function Disk({ found }) {
  const { syncs, walBytes } = found;
  return html`
    <section class="card">
      <h2>${say("maintenance.syncs")}</h2>
      ${walBytes !== null && html`
        <dl class="facts"><dt>${say("maintenance.wal")}</dt><dd>${bytes(walBytes)}</dd></dl>
      `}
      ${syncs.length
        ? html`
          <div class="scroll" tabindex="0"><table>
            <${Heads} names=${["kind", ["count", "number"], ["mean", "number"], ["p50", "number"], ["p99", "number"]]} text=${textOf} />
            <tbody>${syncs.map((each) => html`
              <tr key=${each.kind}>
                <th scope="row">${say("maintenance.kind." + each.kind)}</th>
                <td class="number">${number(each.count)}</td><td class="number">${ms(each.meanMs)}</td>
                <td class="number">${each.count ? ms(each.p50Ms) : ""}</td>
                <td class="number">${each.count ? ms(each.p99Ms) : ""}</td>
              </tr>
            `)}</tbody>
          </table></div>`
        : html`<p>${say("maintenance.noSyncs")}</p>`}
    </section>
  `;
}

function Doctor() {
  const [found, setFound] = useState(null);
  const [run, busy, error] = useAction(async () => {
    const answer = await call("POST", "doctor");
    setFound(answer);
    const warns = answer.findings.some((each) => each.level === "warning");
    announce(say("maintenance." + (!answer.ok ? "someProblems" : warns ? "someWarnings" : "noProblem")));
  });
  const order = Object.keys(LEVELS);
  const sorted = found ? [...found.findings] : [];
  sorted.sort((one, other) => order.indexOf(one.level) - order.indexOf(other.level));
  return html`
    <section class="card">
      <header><h2>${say("maintenance.doctor")}</h2><${Button} kind="small" onClick=${() => run()} busy=${busy}>${say("maintenance.runDoctor")}<//></header>
      <p class="quiet">${say("maintenance.doctorText")}</p>
      ${error && html`<${Problem} error=${error} retry=${run} />`}
      ${found && html`
        <div class="scroll" tabindex="0"><table>
          <${Heads} names=${["level", "check", "finding"]} text=${textOf} />
          <tbody>${sorted.map((each) => html`
            <tr><td class=${LEVELS[each.level]}>${say("maintenance.level." + each.level)}</td>
              <td>${each.check}</td><td class="long">${each.text}</td></tr>
          `)}</tbody>
        </table></div>
      `}
    </section>
  `;
}

export default function Maintenance() {
  const found = useLoad((signal) => call("GET", "maintenance", { signal }), []);
  useEffect(() => {
    if (found.error || !found.atMs) return undefined;
    const timer = setTimeout(found.reload, POLL_MS);
    return () => clearTimeout(timer);
  }, [found.atMs, found.error]);
  return html`
    <${Page} title=${say("nav.maintenance")} role="auditor">
      <${Loaded} of=${found} rows=${12}>
        ${(all) => html`
          ${all.store === "cluster" && html`
            <p>${say("maintenance.cluster")} ${say("maintenance.clusterInstead")}</p>
          `}
          ${all.damagedCount > 0 && html`<${Damage} found=${all} />`}
          <div class="columns first">
            ${!all.damagedCount && html`<${Damage} found=${all} />`}
            ${!all.absent.includes("fsck") && html`
              <section class="card">
                <h2>${say("maintenance.commands")}</h2>
                <dl class="facts">
                  <${Command} name="fsck" result=${all.fsck} />
                  <${Command} name="backup" result=${all.backup} />
                </dl>
              </section>
            `}
            <${Scrub} scrub=${all.scrub} />
            <${Disk} found=${all} />
          </div>
        `}
      <//>
      ${has("admin") && html`<${Doctor} />`}
    <//>
  `;
}
