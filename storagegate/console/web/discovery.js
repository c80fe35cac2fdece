// The instances of services that are elsewhere, and the registration of those here.

import { call } from "./api.js";
import "./gatewaytexts.js";
import { age, date, number, say } from "./messages.js";
import { Button, Heads, html, Loaded, useLoad } from "./ui.js";

const COLUMNS = ["instance", "state", "weight", "inFlight", "check", "ejected"];

function Instance({ instance }) {
  const checked = instance.checkedMs
    && say(instance.isCheckGood ? "discovery.good" : "discovery.bad", { age: age(instance.checkedMs) });
  return html`
    <tr>
      <th scope="row" class="long isolated">${instance.id}</th>
      <td class=${instance.state === "healthy" ? "good" : "bad"}>${say("discovery.state." + instance.state)}</td>
      <td class="number">${number(instance.weight)}</td><td class="number">${number(instance.inFlight)}</td>
      <td>${checked || say("app.none")}</td>
      <td>${instance.ejectedUntilMs ? date(instance.ejectedUntilMs) : say("app.none")}</td>
    </tr>
  `;
}

const Remote = ({ service }) => html`
  <h3 class="isolated">${service.name}</h3>
  <dl class="facts">
    <dt>${say("discovery.strategy")}</dt><dd>${service.strategy}</dd>
    <dt>${say("discovery.queued")}</dt><dd>${number(service.queued)}</dd>
  </dl>
  ${service.instances.length
    ? html`<div class="scroll" tabindex="0"><table><${Heads} text=${(name) => say("discovery." + name)} names=${COLUMNS} />
        <tbody>${service.instances.map((each) => html`<${Instance} key=${each.id} instance=${each} />`)}</tbody>
      </table></div>`
    : html`<p>${say("discovery.noInstances")}</p>`}
`;

const Registration = ({ found }) => html`
  <h3>${say("discovery.registration", { registry: found.registry })}</h3>
  <p class=${found.isRegistered && !found.problem ? "good" : "bad"}>
    ${found.problem || say(found.isRegistered ? "discovery.registered" : "discovery.notRegistered")}
  </p>
  <div class="scroll" tabindex="0"><table><${Heads} text=${(name) => say("discovery." + name)} names=${["service", "id", "instance", "weight"]} />
    <tbody>${found.entries.map((each) => html`
      <tr key=${each.id}><th scope="row" class="isolated">${each.service}</th><td class="long">${each.id}</td>
        <td>${each.host}:${each.port}</td><td class="number">${number(each.weight)}</td></tr>
    `)}</tbody>
  </table></div>
`;

export function Discovery() {
  const found = useLoad((signal) => call("GET", "discovery", { signal }), []);
  return html`
    <header class="row"><h2>${say("discovery.title")}</h2>
      <${Button} onClick=${found.reload}>${say("gateway.refresh")}<//></header>
    <${Loaded} of=${found} rows=${2}>
      ${(data) => html`
        ${data.provider && html`<p>${say("discovery.provider")}: ${data.provider}</p>`}
        ${data.problem && html`<p class="bad">${data.problem}</p>`}
        ${!data.services.length && !data.registration && html`<p>${say("discovery.none")}</p>`}
        ${data.services.map((each) => html`<${Remote} key=${each.name} service=${each} />`)}
        ${data.registration && html`<${Registration} found=${data.registration} />`}
      `}
    <//>
  `;
}
