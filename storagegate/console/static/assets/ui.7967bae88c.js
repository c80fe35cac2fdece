// What all pages are made of: icons, buttons, fields, dialogs, and the six states of a page.

import { h } from "./preact.225d7a7737.js";
import { useEffect, useErrorBoundary, useId, useLayoutEffect, useRef, useState } from "./hooks.ceebd18b27.js";
import htm from "./htm.ab33dd3f38.js";
import { APIError, has, state } from "./api.3f20c599c2.js";
import { age, say } from "./messages.5d7ca40ed1.js";

export const html = htm.bind(h);

const SKELETON_MS = 200;
const STALE_MS = 60000;
const REDRAW_MS = 15000;

const ICONS = {
  bucket: "M4 6h16l-2 14H6zM4 6c0-3 16-3 16 0",
  key: "M14 10a4 4 0 1 1-3-3.9A4 4 0 0 1 14 10h7v4M18 10v3",
  about: "M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18M12 11v6M12 7.5v.5",
  sessions: "M4 5h16v11H4zM9 20h6",
  gateway: "M4 12h6l4-6h6M10 12h10M10 12l4 6h6",
  overview: "M4 20V10M10 20V4M16 20v-7M21 20H3",
  live: "M3 12h4l3-8 4 16 3-8h4",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  jobs: "M4 6h10M4 12h16M4 18h7M17 3v6l4-3z",
  maintenance: "M14 6a4 4 0 0 1 6 4l-9 9a2 2 0 0 1-3-3l9-9M4 20l4-4",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  add: "M12 5v14M5 12h14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  folder: "M3 6h6l2 2h10v11H3z",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  search: "M11 18a7 7 0 1 1 0-14 7 7 0 0 1 0 14M16 16l5 5",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4",
  transfers: "M8 20V5M4 9l4-4 4 4M16 4v15M12 15l4 4 4-4",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  warning: "M12 4l9 16H3zM12 10v5M12 17.5v.5",
};

export const Icon = ({ name }) => html`
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${ICONS[name]} /></svg>
`;

export const Button = ({ icon, children, kind = "", busy, ...rest }) => html`
  <button type="button" class=${"button " + kind} aria-busy=${busy ? "true" : undefined}
    disabled=${busy} ...${rest}>
    ${icon && html`<${Icon} name=${icon} />`}${children}
  </button>
`;

export const IconButton = ({ icon, label, kind = "", ...rest }) => html`
  <button type="button" class=${"button bare " + kind} aria-label=${label} title=${label} ...${rest}>
    <${Icon} name=${icon} />
  </button>
`;

export function Field({ label, help, error, children, ...rest }) {
  const id = useId();
  const described = help || error ? id + "-help" : undefined;
  const control = children
    ? children({ id, "aria-describedby": described })
    : html`<input id=${id} aria-describedby=${described} autocomplete="off" spellcheck=${false}
        aria-invalid=${error ? "true" : undefined} ...${rest} />`;
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      ${control}
      ${described && html`<p id=${described} class=${error ? "help bad" : "help"}>${error || help}</p>`}
    </div>
  `;
}

export const Select = ({ label, help, options, ...rest }) => html`
  <${Field} label=${label} help=${help}>
    ${(given) => html`
      <select ...${given} ...${rest}>
        ${options.map(([value, text]) => html`<option value=${value}>${text}</option>`)}
      </select>
    `}
  <//>
`;

export const Check = ({ label, ...rest }) => html`
  <label class="check"><input type="checkbox" ...${rest} /> ${label}</label>
`;

export function Dialog({ title, onClose, children, wide }) {
  const element = useRef();
  const id = useId();
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return html`
    <dialog ref=${element} aria-labelledby=${id} class=${wide ? "wide" : ""}
      onCancel=${(event) => {
        event.preventDefault();
        if (onClose) onClose();
      }}>
      <header class="row">
        <h2 id=${id}>${title}</h2>
        ${onClose && html`<${IconButton} icon="close" label=${say("app.close")} onClick=${onClose} />`}
      </header>
      ${children}
    </dialog>
  `;
}

// A form in a dialog: its error, and its two buttons.
export function Form({ submit, label, onCancel, kind = "primary", children, disabled }) {
  const [run, busy, error] = useAction(submit);
  return html`
    <form onSubmit=${(event) => {
      event.preventDefault();
      run();
    }}>
      ${typeof children === "function" ? children(error) : children}
      ${error && html`<${Problem} error=${error} />`}
      <div class="buttons">
        ${onCancel && html`<${Button} onClick=${onCancel}>${say("app.cancel")}<//>`}
        <button class=${"button " + kind} disabled=${busy || disabled}>${label}</button>
      </div>
    </form>
  `;
}

// The confirmation of what cannot be undone: a name is typed where it is much.
export function Confirm({ title, text, name, label, act, onClose }) {
  const [typed, setTyped] = useState("");
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <${Form} submit=${act} label=${label} kind="danger" onCancel=${onClose}
        disabled=${name !== undefined && typed !== name}>
        <p>${text}</p>
        ${name !== undefined && html`
          <${Field} label=${say("app.typeName", { name })} value=${typed}
            onInput=${(event) => setTyped(event.target.value)} />
        `}
      <//>
    <//>
  `;
}

// Run something that changes: [run, busy, error].
export function useAction(act) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const alive = useRef(true);
  useEffect(() => () => {
    alive.current = false;
  }, []);
  async function run(...values) {
    setBusy(true);
    setError(null);
    try {
      await act(...values);
    } catch (failure) {
      if (!(failure instanceof APIError)) console.error(failure);
      if (alive.current) setError(failure);
    }
    if (alive.current) setBusy(false);
  }
  return [run, busy, error];
}

// Load something for as long as the component is there: {data, error, atMs, busy, reload, change}.
export function useLoad(load, inputs) {
  const [found, setFound] = useState({ data: undefined, error: null, atMs: 0, busy: true });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    setFound((before) => ({ ...before, busy: true }));
    load(controller.signal).then(
      (data) => {
        if (!controller.signal.aborted) setFound({ data, error: null, atMs: Date.now(), busy: false });
      },
      (error) => {
        if (controller.signal.aborted) return;
        if (!(error instanceof APIError)) console.error(error);
        setFound((before) => ({ ...before, error, busy: false }));
      },
    );
    return () => controller.abort();
  }, [...inputs, round, state.session && state.session.expiresMs, state.ended]);
  const reload = () => setRound((before) => before + 1);
  useEffect(() => {
    if (!found.error || found.error.code !== "OFFLINE") return undefined;
    const timer = setTimeout(reload, 2000);
    return () => clearTimeout(timer);
  }, [found.error]);
  // `atMs` is given where the data are those of a later time.
  const change = (edit, atMs) =>
    setFound((before) => ({ ...before, data: edit(before.data), atMs: atMs || before.atMs }));
  return { ...found, reload, change };
}

export function Problem({ error, retry }) {
  const text = error.status === 413 && error.code === "HTTP_413" ? say("error.413") : error.message;
  return html`
    <div class="problem" role="alert">
      <${Icon} name="warning" />
      <div>
        <p>${text}</p>
        <p class="quiet">
          ${error.code && say("app.code", { code: error.code })}
          ${error.trace && " · " + say("app.trace", { id: error.trace })}
        </p>
        ${retry && html`<${Button} onClick=${retry}>${say("app.retry")}<//>`}
      </div>
    </div>
  `;
}

export const Forbidden = ({ role }) => html`
  <div class="state">
    <h2>${say("app.forbidden")}</h2>
    <p>${say("app.forbiddenRole", { role, own: state.session ? state.session.role : "" })}</p>
  </div>
`;

export const Empty = ({ title, text, children }) => html`
  <div class="state"><h2>${title}</h2>${text && html`<p>${text}</p>`}${children}</div>
`;

function Skeleton({ rows = 5 }) {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), SKELETON_MS);
    return () => clearTimeout(timer);
  }, []);
  return html`
    <div class="skeleton" aria-busy="true">
      ${shown && html`<span class="hidden" role="status">${say("app.loading")}</span>`}
      ${Array.from({ length: rows }, () => html`<div class=${shown ? "bar" : "bar blank"}></div>`)}
    </div>
  `;
}

// How old what is shown is, where that is more than a minute, or newer data could not be had.
function Stale({ atMs, error, reload }) {
  const [, redraw] = useState(0);
  useEffect(() => {
    const draw = () => redraw((round) => round + 1);
    const timer = setInterval(draw, REDRAW_MS);
    // The timers of a page that is not seen are slow.
    document.addEventListener("visibilitychange", draw);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", draw);
    };
  }, []);
  if (!error && Date.now() - atMs <= STALE_MS) return null;
  return html`
    <p class="stale">${say("app.stale", { age: age(atMs) })}
      ${!error && html`${" "}<button type="button" class="link" onClick=${reload}>${say("app.reload")}</button>`}</p>
  `;
}

// One of the states of what `useLoad` has, or its children made of the data. What changes as it
// happens has an infinite time.
export function Loaded({ of, empty, isEmpty, rows, children }) {
  const { data, error, atMs, reload } = of;
  if (error && error.status === 403 && error.details.role)
    return html`<${Forbidden} role=${error.details.role} />`;
  if (data === undefined)
    return error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Skeleton} rows=${rows} />`;
  return html`
    ${error && html`<${Problem} error=${error} retry=${reload} />`}
    <${Stale} atMs=${atMs} error=${error} reload=${reload} />
    ${isEmpty && isEmpty(data) ? empty : children(data)}
  `;
}

// A page for a role: what fails in it leaves the rest of the console alone.
export function Page({ title, role = "none", actions, children }) {
  const [error, reset] = useErrorBoundary((failure) => console.error(failure));
  useEffect(() => {
    document.title = title + " · " + say("app.name");
  }, [title]);
  return html`
    <div class="page">
      <header class="row">
        <h1 tabindex="-1">${title}</h1>
        <div class="buttons">${has(role) && actions}</div>
      </header>
      ${error
        ? html`<${Problem} error=${error} retry=${reset} />`
        : has(role) ? children : html`<${Forbidden} role=${role} />`}
    </div>
  `;
}

let speak = () => {};

export function announce(text) {
  speak(text);
}

export function LiveRegion() {
  const [text, setText] = useState("");
  speak = setText;
  useEffect(() => {
    const timer = setTimeout(() => setText(""), 4000);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<div class=${text ? "toast" : "hidden"} role="status">${text}</div>`;
}

export function CopyButton({ text, label }) {
  async function copy() {
    await navigator.clipboard.writeText(text);
    announce(say("app.copied"));
  }
  // Without TLS or loopback there is no clipboard; the text can be selected.
  if (!navigator.clipboard) return null;
  return html`<${IconButton} icon="copy" label=${label || say("app.copy")} onClick=${copy} />`;
}
