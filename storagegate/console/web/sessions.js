// The sessions of the key, or of all for an administrator.

import { call } from "./api.js";
import { addTexts, age, date, say } from "./messages.js";
import { Button, Heads, html, Icon, Loaded, Page, useAction, useLoad } from "./ui.js";

addTexts({
  "sessions.key": "Access key",
  "sessions.issuer": "by {issuer}",
  "sessions.from": "Address",
  "sessions.browser": "Browser",
  "sessions.used": "Last used",
  "sessions.ends": "Ends",
  "sessions.current": "This session",
  "sessions.end": "End",
  "sessions.program": "{name} {version}, {system}",
});

// What a browser calls itself, in short: "Firefox 121 on Linux"; another program as it is.
function programOf(agent) {
  const found = /(Firefox|Edg|OPR|HeadlessChrome|Chrome|Version)\/(\d+)/.exec(agent.replace(/Chrome\/\d+[\d.]* .*(?=Edg|OPR)/, ""));
  if (!/^Mozilla/.test(agent) || !found) return agent;
  const name = { Edg: "Edge", OPR: "Opera", HeadlessChrome: "Chrome", Version: "Safari" }[found[1]] || found[1];
  const system = /iPhone|iPad/.test(agent) ? "iOS" : (/Android|Windows|Mac OS X|Linux/.exec(agent) || [""])[0];
  return say("sessions.program", { name, version: found[2], system: system.replace("Mac OS X", "macOS") });
}

function Row({ session, reload }) {
  const [end, busy] = useAction(async () => {
    await call("DELETE", "sessions/" + session.id);
    reload();
  });
  return html`
    <tr>
      <th scope="row"><span class="name"><${Icon} name="key" /><code>${session.accessKey}</code>
        ${session.issuer && html`<small class="quiet">${say("sessions.issuer", session)}</small>`}</span></th>
      <td><code>${session.address}</code></td>
      <td class="long" title=${session.agent}>${programOf(session.agent)}</td>
      <td class="quiet" title=${date(session.usedMs)} data-label=${say("sessions.used")}>${age(session.usedMs)}</td>
      <td class="quiet" data-label=${say("sessions.ends")}>${date(session.expiresMs)}</td>
      <td class="ends">${session.current
        ? html`<span class="badge current">${say("sessions.current")}</span>`
        : html`<${Button} kind="small" busy=${busy} onClick=${end}>${say("sessions.end")}<//>`}</td>
    </tr>
  `;
}

export default function Sessions() {
  const found = useLoad((signal) => call("GET", "sessions", { signal }), []);
  async function more() {
    const page = await call("GET", "sessions", { query: { after: found.data.next } });
    found.change((before) => ({ items: [...before.items, ...page.items], next: page.next }));
  }
  return html`
    <${Page} title=${say("nav.sessions")}>
      <${Loaded} of=${found}>
        ${({ items, next }) => html`
          <div class="scroll edge cards" tabindex="0"><table>
            <${Heads} names=${["key", "from", "browser", "used", "ends"]} text=${(name) => say("sessions." + name)} hasActions />
            <tbody>${items.map((session) => html`
              <${Row} key=${session.id} session=${session} reload=${found.reload} />
            `)}</tbody>
          </table></div>
          ${next && html`<${Button} onClick=${more}>${say("app.more")}<//>`}
        `}
      <//>
    <//>
  `;
}
