// The frame of all pages: navigation, the bar without a connection, commands and their keys.

import { useEffect, useRef, useState } from "./hooks.ceebd18b27.js";
import { APIError, call, has, signOut, state } from "./api.3f20c599c2.js";
import { say } from "./messages.5d7ca40ed1.js";
import { go, link, useRoute } from "./router.dcba0dcacc.js";
import { Empty, html, Icon, IconButton, LiveRegion, Loaded, Page, useLoad } from "./ui.7967bae88c.js";

// What the navigation has: name, icon, role, and where its module is.
const PAGES = [
  ["overview", "overview", "auditor", () => import("./overview.4986008cb8.js")],
  ["buckets", "bucket", "none", () => import("./buckets.3a9b205fa9.js")],
  ["transfers", "transfers", "none", () => import("./transfers.fe389860ef.js")],
  ["keys", "key", "none", () => import("./keys.fc9e0725c6.js")],
  ["gateway", "gateway", "auditor", () => import("./gateway.877c56d127.js")],
  ["live", "live", "none", () => import("./live.eb12b27b8f.js")],
  ["jobs", "jobs", "none", () => import("./jobs.b4cc0c57ed.js")],
  ["maintenance", "maintenance", "auditor", () => import("./maintenance.ecc2a88536.js")],
  ["configuration", "settings", "auditor", () => import("./configuration.ca37ead4ff.js")],
  ["sessions", "sessions", "none", () => import("./sessions.98a83063ce.js")],
  ["about", "about", "none", () => import("./about.0b302f46e7.js")],
];

export const visiblePages = () => PAGES.filter(([, , role]) => has(role));

const components = {};

async function fetchPage([name, , , load]) {
  try {
    components[name] ||= (await load()).default;
  } catch {
    // If the server does not answer, this says so; if it does, it has other files by now.
    await call("GET", "session");
    throw new APIError(0, "FILE_MISSING", say("app.missing"));
  }
}

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

function Navigation({ current }) {
  return html`
    <nav aria-label=${say("app.menu")}>
      <ul>
        ${visiblePages().map(([name, icon]) => html`
          <li><a href=${link([name])} aria-current=${current === name ? "page" : undefined}>
            <${Icon} name=${icon} />${say("nav." + name)}
          </a></li>
        `)}
      </ul>
    </nav>
  `;
}

const isTyping = (element) => element.closest("input, textarea, select, [contenteditable]") !== null;

export function Shell() {
  const route = useRoute();
  const main = useRef();
  const [open, setOpen] = useState(false);
  const [overlay, setOverlay] = useState(null);
  const [Overlays, setOverlays] = useState(null);
  const name = route.path[0];

  useEffect(() => {
    if (!name) go([visiblePages()[0][0]], {}, true);
    setOpen(false);
    if (document.activeElement === document.body || document.activeElement.closest("nav"))
      main.current.focus({ preventScroll: true });
  }, [route.path.join("/")]);

  function show(kind) {
    setOverlay(kind);
    import("./palette.a9016011fd.js").then((module) => setOverlays(module));
  }
  useEffect(() => {
    function pressed(event) {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        show("palette");
      } else if (event.key === "?" && !isTyping(event.target) && !document.querySelector("dialog")) {
        show("keys");
      }
    }
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);

  const close = () => setOverlay(null);
  return html`
    <a class="skip" href="#content" onClick=${(event) => {
      event.preventDefault();
      main.current.focus();
    }}>${say("app.skip")}</a>
    <header class="top">
      <span class="narrow"><${IconButton} icon="menu" label=${say("app.menu")} aria-expanded=${open}
        onClick=${() => setOpen(!open)} /></span>
      <strong>${say("app.name")}</strong>
      <span class="fill"></span>
      <${IconButton} icon="search" label=${say("app.palette") + " (Ctrl K)"}
        onClick=${() => show("palette")} />
      <span class="who">${state.session.accessKey} <small>${state.session.role}</small></span>
      <button type="button" class="button" onClick=${signOut}>${say("app.signOut")}</button>
    </header>
    ${!state.online && html`<div class="offline" role="status">${say("app.offline")}</div>`}
    <div class=${open ? "frame open" : "frame"}>
      <${Navigation} current=${name} />
      <main ref=${main} id="content" tabindex="-1"><${Body} route=${route} /></main>
    </div>
    <${LiveRegion} />
    ${Overlays && overlay === "palette" && html`
      <${Overlays.Palette} pages=${visiblePages()} onClose=${close} onKeys=${() => setOverlay("keys")} />
    `}
    ${Overlays && overlay === "keys" && html`<${Overlays.KeyHelp} onClose=${close} />`}
  `;
}
