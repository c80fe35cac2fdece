// Calling a method over one protocol, or over all side by side.

import { useEffect, useRef, useState } from "preact/hooks";
import { callLines, has } from "./api.js";
import { History, note, past } from "./gatewayhistory.js";
import "./gatewaytexts.js";
import { JSONLines } from "./json.js";
import { bytes, number, say } from "./messages.js";
import { example, faultsOf, fieldsOf, formFields } from "./schemas.js";
import { Button, Check, CopyButton, Dialog, Field, Form, Heads, html, Select } from "./ui.js";

const DEADLINE_MS = 10000;
const LONGEST_MS = 60000;

function parseRequests(text, streams) {
  let value;
  try {
    value = text.trim() ? JSON.parse(text) : {};
  } catch (error) {
    throw new Error(say("gateway.notJSON", { message: error.message }));
  }
  if (!streams) return [value];
  if (!Array.isArray(value)) throw new Error(say("gateway.notList"));
  return value;
}

function parseMetadata(text) {
  const found = {};
  for (const line of text.split("\n").filter((each) => each.trim())) {
    const colon = line.indexOf(":");
    if (colon < 1) throw new Error(say("gateway.notMetadata", { line }));
    found[line.slice(0, colon).trim()] = line.slice(colon + 1).trim();
  }
  return found;
}

// A field's name, whether it is required, and its kind in words.
const fieldLabel = (field) => html`${field.name}
  ${field.required && html` <span class="badge">${say("gateway.required")}</span>`} <span class="quiet hint">${field.hint}</span>`;

function FormField({ field, value, change }) {
  const label = fieldLabel(field);
  if (field.type === "boolean")
    return html`<${Check} label=${label} checked=${value === true}
      onChange=${(event) => change(event.target.checked)} />`;
  if (field.choices)
    return html`<${Select} label=${label} help=${field.text} value=${value}
      onChange=${(event) => change(field.choices.find((each) => String(each) === event.target.value))}
      options=${field.choices.map((each) => [each, String(each)])} />`;
  if (field.type === "texts")
    return html`<${Field} label=${label} help=${field.text || say("gateway.aLine")}>
      ${(given) => html`<textarea ...${given} class="short" rows="2" spellcheck=${false} value=${(value || []).join("\n")}
        onInput=${(event) => change(event.target.value.split("\n").filter((each) => each))} />`}<//>`;
  const isNumber = field.type !== "string";
  function typed(event) {
    const text = event.target.value;
    if (!isNumber) change(text);
    else change(text === "" ? undefined : Number(text));
  }
  return html`<${Field} label=${label} help=${field.text} name=${"field-" + field.name} type=${isNumber ? "number" : "text"}
    step=${field.type === "integer" ? 1 : "any"} required=${field.required}
    value=${value === undefined ? "" : value} onInput=${typed} />`;
}

// The fields of a schema as a table.
export const SchemaFields = ({ schema, schemas }) => {
  const rows = fieldsOf(schema, schemas);
  if (!rows.length) return html`<p class="quiet">${say("gateway.anything")}</p>`;
  return html`
    <div class="scroll" tabindex="0"><table class="dense"><tbody>${rows.map((each) => html`
      <tr key=${each.name}><th scope="row"><code>${each.name}</code>${each.required && html` <span class="badge">${say("gateway.required")}</span>`}</th>
        <td class="long"><span class="quiet">${each.hint}</span>${each.choices && html`<small>${each.choices.map((one) => html`<code>${String(one)}</code> `)}</small>`}
          ${each.text && html`<small>${each.text}</small>`}</td></tr>`)}</tbody></table></div>
  `;
};

function RequestEditor({ method, schemas, streams, text, setText }) {
  const fields = streams ? null : formFields(method.input, schemas);
  const [asForm, setAsForm] = useState(fields !== null);
  let values = null;
  try {
    values = JSON.parse(text || "{}");
  } catch {
    values = null;
  }
  const isObject = values !== null && typeof values === "object" && !Array.isArray(values);
  const canForm = fields !== null && isObject;
  const shape = streams ? { type: "array", items: method.input } : method.input;
  const faults = values === null ? [] : faultsOf(values, shape, schemas);
  const absent = isObject && !streams ? fieldsOf(method.input, schemas).filter(({ name }) => !/[.[]/.test(name) && !(name in values)) : [];
  const put = (name, value) => setText(JSON.stringify({ ...values, [name]: value }, null, 2));
  const sample = example(method.input, schemas);
  return html`
    <div class="row">${fields && html`<h3>${say("gateway.requestTitle")}</h3>
      <div class="seg" role="group" aria-label=${say("gateway.editor")}>
        ${[true, false].map((form) => html`
          <button type="button" aria-pressed=${asForm === form} disabled=${form && !canForm}
            onClick=${() => setAsForm(form)}>${say(form ? "gateway.asForm" : "gateway.asJSON")}</button>
        `)}
      </div>
    `}</div>
    ${asForm && canForm
      ? fields.map((field) => html`
          <${FormField} key=${field.name} field=${field} value=${values[field.name]} change=${(value) => put(field.name, value)} />
        `)
      : html`
          <${Field} label=${say(streams ? "gateway.requests" : "gateway.request")}>
            ${(given) => html`<textarea ...${given} name="request" spellcheck=${false} value=${text}
              onInput=${(event) => setText(event.target.value)} />`}
          <//>
          ${absent.length > 0 && html`<div class="chips" role="group" aria-label=${say("gateway.addField")}>${absent.map(({ name, hint }) => html`
            <button type="button" class="chip" title=${hint} onClick=${() => put(name, sample[name])}>+ ${name}</button>`)}</div>`}
        `}
    ${faults.length > 0 && html`<ul class="faults" role="status">${faults.map(([place, kind, detail]) => html`
      <li class="warn"><code>${place || "/"}</code> ${say("gateway.fault." + kind, { detail })}</li>`)}</ul>`}
  `;
}

function Answer({ wire, answer }) {
  const title = say("gateway.answer", { wire: wire.title });
  const { state, items, end } = answer;
  const ms = end && number(end.ms);
  const body = items.map((item) => JSON.stringify(item.data, null, items.length === 1 ? 2 : 0)).join("\n");
  return html`
    <section aria-label=${title} data-wire=${wire.name}>
      <div class="row"><h3>${wire.title}</h3>${items.length > 0 && html`<${CopyButton} text=${body} label=${say("gateway.copy")} />`}</div>
      <p role="status" class=${state === "error" ? "bad" : state === "end" ? "good" : "quiet"}>
        ${state === "idle" && say("gateway.waiting")}
        ${state === "calling" && say("gateway.calling")}
        ${state === "stopped" && say("gateway.stopped")}
        ${state === "end" && say("gateway.done", { ms, bytes: bytes(end.bytes), items: number(items.length) })}
        ${state === "error" && say("gateway.failed", { code: end.data.error, message: end.data.message, ms })}
      </p>
      ${items.length > 0 && html`<pre class="isolated" tabindex="0" aria-label=${title}><${JSONLines} text=${body} /></pre>`}
      ${state === "error" && end.data.details !== undefined && html`
        <pre class="isolated" tabindex="0" aria-label=${title}><${JSONLines} text=${JSON.stringify(end.data.details, null, 2)} /></pre>
      `}
    </section>
  `;
}

const codeOf = (answer) => (answer.state === "end" ? "OK" : answer.state === "error" ? answer.end.data.error : "");

// What proto3 leaves out of a message.
const isDefault = (value) => !value || (typeof value === "object" && !Object.keys(value).length);

// A value with the members of its objects in one order: formats keep orders of their own. A lean one has no defaults.
function normal(value, isLean) {
  if (Array.isArray(value)) return value.map((each) => normal(each, isLean));
  if (!value || typeof value !== "object") return value;
  const members = Object.entries(value).map(([name, each]) => [name, normal(each, isLean)]);
  return Object.fromEntries(members.filter(([, each]) => !isLean || !isDefault(each)).sort(([one], [other]) => (one < other ? -1 : 1)));
}

// What a protocol has answered, without times: to compare it with another.
const resultOf = (answer, isLean) =>
  JSON.stringify(normal(answer.state === "error" ? [answer.end.status, answer.end.data.details] : answer.items.map((item) => item.data), isLean));

const BAR_PX = 240;

// The times of a call: [[name, ms]]. Without the time of the method, all of it is that of the protocol.
const timesOf = ({ ms, sendMs, methodMs }) =>
  (methodMs === undefined ? [["rest", ms]] : [["send", sendMs], ["method", methodMs], ["rest", Math.max(0, ms - sendMs - methodMs)]]);

function Times({ end, most }) {
  let left = 0;
  const label = timesOf(end).map(([name, ms]) => say("gateway.times." + name) + " " + number(ms) + " ms").join(", ");
  return html`<svg class="bars" preserveAspectRatio="none" viewBox=${`0 0 ${BAR_PX} 8`} role="img" aria-label=${label}>${timesOf(end).map(([name, ms]) => {
    const x = left;
    left += (BAR_PX * ms) / most;
    return html`<rect class=${name} height="8" x=${x} width=${left - x} />`;
  })}</svg>`;
}

// The answers of several protocols side by side: which differ, and how long each took.
function Comparison({ wires, answerOf }) {
  const rows = wires.map((wire) => [wire, answerOf(wire.name)]);
  const ended = rows.filter(([, answer]) => answer.end);
  if (rows.length < 2 || ended.length < rows.length) return null;
  const most = Math.max(...ended.map(([, answer]) => answer.end.ms), 0.01);
  const [fastest] = [...ended].sort(([, one], [, other]) => one.end.ms - other.end.ms);
  const isLean = (wire) => wire.name === "grpc";
  // What most protocols have, of those that leave nothing out.
  const whole = rows.filter(([wire]) => !isLean(wire)).map(([, answer]) => answer);
  const isCommon = (answer) => whole.filter((other) => resultOf(other) === resultOf(answer)).length > whole.length / 2;
  const common = whole.find(isCommon) ?? whole[0] ?? rows[0][1];
  const verdicts = rows.map(([wire, answer]) => {
    const isEqual = (lean) => resultOf(answer, lean) === resultOf(common, lean);
    return isEqual() ? "sameResult" : isLean(wire) && isEqual(true) ? "leanResult" : "otherResult";
  });
  const isSame = !verdicts.includes("otherResult");
  const fast = { wire: fastest[0].title, ms: number(fastest[1].end.ms) };
  return html`
    <div class=${isSame ? "notice ok" : "notice warn"} role="status"><p>${say(isSame ? "gateway.same" : "gateway.different", {
      count: number(rows.length), ...fast })}${verdicts.includes("leanResult") && " " + say("gateway.lean")}</p></div>
    <div class="scroll" tabindex="0"><table class="dense">
      <${Heads} names=${["wire", "code", ["time", "hidePhone"], ["method", "number hidePhone"], ["total", "number"], ["size", "number hidePhone"], "result"]}
        text=${(name) => say("gateway." + name)} />
      <tbody>${rows.map(([wire, answer], at) => html`
          <tr key=${wire.name}><th scope="row">${wire.title}</th><td class=${answer.state === "end" ? "good" : "bad"}>${codeOf(answer)}</td>
            <td class="hidePhone"><${Times} end=${answer.end} most=${most} /></td>
            <td class="number quiet hidePhone">${answer.end.methodMs === undefined ? "–" : number(answer.end.methodMs) + " ms"}</td>
            <td class="number">${number(answer.end.ms)} ms</td>
            <td class="number quiet hidePhone">${answer.end.bytes === undefined ? "–" : bytes(answer.end.bytes)}</td>
            <td class=${verdicts[at] === "otherResult" ? "warn" : "quiet"}>${say("gateway." + verdicts[at])}</td></tr>`)}</tbody></table></div>
    <p class="legend quiet hidePhone">${["send", "method", "rest"].map((name) => html`<span><span class=${"use " + name}></span>${say("gateway.times." + name)}</span>`)}</p>
  `;
}

const IDLE = { state: "idle", items: [], end: null };

// The answers of wires; they are drawn once a frame, for items may come fast.
function useAnswers() {
  const found = useRef({});
  const frame = useRef(0);
  const [, redraw] = useState(0);
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  function update(wire, change) {
    found.current[wire] = change(found.current[wire] || IDLE);
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(() => redraw((count) => count + 1));
  }
  return [(wire) => found.current[wire] || IDLE, update];
}

async function callOver(wire, body, signal, update) {
  update(wire, () => ({ state: "calling", items: [], end: null }));
  try {
    await callLines("POST", "gateway/calls", { body: { ...body, wire }, signal }, (line) =>
      update(wire, (before) =>
        line.at === "item"
          ? { ...before, items: [...before.items, line] }
          : { ...before, state: line.at, end: line }));
  } catch (error) {
    if (error.name === "AbortError") update(wire, (before) => ({ ...before, state: "stopped" }));
    else {
      const data = { error: error.code || "ERROR", message: error.message };
      update(wire, (before) => ({ ...before, state: "error", end: { ms: 0, data } }));
    }
  }
}

// The call of one method: its request on the left, what came back and what was called before on the right.
export function TryIt({ service, method, wires, schemas, children }) {
  const streams = method.streaming === "client" || method.streaming === "bidirectional";
  const open = wires.filter((wire) => wire.address);
  const [text, setText] = useState(() => {
    const before = past().find((each) => each.isOpened && each.service === service && each.method === method.name);
    if (before) return before.text;
    const one = example(method.input, schemas);
    return JSON.stringify(streams ? [one, one] : one, null, 2);
  });
  const [values, setValues] = useState({ token: "", metadata: "", deadlineMs: DEADLINE_MS });
  const [chosen, setChosen] = useState(open.length ? open[0].name : "");
  const [called, setCalled] = useState([]);
  const [asks, setAsks] = useState(false);
  const [problem, setProblem] = useState("");
  const [calling, setCalling] = useState(null);
  const [answerOf, update] = useAnswers();
  const answers = useRef();
  // They stand below the form where there is no room beside it.
  const showAnswers = () => requestAnimationFrame(() => answers.current?.scrollIntoView({ block: "nearest" }));
  const change = (some) => setValues((before) => ({ ...before, ...some }));
  useEffect(() => () => calling && calling.abort(), [calling]);

  async function run(names) {
    let body;
    try {
      const requests = parseRequests(text, streams);
      const { token, deadlineMs } = values;
      body = { service, method: method.name, requests, token, deadlineMs, metadata: parseMetadata(values.metadata) };
    } catch (error) {
      setProblem(error.message);
      return;
    }
    setProblem("");
    const controller = new AbortController();
    setCalling(controller);
    setCalled(names);
    showAnswers();
    await Promise.all(names.map(async (name) => {
      await callOver(name, body, controller.signal, update);
      note({ service, method: method.name, wire: name, answer: answerOf(name), text });
    }));
    setCalling(null);
    showAnswers();
  }
  const every = open.map((wire) => wire.name);
  const compare = () => (method.isIdempotent ? run(every) : setAsks(true));
  const shown = open.filter((wire) => called.includes(wire.name));
  const timeOf = (name) => {
    const { end } = answerOf(name);
    return end && end.ms ? number(end.ms) + " ms" : say("gateway.notCalled");
  };
  return html`
    <section class="request" aria-label=${say("gateway.try")}>
      ${!has("admin") ? html`<p>${say("gateway.adminOnly")}</p>` : html`<form onSubmit=${(event) => {
        event.preventDefault();
        run([chosen]);
      }} onKeyDown=${(event) => event.ctrlKey && event.key === "Enter" && !calling && run([chosen])}>
        <div class="seg timed" role="group" aria-label=${say("gateway.over")}>
          ${open.map((wire) => html`
            <button type="button" aria-pressed=${chosen === wire.name} onClick=${() => setChosen(wire.name)}><span>${wire.title}</span>
              <small>${timeOf(wire.name)}</small></button>
          `)}
        </div>
        <${RequestEditor} method=${method} schemas=${schemas} streams=${streams} text=${text} setText=${setText} />
        <div class="two">
          <${Field} label=${say("gateway.deadline")} type="number" name="deadline" min="1" max=${LONGEST_MS} required
            value=${values.deadlineMs} onInput=${(event) => change({ deadlineMs: Number(event.target.value) })} />
          <${Field} label=${say("gateway.token")} help=${say("gateway.tokenHelp")} name="token"
            class="secret" value=${values.token} onInput=${(event) => change({ token: event.target.value })} />
        </div>
        <details><summary>${say("gateway.metadata")} <span class="quiet">${values.metadata ? "" : say("app.none")}</span></summary>
          <${Field} label=${say("gateway.metadata")} help=${say("gateway.metadataHelp")}>
            ${(given) => html`<textarea ...${given} name="metadata" class="short" rows="2" spellcheck=${false}
              value=${values.metadata} onInput=${(event) => change({ metadata: event.target.value })} />`}
          <//></details>
        ${problem && html`<p class="bad" role="alert">${problem}</p>`}
        <div class="buttons">
          <kbd class="hidePhone" aria-hidden="true">Ctrl Enter</kbd><span class="fill"></span>
          ${calling && html`<${Button} onClick=${() => calling.abort()}>${say("gateway.stop")}<//>`}
          ${open.length > 1 && html`<${Button} disabled=${calling !== null} onClick=${compare}>
            ${say(method.isIdempotent ? "gateway.compareNow" : "gateway.compare")}<//>`}
          <button class="button primary" disabled=${calling !== null || !chosen}>${say("gateway.call")}</button>
        </div>
      </form>`}
      ${children}
    </section>
    <section ref=${answers} class=${shown.length > 1 ? "results isWide" : "results"} aria-label=${say("gateway.results")}>
      <div class="row"><h2>${say("gateway.results")}</h2>
        ${shown.length > 1 && html`<div class="buttons">
          <${Button} icon="retry" kind="small" disabled=${calling !== null} onClick=${() => run(called)}>${say("gateway.again")}<//>
          <${Button} icon="close" kind="small bare" onClick=${() => setCalled([])}>${say("gateway.toRequest")}<//></div>`}</div>
      ${!shown.length && html`<p class="quiet">${say("gateway.waiting")}</p>`}
      <${Comparison} wires=${shown} answerOf=${answerOf} />
      <div class="answers">
        ${shown.map((wire) => html`<${Answer} key=${wire.name} wire=${wire} answer=${answerOf(wire.name)} />`)}
      </div>
      <${History} onOpen=${(before) => {
        setText(before);
        setCalled([]);
      }} service=${service} method=${method.name} wires=${wires} />
    </section>
    ${asks && html`
      <${Dialog} title=${say("gateway.compareTitle")} onClose=${() => setAsks(false)}>
        <p>${say("gateway.compareText", { count: number(open.length), method: method.name })}</p>
        <${Form} label=${say("gateway.callAll", { count: number(open.length) })} onCancel=${() => setAsks(false)}
          submit=${async () => {
            setAsks(false);
            run(every);
          }} />
      <//>
    `}
  `;
}
