// The entry: signing in, and the rest of the console once there is a session.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { beginSignIn, call, hasToken, signIn, start, state, watch } from "./api.js";
import { say } from "./messages.js";
import { applySettings } from "./settings.js";
import { Brand, Dialog, Field, Form, html, IconButton } from "./ui.js";

// The frame of the pages, which comes while the server checks the session.
const loadShell = () => import("./shell.js").catch(() => {});

function SignInForm({ accessKey: accessKeyGiven = "" }) {
  const [accessKey, setAccessKey] = useState(accessKeyGiven);
  const [isSeen, setIsSeen] = useState(false);
  const [secretKey, setSecretKey] = useState("");
  async function submit() {
    loadShell();
    try {
      await signIn(accessKey.trim(), secretKey);
    } catch (error) {
      if (error.code === "UNAUTHENTICATED") {
        error.message = say("signIn.failed");
        error.isShown = true;
      }
      if (error.code === "RATE_LIMITED")
        error.message = say("signIn.wait", { seconds: error.details.retryAfterSeconds });
      throw error;
    }
  }
  return html`
    <${Form} submit=${submit} label=${say("signIn.submit")}>
      ${(error) => html`
        <${Field} label=${say("signIn.accessKey")} name="username" autocomplete="username" required
          autofocus=${!accessKeyGiven} value=${accessKey} onInput=${(event) => setAccessKey(event.target.value)} />
        <${Field} label=${say("signIn.secretKey")} error=${error && error.isShown ? error.message : ""}>
          ${(given) => html`<div class="withButton">
            <input ...${given} name="password" type=${isSeen ? "text" : "password"} required autocomplete="current-password"
              aria-invalid=${error && error.isShown ? "true" : undefined} autofocus=${!!accessKeyGiven} value=${secretKey}
              onInput=${(event) => setSecretKey(event.target.value)} />
            <${IconButton} icon="eye" kind="small" label=${say("signIn.see")} aria-pressed=${isSeen} onClick=${() => setIsSeen(!isSeen)} />
          </div>`}
        <//>
      `}
    <//>
  `;
}

// A button for each issuer, and why the last sign-in at one of them failed.
function Issuers() {
  const [issuers, setIssuers] = useState([]);
  const [error, setError] = useState(state.refused);
  useEffect(() => {
    call("GET", "session/issuers").then(setIssuers, () => {});
  }, []);
  return html`
    ${error && html`<p class="help bad" role="alert">${error.message}</p>`}
    <div class="issuers">${issuers.map(({ name, label }) => html`
      <button type="button" class="button" onClick=${() => beginSignIn(name).catch(setError)}>
        ${say("signIn.with", { label })}</button>`)}</div>
  `;
}

function SignInPage() {
  useEffect(() => {
    document.title = say("signIn.title") + " · " + say("app.name");
  }, []);
  return html`
    <main class="signIn">
      <div>
        <h1 class="brand"><${Brand} /></h1>
        <p class="quiet">${say("signIn.to", { host: location.host })}</p>
        <${Issuers} />
        <${SignInForm} />
        <p class="quiet">${say("signIn.where")} <code>root-credentials</code> ${say("signIn.directory")}</p>
      </div>
    </main>
  `;
}

function App() {
  const [, redraw] = useState(0);
  const [Shell, setShell] = useState(null);
  useEffect(() => watch(() => redraw((count) => count + 1)), []);
  const { ready, session, ended } = state;
  useEffect(() => {
    if (session && !Shell) import("./shell.js").then(async (module) => {
      await module.styled;
      setShell(() => module.Shell);
    });
  }, [session]);
  if (!ready && !session) return null;
  if (!session) return html`<${SignInPage} />`;
  return html`
    ${Shell && html`<${Shell} key=${session.accessKey} />`}
    ${ended && html`
      <${Dialog} title=${say("signIn.title")}>
        <p>${say("signIn.again")}</p>
        ${session.issuer && html`<${Issuers} />`}
        <${SignInForm} accessKey=${session.issuer ? "" : session.accessKey} />
      <//>
    `}
  `;
}

applySettings();
if (hasToken()) loadShell();
render(html`<${App} />`, document.body);
start();
