// The frame of all pages: navigation, the bar without a connection, commands and their keys.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { APIError, call, has, signOut, state } from "./api.js";
import { say } from "./messages.js";
import { current, go, link, useRoute } from "./router.js";
import { changeSettings, settings } from "./settings.js";
import { Brand, Button, Empty, frame, html, Icon, LiveRegion, Loaded, loadStyle, Page, useLoad } from "./ui.js";

const STYLE = "./pages.css";

// Settles when the style of the pages is there.
export const styled = loadStyle(STYLE);

// What the navigation has: name, icon, role, and where its module is.
const PAGES = [
  ["overview", "overview", "auditor", () => import("./overview.js")],
  ["buckets", "bucket", "none", () => import("./buckets.js")],
  ["keys", "key", "none", () => import("./keys.js")],
  ["users", "users", "auditor", () => import("./users.js")],
  ["live", "live", "none", () => import("./live.js")],
  ["gateway", "gateway", "auditor", () => import("./gateway.js")],
  ["transfers", "transfers", "none", () => import("./transfers.js")],
  ["jobs", "jobs", "none", () => import("./jobs.js")],
  ["maintenance", "maintenance", "auditor", () => import("./maintenance.js")],
  ["configuration", "settings", "auditor", () => import("./configuration.js")],
  ["sessions", "sessions", "none", () => import("./sessions.js")],
  ["about", "about", "none", () => import("./about.js")],
];

// The first pages are the ones of each day; the others stand below a heading.
const DAILY = 6;
const TABS = ["overview", "buckets", "keys", "live"];

export const visiblePages = () => PAGES.filter(([, , role]) => has(role));

const components = {};

async function fetchPage([name, , , load]) {
  try {
    if (components[name]) return;
    const module = await load();
    await module.styled;
    components[name] = module.default;
  } catch {
    // If the server does not answer, this says so; if it does, it has other files by now.
    await call("GET", "session");
    throw new APIError(0, "FILE_MISSING", say("app.missing"));
  }
}

// The first page comes together with the style of all.
const first = PAGES.find(([name]) => name === current().path[0]);
if (first) first[3]().catch(() => {});

// A page, whose module is fetched when it is first shown.
function Body({ route }) {
  const name = route.path[0];
  const page = PAGES.find((each) => each[0] === name);
  const found = useLoad(async () => page && fetchPage(page), [name]);
  const Found = components[name];
  if (Found) return html`<${Found} route=${route} />`;
  if (page) return html`<${Page} title=${say("nav." + name)}><${Loaded} of=${{ ...found, data: undefined }} /><//>`;
  return html`
    <${Page} title=${say("app.noPage")}>
      <${Empty} title=${say("app.noPage")}>
        <a class="button" href=${link([visiblePages()[0][0]])}>${say("nav." + visiblePages()[0][0])}</a><//>
    <//>
  `;
}

const linkTo = (shown) => ([name, icon]) => html`
  <li><a href=${link([name])} aria-current=${shown === name ? "page" : undefined} title=${say("nav." + name)}>
    <${Icon} name=${icon} />${say("nav." + name)}</a></li>
`;

const Navigation = ({ shown, isOpen }) => html`
  <aside class=${isOpen ? "side open" : "side"}>
    <a class="brand" href=${link([visiblePages()[0][0]])} aria-label=${say("app.name")}><${Brand} /></a>
    <nav aria-label=${say("app.menu")}>
      <ul>${visiblePages().filter((page) => PAGES.indexOf(page) < DAILY).map(linkTo(shown))}</ul>
      <p class="group">${say("app.system")}</p>
      <ul>${visiblePages().filter((page) => PAGES.indexOf(page) >= DAILY).map(linkTo(shown))}</ul>
    </nav>
    <p class="sideFoot">${say("app.version", { version: state.session.version })}</p>
  </aside>
`;

// The pages of each day on a phone, and the rest by the last of the tabs.
const Tabbar = ({ shown, isOpen, toggle }) => html`
  <nav class="tabbar" aria-label=${say("app.menu")}>
    ${visiblePages().filter(([name]) => TABS.includes(name)).map(([name, icon]) => html`
      <a href=${link([name])} aria-current=${shown === name ? "page" : undefined}>
        <${Icon} name=${icon} />${say("nav." + name)}</a>
    `)}
    <button type="button" aria-expanded=${isOpen} onClick=${toggle}><${Icon} name="menu" />${say("app.moreActions")}</button>
  </nav>
`;

const THEMES = { light: "sun", dark: "moon", system: "system" };

function ThemeSwitch() {
  const [theme, setTheme] = useState(settings().theme || "system");
  return html`
    <div class="seg icons" role="group" aria-label=${say("app.theme")}>
      ${Object.entries(THEMES).map(([name, icon]) => html`
        <button type="button" aria-pressed=${theme === name} aria-label=${say("app.theme." + name)}
          title=${say("app.theme." + name)} onClick=${() => {
            setTheme(name);
            changeSettings({ theme: name });
          }}><${Icon} name=${icon} /></button>
      `)}
    </div>
  `;
}

const isTyping = (element) => element.closest("input, textarea, select, [contenteditable]") !== null;

export function Shell() {
  const route = useRoute();
  const main = useRef();
  const [open, setOpen] = useState(false);
  const [overlay, setOverlay] = useState(null);
  const [Overlays, setOverlays] = useState(null);
  const [Tray, setTray] = useState(null);
  const name = route.path[0];

  useEffect(() => {
    // The address may have changed since the drawing.
    if (!current().path[0]) go([visiblePages()[0][0]], {}, true);
    setOpen(false);
    if (document.activeElement === document.body || document.activeElement.closest("nav, aside"))
      main.current.focus({ preventScroll: true });
  }, [route.path.join("/")]);

  function show(kind) {
    setOverlay(kind);
    import("./palette.js").then((module) => setOverlays(module));
  }
  // A key may come with the first drawing.
  useLayoutEffect(() => {
    function pressed(event) {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        show("palette");
      } else if (event.key === "/" && !isTyping(event.target) && !document.querySelector("dialog")) {
        const field = document.querySelector("main .search input");
        if (!field) return;
        event.preventDefault();
        field.focus();
      } else if (event.key === "?" && !isTyping(event.target) && !document.querySelector("dialog")) {
        show("keys");
      }
    }
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);

  useEffect(() => {
    const begun = () => import("./tray.js").then((module) => setTray(() => module.Tray));
    addEventListener("uploads", begun);
    return () => removeEventListener("uploads", begun);
  }, []);

  const close = () => setOverlay(null);
  frame.End = End;
  frame.find = () => show("palette");
  const toggle = () => setOpen(!open);
  return html`
    <a class="skip" href="#content" onClick=${(event) => {
      event.preventDefault();
      main.current.focus();
    }}>${say("app.skip")}</a>
    ${!state.online && html`<div class="offline" role="status">${say("app.offline")}</div>`}
    <div class="app">
      <${Navigation} shown=${name} isOpen=${open} />
      <main ref=${main} id="content" tabindex="-1">
        ${state.session.notice && html`<p class="notice warn noRights" role="status"><${Icon} name="warning" /><span>${state.session.notice}</span></p>`}
        <${Body} route=${route} />
      </main>
      <${Tabbar} shown=${name} isOpen=${open} toggle=${toggle} />
    </div>
    ${Tray && name !== "transfers" && html`<${Tray} />`}
    <${LiveRegion} />
    ${Overlays && overlay === "palette" && html`
      <${Overlays.Palette} pages=${visiblePages()} onClose=${close} onKeys=${() => setOverlay("keys")} />
    `}
    ${Overlays && overlay === "keys" && html`<${Overlays.KeyHelp} onClose=${close} />`}
  `;
}

// The end of the bar above each page.
const End = () => html`
  <${Button} kind="jump" onClick=${() => frame.find()}>
    <${Icon} name="search" /><span>${say("app.palette")}</span><kbd>Ctrl K</kbd><//>
  <${ThemeSwitch} />
  <span class="who"><code>${state.session.accessKey}</code>${state.session.role !== "none" && html` <small>${state.session.role}</small>`}</span>
  <button type="button" class="button bare" aria-label=${say("app.signOut")} onClick=${signOut}><${Icon} name="signOut" /><span class="hideMid">${say("app.signOut")}</span></button>
`;
