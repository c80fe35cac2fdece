// The entry: signing in, and the rest of the console once there is a session.

import { render } from "./preact.225d7a7737.js";
import { useEffect, useState } from "./hooks.ceebd18b27.js";
import { signIn, start, state, watch } from "./api.3f20c599c2.js";
import { say } from "./messages.5d7ca40ed1.js";
import { applySettings } from "./settings.b1273204a3.js";
import { Dialog, Field, Form, html } from "./ui.7967bae88c.js";

function SignInForm({ accessKey: given = "" }) {
  const [accessKey, setAccessKey] = useState(given);
  const [secretKey, setSecretKey] = useState("");
  async function submit() {
    try {
      await signIn(accessKey.trim(), secretKey);
    } catch (error) {
      if (error.code === "UNAUTHENTICATED") error.message = say("signIn.failed");
      if (error.code === "RATE_LIMITED")
        error.message = say("signIn.wait", { seconds: error.details.retryAfterSeconds });
      throw error;
    }
  }
  return html`
    <${Form} submit=${submit} label=${say("signIn.submit")}>
      <${Field} label=${say("signIn.accessKey")} name="username" autocomplete="username" required
        autofocus=${!given} value=${accessKey} onInput=${(event) => setAccessKey(event.target.value)} />
      <${Field} label=${say("signIn.secretKey")} name="password" type="password" required
        autocomplete="current-password" autofocus=${!!given} value=${secretKey}
        onInput=${(event) => setSecretKey(event.target.value)} />
    <//>
  `;
}

function SignInPage() {
  useEffect(() => {
    document.title = say("signIn.title") + " · " + say("app.name");
  }, []);
  return html`
    <main class="signIn">
      <h1>${say("app.name")}</h1>
      <${SignInForm} />
      <p class="quiet">${say("signIn.where")}</p>
    </main>
  `;
}

function App() {
  const [, redraw] = useState(0);
  const [Shell, setShell] = useState(null);
  useEffect(() => watch(() => redraw((count) => count + 1)), []);
  const { ready, session, ended } = state;
  useEffect(() => {
    if (session && !Shell) import("./shell.82e97bdb5f.js").then((module) => setShell(() => module.Shell));
  }, [session]);
  if (!ready && !session) return null;
  if (!session) return html`<${SignInPage} />`;
  return html`
    ${Shell && html`<${Shell} key=${session.accessKey} />`}
    ${ended && html`
      <${Dialog} title=${say("signIn.title")}>
        <p>${say("signIn.again")}</p>
        <${SignInForm} accessKey=${session.accessKey} />
      <//>
    `}
  `;
}

applySettings();
render(html`<${App} />`, document.body);
start();
