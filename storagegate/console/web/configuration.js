// The configuration: each key with its origin, and reading it again. The file is not written here.

import { useState } from "preact/hooks";
import { call, has } from "./api.js";
import "./configurationtexts.js";
import { number, say } from "./messages.js";
import { go, link } from "./router.js";
import { announce, Button, Confirm, Empty, Heads, html, Icon, Loaded, Page, Search, useLoad } from "./ui.js";

export { styled } from "./figures.js";

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

// The keys of each group; a key with a dot is of the group before the dot, and any other of the last.
const GROUPS = {
  listeners: ["s3", "http", "grpc", "udp", "tcp", "admin"],
  console: ["console", "consoleUrl", "s3Url", "consoleClearText"],
  storage: ["data", "durability", "region", "s3Domain", "objectOwnership", "verifyReads", "lifecycleDaySeconds", "inlineLimit"],
  security: ["accessKey", "secretKey", "requireSignedPayload", "metricsToken", "trustedProxies"],
  process: ["workers", "reactor", "heldBytes", "shutdownGraceSeconds", "logFormat", "logLevel", "accessLog", "bucketMetrics"],
  gateway: ["service"],
};

function groupOf(key) {
  const found = Object.keys(GROUPS).find((name) => GROUPS[name].includes(key));
  const [first, rest] = key.split(".");
  return found || (rest === undefined ? "more" : first);
}

function grouped(items) {
  const found = new Map(Object.keys(GROUPS).map((name) => [name, []]));
  for (const each of items) {
    const name = groupOf(each.key);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(each);
  }
  return [...found].filter(([, keys]) => keys.length);
}

const titleOf = (group) => {
  const text = say("configuration.group." + group);
  return text.startsWith("configuration.") ? group : text;
};

const capital = (text) => text && text[0].toUpperCase() + text.slice(1);

// Where a value is from: a badge where it is not the default.
const Source = ({ of }) => (isChanged(of)
  ? html`<span class="badge current">${capital(of.origin.split(" ")[0])}</span><small>${of.origin.split(" ").slice(1).join(" ")}</small>`
  : html`<span class="quiet">${capital(of.origin) || "–"}</span>`);

const Group = ({ name, items }) => html`
  <section class="card flush" id=${"group-" + name}><header><h2>${titleOf(name)}</h2></header>
    <div class="scroll cards" tabindex="0"><table class="keys">
      <${Heads} names=${["key", "value", "origin", "change"]} text=${(name) => say("configuration." + name)} />
      <tbody>${items.map((each) => html`
        <tr key=${each.key}>
          <th scope="row" class="long"><code>${each.key}</code><small>${capital(each.meaning)}</small></th>
          <td class="long">${shownValue(each.value)}${isChanged(each) && each.default && html`
            <small>${say("configuration.default", { value: each.default })}</small>`}</td>
          <td data-label=${say("configuration.origin")}><${Source} of=${each} /></td>
          <td class="quiet" data-label=${say("configuration.change")}>${say(each.sighup ? "configuration.sighup" : "configuration.restart")}</td>
        </tr>
      `)}</tbody>
    </table></div>
  </section>
`;

// The groups left, their keys right.
function Groups({ items }) {
  const groups = grouped(items);
  const jump = (name) => (event) => {
    event.preventDefault();
    document.getElementById("group-" + name).scrollIntoView();
  };
  return html`
    <div class="settings wideNav">
      <nav class="settingsNav" aria-label=${say("configuration.groups")}>${groups.map(([name, keys]) => html`
        <a href=${link(["configuration"])} onClick=${jump(name)}>${titleOf(name)}<small>${number(keys.length)}</small></a>`)}</nav>
      <div>${groups.map(([name, keys]) => html`<${Group} key=${name} name=${name} items=${keys} />`)}</div>
    </div>
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
    <${Button} icon="retry" onClick=${() => setOpen(true)}>${say("configuration.reloadMore")}<//>
  `;
  return html`
    <${Page} title=${say("nav.configuration")} role="auditor" actions=${actions} tools=${html`
      <${Search} label=${say("configuration.find")} value=${find} onInput=${(event) => show({ find: event.target.value })} />
      <label class="switchLine"><input type="checkbox" role="switch" class="switch" checked=${changed !== ""}
        onChange=${(event) => show({ changed: event.target.checked ? "1" : "" })} />${say("configuration.onlyChanged")}</label>`}>
      ${result && html`<${Result} of=${result} />`}
      <${Loaded} of=${found}>
        ${(keys) => {
          const items = keys.filter((each) => (!changed || isChanged(each)) && matches(each, wanted));
          return items.length
            ? html`<p class="notice"><${Icon} name="about" />${say("configuration.order")}</p><${Groups} items=${items} />`
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
