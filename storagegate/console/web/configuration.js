// The configuration: each key with its origin, and reading it again. The file is not written here.

import { useState } from "preact/hooks";
import { call, has } from "./api.js";
import "./configurationtexts.js";
import { number, say } from "./messages.js";
import { go, link } from "./router.js";
import { announce, Button, Check, Confirm, Empty, html, Loaded, Page, Search, useLoad } from "./ui.js";

const HIDDEN = "***";

function shownValue(value) {
  if (value === null || value === "") return html`<span class="quiet">${say("configuration.notSet")}</span>`;
  if (value === HIDDEN) return html`<span class="quiet" title=${HIDDEN}>${say("configuration.hidden")}</span>`;
  return html`<code>${textOf(value)}</code>`;
}

function textOf(value) {
  if (Array.isArray(value)) return value.join(", ");
  return value === null ? "" : String(value);
}

const isChanged = (each) => each.origin !== "" && each.origin !== "default";

function matches(each, wanted) {
  const texts = [each.key, each.meaning, each.origin, textOf(each.value)];
  return texts.some((text) => text.toLowerCase().includes(wanted));
}

function Result({ of }) {
  const keys = (names) => names.join(", ");
  return html`
    <div class="card" role="status">
      ${!of.applied.length && !of.needRestart.length && html`<p>${say("configuration.nothing")}</p>`}
      ${of.applied.length > 0 && html`
        <p class="good">${say("configuration.applied", { keys: keys(of.applied) })}</p>
      `}
      ${of.needRestart.length > 0 && html`
        <p class="bad">${say("configuration.needRestart", { keys: keys(of.needRestart) })}</p>
      `}
      ${of.replacing > 0 && html`
        <p>${say("configuration.replacing", { count: number(of.replacing) })}</p>
      `}
    </div>
  `;
}

function Table({ items }) {
  const columns = ["key", "value", "origin", "default", "change"];
  return html`
    <div class="scroll edge cards" tabindex="0"><table>
      <thead><tr>
        ${columns.map((name) => html`<th scope="col">${say("configuration." + name)}</th>`)}
      </tr></thead>
      <tbody>${items.map((each) => html`
        <tr key=${each.key}>
          <th scope="row" class="long">${each.key}<small>${each.meaning}</small></th>
          <td class="long">${shownValue(each.value)}</td>
          <td class="long" data-label=${say("configuration.origin")}>${each.origin}</td>
          <td class="long" data-label=${say("configuration.default")}>${each.default && html`<code>${each.default}</code>`}</td>
          <td data-label=${say("configuration.change")}>${say(each.sighup ? "configuration.sighup" : "configuration.restart")}</td>
        </tr>
      `)}</tbody>
    </table></div>
  `;
}

export default function Configuration({ route }) {
  const { find = "", changed = "" } = route.query;
  const found = useLoad((signal) => call("GET", "config", { signal }), []);
  const [open, setOpen] = useState(false);
  const [result, setResult] = useState(null);
  const show = (some) => go(["configuration"], { find, changed, ...some }, true);
  async function reload() {
    setResult(await call("POST", "config/reload"));
    setOpen(false);
    announce(say("configuration.done"));
    found.reload();
  }
  const wanted = find.trim().toLowerCase();
  const actions = has("admin") && html`
    <${Button} onClick=${() => setOpen(true)}>${say("configuration.reload")}<//>
  `;
  return html`
    <${Page} title=${say("nav.configuration")} role="auditor" actions=${actions} tools=${html`
      <${Search} label=${say("configuration.find")} value=${find} onInput=${(event) => show({ find: event.target.value })} />
      <${Check} label=${say("configuration.onlyChanged")} checked=${changed !== ""}
        onChange=${(event) => show({ changed: event.target.checked ? "1" : "" })} />`}>
      ${result && html`<${Result} of=${result} />`}
      <${Loaded} of=${found}>
        ${(keys) => {
          const items = keys.filter((each) => (!changed || isChanged(each)) && matches(each, wanted));
          return items.length
            ? html`<${Table} items=${items} />`
            : html`<${Empty} title=${say("configuration.none")}>
                <a class="button" href=${link(["configuration"])}>${say("app.all")}</a><//>`;
        }}
      <//>
      ${open && html`
        <${Confirm} title=${say("configuration.reload")} text=${say("configuration.reloadText")} act=${reload}
          label=${say("configuration.reload")} onClose=${() => setOpen(false)} />
      `}
    <//>
  `;
}
