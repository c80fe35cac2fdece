// The calls of this visit: kept in the memory of the page, without tokens and metadata.

import { useEffect, useState } from "preact/hooks";
import { state } from "./api.js";
import "./gatewaytexts.js";
import { exactClock, number, say } from "./messages.js";
import { go } from "./router.js";
import { Heads, html } from "./ui.js";

const MOST = 50;
const MOST_TEXT = 64 * 1024;

let calls = [];
let redraw = () => {};

const who = () => (state.session ? state.session.accessKey : "");

// The calls of the key that is signed in, the newest first.
export const past = () => calls.filter((each) => each.who === who());

// Keep a call: {service, method, wire, answer, text}.
export function note({ answer, text, ...call }) {
  if (!answer.end) return;
  const code = answer.state === "end" ? "OK" : answer.end.data.error;
  // A longer request is not kept: the call can be read, but not opened.
  const kept = text.length > MOST_TEXT ? null : text;
  calls = [{ ...call, who: who(), atMs: Date.now(), code, ms: answer.end.ms, isGood: answer.state === "end", text: kept }, ...calls].slice(0, MOST);
  redraw();
}

// The list; the request of a call that is opened takes the place of what the editor has.
export function History({ service, method, wires, onOpen }) {
  const [, draw] = useState(0);
  useEffect(() => {
    redraw = () => draw((before) => before + 1);
    return () => {
      redraw = () => {};
    };
  }, []);
  function open(call) {
    if (call.service === service && call.method === method) onOpen(call.text);
    else {
      for (const each of calls) each.isOpened = each === call;
      go(["gateway", call.service, call.method]);
    }
  }
  function clear() {
    calls = calls.filter((each) => each.who !== who());
    redraw();
  }
  const found = past();
  const title = (name) => (wires.find((each) => each.name === name) || { title: name }).title;
  return html`
    <header class="row"><h2>${say("gateway.history")}</h2>
      ${found.length > 0 && html`<button type="button" class="link" onClick=${clear}>${say("gateway.clear")}</button>`}</header>
    ${found.length
      ? html`<div class="scroll" tabindex="0"><table class="dense history">
          <${Heads} names=${["at", "method", "wire", "code", ["took", "number"]]} text=${(name) => say("gateway." + name)} />
          <tbody>${found.map((each) => html`
            <tr key=${each.atMs + each.wire}><td class="quiet">${exactClock.format(each.atMs)}</td>
              <td>${each.text === null ? each.method : html`<button type="button" class="link" title=${each.service} onClick=${() => open(each)}>${each.method}</button>`}</td>
              <td class="quiet">${title(each.wire)}</td><td class=${each.isGood ? "good" : "bad"}>${each.code}</td>
              <td class="number">${number(each.ms)} ms</td></tr>`)}</tbody></table></div>`
      : html`<p class="quiet">${say("gateway.noHistory")}</p>`}
  `;
}
