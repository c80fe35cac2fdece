// What all pages are made of: icons, buttons, fields, dialogs, and the six states of a page.

import { h } from "preact";
import { useEffect, useErrorBoundary, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import htm from "htm";
import { APIError, has, state } from "./api.js";
import { ICONS } from "./icons.js";
import { age, say } from "./messages.js";

export const html = htm.bind(h);

// Fetch a style sheet; settles when it is there, or cannot be had.
export const loadStyle = (href) => new Promise((done) => {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = href;
  link.onload = link.onerror = done;
  document.head.append(link);
});

const SKELETON_MS = 200;
const STALE_MS = 60000;
const REDRAW_MS = 15000;

export const Icon = ({ name }) => html`
  <svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${ICONS[name]}
    stroke-width=${name === "more" ? 2.25 : undefined} /></svg>
`;

const MARK = "M3 1h10a2 2 0 0 1 2 2v2H1V3a2 2 0 0 1 2-2ZM1 6.25h4.35A4 4 0 0 0 4.5 8.75v1.5H1Z" +
  "M15 6.25h-4.35a4 4 0 0 1 .85 2.5v1.5H15ZM1 11.5h3.5V15H2a1 1 0 0 1-1-1ZM15 11.5h-3.5V15H14a1 1 0 0 0 1-1Z";

export const Brand = () => html`
  <svg class="mark" viewBox="0 0 16 16" aria-hidden="true"><path d=${MARK} /></svg>${say("app.name")}
`;

export const Button = ({ icon, children, kind = "", busy, ...rest }) => html`
  <button type="button" class=${"button " + kind} aria-busy=${busy ? "true" : undefined}
    disabled=${busy} ...${rest}>
    ${icon && html`<${Icon} name=${icon} />`}${children}
  </button>
`;

export const IconButton = ({ icon, label, kind = "", ...rest }) => html`
  <button type="button" class=${"button bare only " + kind} aria-label=${label} title=${label} ...${rest}>
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

export const Select = ({ label, help, error, options, ...rest }) => html`
  <${Field} label=${label} help=${help} error=${error}>
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

// Where the focus of a dialog is at first: its first field, or its main button; Cancel where that one destroys.
const FIRST = [".dialogBody :is(input, select, textarea):enabled", ".buttons .primary", ".buttons .button"];

// One with a `kind` has its own head, and closes with a click beside it.
export function Dialog({ title, onClose, children, wide, kind }) {
  const element = useRef();
  const id = useId();
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    const first = FIRST.map((each) => dialog.querySelector(each)).find((each) => each);
    if (first && !dialog.querySelector("[autofocus]")) first.focus();
    return () => dialog.close();
  }, []);
  return html`
    <dialog ref=${element} aria-labelledby=${id} class=${kind || (wide ? "wide" : "")}
      onClick=${(event) => kind && event.target === element.current && onClose()}
      onCancel=${(event) => {
        event.preventDefault();
        if (onClose) onClose();
      }}>
      <header class="row">
        <h2 id=${id}>${title}</h2>
        ${onClose && !kind && html`<${IconButton} icon="close" label=${say("app.close")} onClick=${onClose} />`}
      </header>
      <div class="dialogBody">${children}</div>
    </dialog>
  `;
}

// A form in a dialog: its error, unless a field of it has shown it (`isShown`), and its two buttons.
export function Form({ submit, label, onCancel, kind = "primary", isDefault, children, disabled }) {
  const [run, busy, error] = useAction(submit);
  return html`
    <form onSubmit=${(event) => {
      event.preventDefault();
      run();
    }}>
      ${typeof children === "function" ? children(error) : children}
      ${error && !error.isShown && html`<${Problem} error=${error} />`}
      <div class="buttons">
        ${onCancel && html`<${Button} onClick=${onCancel}>${say("app.cancel")}<//>`}
        <button class=${"button " + kind} autofocus=${isDefault} disabled=${busy || disabled}>${label}</button>
      </div>
    </form>
  `;
}

// The confirmation of a deletion: a name is typed where much of it cannot be undone; Enter confirms what can be.
export function Confirm({ title, text, name, canUndo, label, act, onClose }) {
  const [typed, setTyped] = useState("");
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <${Form} submit=${act} label=${label} kind="danger" isDefault=${canUndo} onCancel=${onClose}
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

// A link to the key of the configuration that solves a problem; users who may not see it are told whom to ask.
export const SettingLink = ({ name }) => name && (has("auditor")
  ? html`${" "}<a href=${"#/configuration?find=" + name}>${say("app.setting")}</a>` : html`${" "}<span>${say("app.settingAsk")}</span>`);

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
        <${SettingLink} name=${error.details && error.details.setting} />
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

export const Art = () => html`
  <svg class="art" viewBox="0 0 128 80" aria-hidden="true"><path class="s" d="M34 26h60l-6 44H40Z" /><ellipse class="s"
    cx="64" cy="26" rx="30" ry="8" /><path class="d" d="M64 4v14" /><path class="a" d="m58 13 6 6 6-6" />
    <path class="d" d="M12 70h104" /></svg>
`;

export const Empty = ({ title, text, children }) => html`
  <div class="state">
    <${Art} />
    <h2>${title}</h2>${text && html`<p>${text}</p>`}${children}
  </div>
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

// The heads of a table: `names` are names or [name, class], of which `text` makes words.
export const Heads = ({ names, text, hasActions }) => html`
  <thead><tr>${names.map((each) => [each].flat()).map(([name, kind]) => html`<th scope="col" class=${kind}>${text(name)}</th>`)}
    ${hasActions && html`<th scope="col"><span class="hidden">${say("app.actions")}</span></th>`}</tr></thead>
`;

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

// Call `close` for Escape, unless a dialog or a menu takes it. The listener is there with the first drawing.
export function useEscape(close) {
  const latest = useRef(close);
  latest.current = close;
  useLayoutEffect(() => {
    const pressed = (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog, :popover-open")) latest.current();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

// What ends the bar above a page: the frame sets it.
export const frame = { End: () => null };

// A page for a role: what fails in it leaves the rest of the console alone. With `crumbs` in the bar the title
// stands in the page; `fixed` pages have a list that scrolls by itself, and may have something `beside` it.
export function Page({ title, role = "none", actions, crumbs, badges, about, tools, fixed, beside, children }) {
  const [error, reset] = useErrorBoundary((failure) => console.error(failure));
  useEffect(() => {
    document.title = title + " · " + say("app.name");
  }, [title]);
  const may = has(role);
  return html`
    <header class="top">
      ${crumbs || html`<h1 tabindex="-1">${title}</h1>`}
      <${frame.End} />
    </header>
    <div class=${fixed ? "beside fixed" : "beside"}>
      <div class=${(fixed ? "page fixed" : "page") + (beside ? " hasDrawer" : "")}>
        ${may && (crumbs || tools || actions) && html`
          <div class="pageHead">
            ${crumbs ? html`<div><div class="title"><h1 tabindex="-1">${title}</h1>${badges}</div>${about}</div>` : tools}
            ${actions && html`<div class="pageActions">${actions}</div>`}
          </div>
        `}
        ${error
          ? html`<${Problem} error=${error} retry=${reset} />`
          : may ? children : html`<${Forbidden} role=${role} />`}
      </div>
      ${!error && may && beside}
    </div>
  `;
}

// The steps to a view, in one line: [text, address]; the last has no address.
export const Crumbs = ({ steps, label }) => html`
  <nav class="crumbs" aria-label=${label || say("app.where")}><ol>
    ${steps.map(([text, href]) => html`
      <li>${href ? html`<a href=${href}><bdi>${text}</bdi></a>` : html`<span aria-current="page"><bdi>${text}</bdi></span>`}</li>
    `)}
  </ol></nav>
`;

const TOAST_MS = 6000;
// Time to read a message and to reach its button.
const ACTION_MS = 20000;

let speak = () => {};

// Show a message; `action` is {label, act}, a button of it.
export function announce(text, action) {
  speak({ text, action });
}

export function LiveRegion() {
  const [{ text, action }, setShown] = useState({ text: "" });
  const [isHeld, setIsHeld] = useState(false);
  speak = setShown;
  useEffect(() => {
    if (isHeld) return undefined;
    const timer = setTimeout(() => setShown({ text: "" }), action ? ACTION_MS : TOAST_MS);
    return () => clearTimeout(timer);
  }, [text, action, isHeld]);
  const hold = (held) => () => setIsHeld(held);
  const run = () => {
    setShown({ text: "" });
    setIsHeld(false);
    action.act();
  };
  useLayoutEffect(() => {
    if (!action) return undefined;
    const pressed = (event) => {
      const isUndo = (event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "z";
      if (!isUndo || event.target.closest("input, textarea, select, dialog")) return;
      event.preventDefault();
      run();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [action]);
  return html`
    <div class=${text ? "toast" : "hidden"} onMouseEnter=${hold(true)} onMouseLeave=${hold(false)}
      onFocusIn=${hold(true)} onFocusOut=${hold(false)}>
      <span role="status">${text}</span>
      ${action && html`<button type="button" onClick=${run}>${action.label}</button>`}
    </div>
  `;
}

// A field to search with, which "/" goes to.
export const Search = ({ label, ...rest }) => html`
  <div class="search"><${Icon} name="search" />
    <input type="search" aria-label=${label} placeholder=${label} autocomplete="off" spellcheck=${false} ...${rest} />
    ${rest.value
      ? html`<${IconButton} icon="close" kind="small" label=${say("app.clear")} onClick=${(event) => {
          event.currentTarget.parentNode.querySelector("input").focus();
          rest.onInput({ target: { value: "" } });
        }} />`
      : html`<kbd aria-hidden="true">/</kbd>`}</div>
`;

// Returns whether the browser permits it.
export const copyText = (text) => navigator.clipboard.writeText(text).then(() => {
  announce(say("app.copied"));
  return true;
}, () => announce(say("app.notCopied")));

export function CopyButton({ text, label, isLabelled }) {
  const copy = () => copyText(text);
  // Without TLS or loopback there is no clipboard; the text can be selected.
  if (!navigator.clipboard) return null;
  if (isLabelled) return html`<${Button} icon="copy" kind="small" onClick=${copy}>${label}<//>`;
  return html`<${IconButton} icon="copy" label=${label || say("app.copy")} onClick=${copy} />`;
}
