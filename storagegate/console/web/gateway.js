// The gateway: wires, services, their methods, one method and its calls, discovery.

import { useState } from "preact/hooks";
import { call } from "./api.js";
import { Discovery } from "./discovery.js";
import { SchemaFields, TryIt } from "./gatewaycall.js";
import "./gatewaytexts.js";
import { number, say } from "./messages.js";
import { link } from "./router.js";
import { Button, Crumbs, Empty, Heads, html, Loaded, Page, Search, useLoad } from "./ui.js";

export { styled } from "./figures.js";

const yes = (value) => say(value ? "gateway.yes" : "gateway.no");

const Wires = ({ wires }) => html`
  <h2>${say("gateway.wires")}</h2>
  <div class="scroll cards" tabindex="0"><table><${Heads} text=${(name) => say("gateway." + name)} names=${["wire", "address", "path", "tls", "providers"]} />
    <tbody>${wires.map((wire) => html`
      <tr key=${wire.name}><th scope="row">${wire.title}</th>
        <td>${wire.address || say("gateway.closed")}</td><td data-label=${say("gateway.path")}>${wire.path}</td>
        <td data-label=${say("gateway.tls")}>${wire.address && yes(wire.isSecure)}</td><td data-label=${say("gateway.providers")}>${wire.providers.join(", ") || say("app.none")}</td></tr>
    `)}</tbody>
  </table></div>
`;

function Limit({ limit, client }) {
  if (!limit) return say("app.none");
  const refused = limit.refused === null ? "?" : number(limit.refused);
  return html`
    ${say("gateway.limitText", { requests: number(limit.requests), seconds: number(limit.windowMs / 1000) })}
    <small>${say("gateway.limitUsed", { used: number(limit.used), client, refused })}</small>
  `;
}

const Service = ({ service, client }) => html`
  <h2 class="isolated">${service.name}</h2>
  ${service.isForwarded && html`<p>${say("gateway.forwarded")}</p>`}
  ${service.isAuthorized && html`<p>${say("gateway.judged")}</p>`}
  ${service.takesOthers && html`<p>${say("gateway.others")}</p>`}
  <div class="scroll cards" tabindex="0"><table><${Heads} text=${(name) => say("gateway." + name)} names=${["method", "kind", "access", "limit"]} />
    <tbody>${service.methods.map((method) => html`
      <tr key=${method.name}>
        <th scope="row" class="long">
          <a class="isolated" href=${link(["gateway", service.name, method.name])}>${method.name}</a></th>
        <td data-label=${say("gateway.kind")}>${say("gateway.kind." + method.streaming)}</td>
        <td data-label=${say("gateway.access")}>${say(method.isPublic ? "gateway.public" : "gateway.private")}
          ${service.providers.length > 0 && html`<small>${service.providers.join(", ")}</small>`}</td>
        <td data-label=${say("gateway.limit")}><${Limit} limit=${method.rateLimit} client=${client} /></td>
      </tr>
    `)}</tbody>
  </table></div>
`;

const Reflection = ({ found }) => html`
  <h2>${say("gateway.rpc")}</h2>
  ${found.problem && html`<p>${say("gateway.rpcProblem", { problem: found.problem })}</p>`}
  ${found.services.map((service) => html`
    <details key=${service.name}><summary class="isolated">${service.name}</summary>
      <ul>${service.methods.map((method) => html`
        <li key=${method.path}><code>${method.path}</code> ${say("gateway.kind." + method.streaming)}</li>
      `)}</ul>
    </details>
  `)}
`;

function save(name, document) {
  const target = window.document.createElement("a");
  target.href = URL.createObjectURL(new Blob([JSON.stringify(document, null, 2)], { type: "application/json" }));
  target.download = name;
  target.click();
  setTimeout(() => URL.revokeObjectURL(target.href), 1000);
}

const Overview = ({ data }) => html`
  <${Wires} wires=${data.wires} />
  ${data.services.map((each) => html`<${Service} key=${each.name} service=${each} client=${data.client} />`)}
  <${Reflection} found=${data.grpc} />
  <h2>${say("gateway.documents")}</h2>
  <div class="buttons">${["openapi", "asyncapi"].map((name) => html`
    <${Button} onClick=${() => save(name + ".json", data[name])}>${say("gateway.save", { name })}<//>
  `)}</div>
`;

// The services and their methods, beside what is shown.
function Services({ data, names }) {
  const [find, setFind] = useState("");
  const wanted = find.trim().toLowerCase();
  const shown = data.services.map((each) => [each, each.methods.filter((one) =>
    (each.name + "." + one.name).toLowerCase().includes(wanted))]).filter(([, methods]) => methods.length);
  return html`
    <nav class="settingsNav services" aria-label=${say("gateway.services")}>
      <${Search} label=${say("gateway.find")} value=${find} onInput=${(event) => setFind(event.target.value)} />
      ${shown.map(([service, methods]) => html`
        <p class="group isolated">${service.name}</p>
        ${methods.map((one) => html`<a class="isolated" href=${link(["gateway", service.name, one.name])}
          aria-current=${service.name === names[0] && one.name === names[1] ? "page" : undefined}>${one.name}
          ${one.streaming !== "none" && html`<small>${say("gateway.kind." + one.streaming)}</small>`}</a>`)}
      `)}
    </nav>
  `;
}

function findMethod(data, names) {
  const service = data.services.find((each) => each.name === names[0]);
  return [service, service && service.methods.find((each) => each.name === names[1])];
}

function Badges({ data, names }) {
  const [, method] = findMethod(data, names);
  return method && html`
    ${method.isIdempotent && html`<span class="badge ok">${say("gateway.idempotent")}</span>`}
    <span class="badge">${method.streaming === "none" ? say("gateway.unary") : say("gateway.kind") + ": " + say("gateway.kind." + method.streaming)}</span>
    <span class="badge">${say(method.isPublic ? "gateway.anonymous" : "gateway.credentials")}</span>
  `;
}

function Method({ data, names }) {
  const [service, method] = findMethod(data, names);
  if (!method) return html`
    <${Empty} title=${say("gateway.missing")}><a class="button" href=${link(["gateway"])}>${say("app.all")}</a><//>`;
  return html`
    <${TryIt} key=${names.join("/")} service=${service.name} method=${method} wires=${data.wires} schemas=${data.schemas}>
      <details><summary>${say("gateway.schema")}</summary>
        <h3>${say("gateway.requestTitle")}</h3><${SchemaFields} schema=${method.input} schemas=${data.schemas} />
        <h3>${say("gateway.responseFields")}</h3><${SchemaFields} schema=${method.output} schemas=${data.schemas} />
      </details>
      ${method.rateLimit && html`<p class="quiet">${say("gateway.limit")}: <${Limit} limit=${method.rateLimit} client=${data.client} /></p>`}
    <//>
  `;
}

export default function Gateway({ route }) {
  const found = useLoad((signal) => call("GET", "gateway", { signal }), []);
  const names = route.path.slice(1);
  const isAbsent = found.error && found.error.status === 404;
  return html`
    <${Page} title=${names.length ? names.join(".") : say("nav.gateway")} role="auditor" fixed=${names.length > 0}
      badges=${found.data && names.length > 0 && html`<${Badges} data=${found.data} names=${names} />`}
      crumbs=${names.length > 0 && html`<${Crumbs} steps=${[[say("nav.gateway"), link(["gateway"])], [names.join("."), ""]]} />`}
      actions=${html`<${Button} icon="retry" onClick=${found.reload}>${say("gateway.refresh")}<//>`}>
      ${isAbsent
        ? html`<${Empty} title=${say("gateway.none")} text=${say("gateway.noneText")}>
            <${Button} onClick=${found.reload}>${say("app.reload")}<//><//>`
        : html`<${Loaded} of=${found}>
            ${(data) => html`<div class=${names.length ? "explorer panes" : "explorer whole"}>
              <${Services} data=${data} names=${names} />
              ${names.length ? html`<${Method} data=${data} names=${names} />` : html`<div><${Overview} data=${data} /><${Discovery} /></div>`}
            </div>`}
          <//>`}
      ${isAbsent && !names.length && html`<${Discovery} />`}
    <//>
  `;
}
