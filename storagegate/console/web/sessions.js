// The sessions of the key, or of all for an administrator.

import { call } from "./api.js";
import { addTexts, age, date, say } from "./messages.js";
import { Button, html, Loaded, Page, useAction, useLoad } from "./ui.js";

addTexts({
  "sessions.key": "Access key",
  "sessions.from": "Address",
  "sessions.browser": "Browser",
  "sessions.used": "Last used",
  "sessions.ends": "Ends",
  "sessions.current": "This session",
  "sessions.end": "End",
});

function Row({ session, reload }) {
  const [end, busy] = useAction(async () => {
    await call("DELETE", "sessions/" + session.id);
    reload();
  });
  return html`
    <tr>
      <th scope="row">${session.accessKey}</th><td>${session.address}</td>
      <td class="long">${session.agent}</td><td>${age(session.usedMs)}</td><td>${date(session.expiresMs)}</td>
      <td>${session.current
        ? say("sessions.current")
        : html`<${Button} busy=${busy} onClick=${end}>${say("sessions.end")}<//>`}</td>
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
          <div class="scroll" tabindex="0"><table>
            <thead><tr>
              ${["key", "from", "browser", "used", "ends"].map((name) => html`
                <th scope="col">${say("sessions." + name)}</th>
              `)}
              <th scope="col"><span class="hidden">${say("app.actions")}</span></th>
            </tr></thead>
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
