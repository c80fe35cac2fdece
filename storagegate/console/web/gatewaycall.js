// Calling a method over one protocol, or over all side by side.

import { useEffect, useRef, useState } from "preact/hooks";
import { callLines, has } from "./api.js";
import "./gatewaytexts.js";
import { bytes, number, say } from "./messages.js";
import { example, formFields } from "./schemas.js";
import { Button, Check, Dialog, Field, Form, html, Select } from "./ui.js";

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

function FormField({ field, value, change }) {
  if (field.type === "boolean")
    return html`<${Check} label=${field.name} checked=${value === true}
      onChange=${(event) => change(event.target.checked)} />`;
  if (field.choices)
    return html`<${Select} label=${field.name} value=${value}
      onChange=${(event) => change(field.choices.find((each) => String(each) === event.target.value))}
      options=${field.choices.map((each) => [each, String(each)])} />`;
  const isNumber = field.type !== "string";
  function typed(event) {
    const text = event.target.value;
    if (!isNumber) change(text);
    else change(text === "" ? undefined : Number(text));
  }
  return html`<${Field} label=${field.name} name=${"field-" + field.name} type=${isNumber ? "number" : "text"}
    step=${field.type === "integer" ? 1 : "any"} required=${field.required}
    value=${value === undefined ? "" : value} onInput=${typed} />`;
}

function RequestEditor({ method, schemas, streams, text, setText }) {
  const fields = streams ? null : formFields(method.input, schemas);
  const [asForm, setAsForm] = useState(fields !== null);
  let values = null;
  try {
    values = JSON.parse(text || "{}");
  } catch {
    values = null;
  }
  const canForm = fields !== null && values !== null && typeof values === "object" && !Array.isArray(values);
  return html`
    ${fields && html`
      <div><div class="buttons">
        ${[true, false].map((form) => html`
          <button type="button" class="button" aria-pressed=${asForm === form} disabled=${form && !canForm}
            onClick=${() => setAsForm(form)}>${say(form ? "gateway.asForm" : "gateway.asJSON")}</button>
        `)}
      </div></div>
    `}
    ${asForm && canForm
      ? fields.map((field) => html`
          <${FormField} key=${field.name} field=${field} value=${values[field.name]}
            change=${(value) => setText(JSON.stringify({ ...values, [field.name]: value }, null, 2))} />
        `)
      : html`
          <${Field} label=${say(streams ? "gateway.requests" : "gateway.request")}>
            ${(given) => html`<textarea ...${given} name="request" spellcheck=${false} value=${text}
              onInput=${(event) => setText(event.target.value)} />`}
          <//>
        `}
  `;
}

function Answer({ wire, answer }) {
  const title = say("gateway.answer", { wire: wire.title });
  const { state, items, end } = answer;
  const ms = end && number(end.ms);
  return html`
    <section aria-label=${title} data-wire=${wire.name}>
      <h3>${wire.title}</h3>
      <p role="status" class=${state === "error" ? "bad" : state === "end" ? "good" : "quiet"}>
        ${state === "idle" && say("gateway.waiting")}
        ${state === "calling" && say("gateway.calling")}
        ${state === "stopped" && say("gateway.stopped")}
        ${state === "end" && say("gateway.done", { ms, bytes: bytes(end.bytes), items: number(items.length) })}
        ${state === "error" && say("gateway.failed", { code: end.data.error, message: end.data.message, ms })}
      </p>
      ${items.length > 0 && html`
        <pre class="isolated" tabindex="0" aria-label=${title}>${
          items.map((item) => JSON.stringify(item.data, null, items.length === 1 ? 2 : 0)).join("\n")
        }</pre>
      `}
      ${state === "error" && end.data.details !== undefined && html`
        <pre class="isolated" tabindex="0" aria-label=${title}>${JSON.stringify(end.data.details, null, 2)}</pre>
      `}
    </section>
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

export function TryIt({ service, method, wires, schemas }) {
  const streams = method.streaming === "client" || method.streaming === "bidirectional";
  const open = wires.filter((wire) => wire.address);
  const [text, setText] = useState(() => {
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
  // They stand below a form that is mostly taller than the window.
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
    await Promise.all(names.map((name) => callOver(name, body, controller.signal, update)));
    setCalling(null);
    showAnswers();
  }
  if (!has("admin")) return html`<p>${say("gateway.adminOnly")}</p>`;
  const every = open.map((wire) => wire.name);
  const compare = () => (method.idempotent ? run(every) : setAsks(true));
  return html`
    <section class="card" aria-label=${say("gateway.try")}><form onSubmit=${(event) => {
      event.preventDefault();
      run([chosen]);
    }} onKeyDown=${(event) => event.ctrlKey && event.key === "Enter" && !calling && run([chosen])}>
      <div class="seg" role="group" aria-label=${say("gateway.over")}>
        ${open.map((wire) => html`
          <button type="button" aria-pressed=${chosen === wire.name} onClick=${() => setChosen(wire.name)}>${wire.title}</button>
        `)}
      </div>
      <${RequestEditor} method=${method} schemas=${schemas} streams=${streams} text=${text} setText=${setText} />
      <${Field} label=${say("gateway.token")} help=${say("gateway.tokenHelp")} name="token"
        class="secret" value=${values.token}
        onInput=${(event) => change({ token: event.target.value })} />
      <${Field} label=${say("gateway.metadata")} help=${say("gateway.metadataHelp")}>
        ${(given) => html`<textarea ...${given} name="metadata" class="short" rows="2" spellcheck=${false}
          value=${values.metadata} onInput=${(event) => change({ metadata: event.target.value })} />`}
      <//>
      <${Field} label=${say("gateway.deadline")} type="number" name="deadline" min="1" max=${LONGEST_MS} required
        value=${values.deadlineMs} onInput=${(event) => change({ deadlineMs: Number(event.target.value) })} />
      ${problem && html`<p class="bad" role="alert">${problem}</p>`}
      <div class="buttons">
        ${calling && html`<${Button} onClick=${() => calling.abort()}>${say("gateway.stop")}<//>`}
        ${open.length > 1 && html`<${Button} disabled=${calling !== null} onClick=${compare}>
          ${say(method.idempotent ? "gateway.compareNow" : "gateway.compare")}<//>`}
        <button class="button primary" disabled=${calling !== null || !chosen}>${say("gateway.call")}</button>
      </div>
    </form></section>
    <div ref=${answers} class="answers">
      ${open.filter((wire) => called.includes(wire.name)).map((wire) => html`
        <${Answer} key=${wire.name} wire=${wire} answer=${answerOf(wire.name)} />
      `)}
    </div>
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
