// Jobs below a prefix: those there are, with their progress and failures, and starting one.

import { useEffect, useState } from "preact/hooks";
import { call, has, segment, state } from "./api.js";
import "./jobstexts.js";
import { age, date, number, say } from "./messages.js";
import { shown } from "./objectnames.js";
import { go } from "./router.js";
import {
  announce, Button, Dialog, Empty, Field, Form, Heads, html, Loaded, Page, Select, useAction, useLoad,
} from "./ui.js";

const KINDS = ["deletePrefix", "copyPrefix", "movePrefix", "abortUploads", "emptyBucket"];
const COPIES = new Set(["copyPrefix", "movePrefix"]);
const REMOVES = new Set(["deletePrefix", "movePrefix", "emptyBucket"]);
const MOST_UNTYPED = 100;
const POLL_MS = 2000;

// The name that is to be typed: of a bucket, or a prefix with more than 100 objects.
async function nameToType({ kind, bucket, prefix }) {
  if (!REMOVES.has(kind)) return "";
  if (!prefix) return bucket;
  const query = { prefix, limit: MOST_UNTYPED + 1 };
  const { objects } = await call("GET", "buckets/" + segment(bucket) + "/objects", { query });
  return objects.length > MOST_UNTYPED ? prefix : "";
}

function NewJob({ given, onClose, onStarted }) {
  const [values, setValues] = useState({
    kind: KINDS.includes(given.kind) ? given.kind : KINDS[0],
    bucket: given.bucket || "", prefix: given.prefix || "", toBucket: "", toPrefix: "",
  });
  const [toType, setToType] = useState("");
  const [typed, setTyped] = useState("");
  const change = (some) => {
    setValues((before) => ({ ...before, ...some }));
    setToType("");
    setTyped("");
  };
  const isCopy = COPIES.has(values.kind);
  const isWhole = values.kind === "emptyBucket";
  const text = (name, more) => html`
    <${Field} label=${say("jobs." + name)} name=${name} value=${values[name]}
      onInput=${(event) => change({ [name]: event.target.value })} ...${more} />
  `;
  async function submit() {
    if (!toType) {
      const name = isWhole ? values.bucket : await nameToType(values);
      if (name) {
        setToType(name);
        return;
      }
    }
    const { toBucket, toPrefix, ...body } = values;
    if (isWhole) body.prefix = "";
    onStarted(await call("POST", "jobs", { body: isCopy ? { ...body, toBucket, toPrefix } : body }));
  }
  return html`
    <${Dialog} title=${say("jobs.new")} onClose=${onClose}>
      <${Form} submit=${submit} label=${say("jobs.start")} onCancel=${onClose}
        kind=${REMOVES.has(values.kind) ? "danger" : "primary"} disabled=${toType !== "" && typed !== toType}>
        <${Select} label=${say("jobs.kind")} value=${values.kind} name="kind"
          onChange=${(event) => change({ kind: event.target.value })}
          options=${KINDS.map((kind) => [kind, say("jobs.kind." + kind)])} />
        ${text("bucket", { required: true })}
        ${!isWhole && text("prefix", { help: say("jobs.prefixHelp") })}
        ${isCopy && text("toBucket", { help: say("jobs.toBucketHelp") })}
        ${isCopy && text("toPrefix", { help: say("jobs.toPrefixHelp") })}
        ${toType && html`
          <p role="alert">${say("jobs.typed", { count: number(MOST_UNTYPED) })}</p>
          <${Field} label=${say("app.typeName", { name: shown(toType) })} name="typed" value=${typed}
            onInput=${(event) => setTyped(event.target.value)} />
        `}
      <//>
    <//>
  `;
}

const place = (bucket, prefix) => say("jobs.where", { bucket, prefix: shown(prefix) });

function Failures({ job }) {
  const { failed, failures } = job;
  if (!failures) return "0";
  const values = { shown: number(failed.length), count: number(failures) };
  return html`
    <details><summary class="bad">${number(failures)}</summary>
      <p class="quiet">${say("jobs.firstFailures", values)}</p>
      <ul>${failed.map((each) => html`<li><bdi>${shown(each.key)}</bdi>: ${each.error}</li>`)}</ul>
    </details>
  `;
}

const DOTS = { running: "", done: "ok", cancelled: "", failed: "gone", interrupted: "warn" };

function Row({ job, reload }) {
  const isRunning = job.state === "running";
  const isMine = has("admin") || job.accessKey === state.session.accessKey;
  const [end, busy, error] = useAction(async () => {
    await call("DELETE", "jobs/" + segment(job.id));
    if (isRunning) announce(say("jobs.cancelled"));
    reload();
  });
  const why = job.error || (job.state === "interrupted" ? say("jobs.interruptedText") : "");
  return html`
    <tr>
      <th scope="row">${say("jobs.kind." + job.kind)} <small><bdi>${place(job.bucket, job.prefix)}</bdi></small>
        ${job.kind === "tagObjects" && html`<small><bdi>${Object.entries(job.tags).map((pair) => shown(pair.join("="))).join(", ")}</bdi></small>
          ${job.named > 0 && html`<small>${say("jobs.named", { count: number(job.named) })}</small>`}`}
        ${COPIES.has(job.kind) && html`<small><bdi>${say("jobs.to", {
          bucket: job.toBucket || job.bucket, prefix: shown(job.toPrefix),
        })}</bdi></small>`}</th>
      <td class="long"><span class=${job.state === "failed" || why ? "bad" : ""}><span class=${"dot " + DOTS[job.state]}></span>
        ${say("jobs.state." + job.state)}</span>${why && html`<small>${why}</small>`}</td>
      <td class="number" data-label=${say("jobs.progress")}>${number(job.done)} ${isRunning && html`
        <progress aria-label=${say("jobs.state.running")}></progress>
      `}</td>
      <td class="number" data-label=${say("jobs.failures")}><${Failures} job=${job} /></td>
      <td class="quiet">${job.accessKey}</td>
      <td class="quiet" title=${date(job.startedMs)} data-label=${say("jobs.from")}>${age(job.startedMs)}</td>
      <td class="quiet" title=${date(job.endedMs)} data-label=${say("jobs.took")}>${job.endedMs ? age(job.endedMs) : ""}</td>
      <td class="ends">${isMine && html`<${Button} kind="small" busy=${busy} onClick=${end}>${say(isRunning ? "jobs.cancel" : "jobs.forget")}<//>`}
        ${error && html`<small class="bad">${error.message}</small>`}</td>
    </tr>
  `;
}

const COLUMNS = [
  "what", "state", ["progress", "number"], ["failures", "number"], "by", "from", "took",
];

export default function Jobs({ route }) {
  const { kind, bucket, prefix } = route.query;
  const found = useLoad((signal) => call("GET", "jobs", { signal }), []);
  const [open, setOpen] = useState(Boolean(kind));
  const isRunning = found.data && found.data.items.some((job) => job.state === "running");
  useEffect(() => {
    if (!isRunning || found.error) return undefined;
    const timer = setTimeout(found.reload, POLL_MS);
    return () => clearTimeout(timer);
  }, [found.atMs, isRunning, found.error]);
  useEffect(() => setOpen(Boolean(kind)), [kind, bucket, prefix]);
  function close() {
    setOpen(false);
    go(["jobs"], {}, true);
  }
  const add = found.data && found.data.mayStart && html`
    <${Button} icon="add" kind="primary" onClick=${() => setOpen(true)}>${say("jobs.new")}<//>
  `;
  return html`
    <${Page} title=${say("nav.jobs")} actions=${found.data && found.data.items.length > 0 && add}>
      <${Loaded} of=${found} isEmpty=${({ items }) => !items.length} empty=${html`
        <${Empty} title=${say("jobs.empty")} text=${say("jobs.emptyText")}>${add}<//>
      `}>
        ${({ items }) => html`
          <div class="scroll edge cards" tabindex="0"><table>
            <${Heads} names=${COLUMNS} text=${(name) => say("jobs." + name)} hasActions />
            <tbody>${items.map((job) => html`<${Row} key=${job.id} job=${job} reload=${found.reload} />`)}</tbody>
          </table></div>
        `}
      <//>
      ${open && html`
        <${NewJob} given=${route.query} onClose=${close} onStarted=${() => {
          announce(say("jobs.started"));
          close();
          found.reload();
        }} />
      `}
    <//>
  `;
}
