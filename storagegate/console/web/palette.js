// Search or jump: pages, commands and the buckets that exist; and the keys of the keyboard.

import { useEffect, useState } from "preact/hooks";
import { call, has, signOut } from "./api.js";
import { addTexts, say } from "./messages.js";
import { go } from "./router.js";
import { changeSettings } from "./settings.js";
import { Dialog, html, Icon } from "./ui.js";

addTexts({
  "palette.theme": "Theme: {theme}",
  "palette.nothing": "Nothing found",
  "palette.buckets": "Buckets",
  "palette.keys": "Keys",
  "palette.actions": "Actions",
  "palette.pages": "Pages and commands",
  "palette.newKey": "New key for {bucket}",
  "palette.live": "Live, only {bucket}",
  "help.palette": "Search or jump",
  "help.find": "Find on this page",
  "help.move": "Move the active row",
  "help.select": "Select",
  "help.open": "Open",
  "help.change": "Rename, delete",
  "help.undo": "Undo a deletion, while its message is shown",
  "help.drawer": "Previous, next object",
  "help.pause": "Pause or resume Live",
  "help.call": "Call a method",
  "help.escape": "Close, then clear the selection",
  "help.help": "This list",
});

const HELP = [
  ["Ctrl K", "help.palette"],
  ["/", "help.find"],
  ["↑ ↓ Home End", "help.move"],
  ["Space, Shift ↑ ↓, Ctrl A", "help.select"],
  ["Enter", "help.open"],
  ["F2, Del", "help.change"],
  ["Ctrl Z", "help.undo"],
  ["← →", "help.drawer"],
  ["P", "help.pause"],
  ["Ctrl Enter", "help.call"],
  ["Esc", "help.escape"],
  ["?", "help.help"],
];

const MOST_FOUND = 6;
const DELAY_MS = 120;

// The buckets whose names begin with a text, and the keys that have it: what exists, and no more.
function useFound(wanted) {
  const [found, setFound] = useState({ buckets: [], keys: [] });
  useEffect(() => {
    setFound({ buckets: [], keys: [] });
    if (!wanted) return undefined;
    const aborter = new AbortController();
    const { signal } = aborter;
    const timer = setTimeout(async () => {
      const ask = (path, query) => call("GET", path, { query: { ...query, limit: MOST_FOUND }, signal }).then((page) => page.items, () => []);
      const [buckets, keys] = await Promise.all([ask("buckets", { prefix: wanted }), ask("keys", { find: wanted })]);
      if (!signal.aborted) setFound({ buckets, keys });
    }, DELAY_MS);
    return () => {
      clearTimeout(timer);
      aborter.abort();
    };
  }, [wanted]);
  return found;
}

// The groups of what is found: [title, [label, icon, act][]].
function groupsOf({ buckets, keys }, commands, wanted) {
  const [first] = buckets;
  return [
    ["buckets", buckets.map(({ name }) => [name, "bucket", () => go(["buckets", name, "objects"])])],
    ["keys", keys.map((key) => [key.note || key.accessKey, "key", () => go(["keys", key.accessKey])])],
    ["actions", first ? [
      ...(has("admin") ? [[say("palette.newKey", { bucket: first.name }), "add", () => go(["keys"], { make: "1", bucket: first.name })]] : []),
      [say("palette.live", { bucket: first.name }), "live", () => go(["live"], { bucket: first.name })],
    ] : []],
    ["pages", commands.filter(([label]) => label.toLowerCase().includes(wanted))],
  ].filter(([, items]) => items.length);
}

export function Palette({ pages, onClose, onKeys }) {
  const [typed, setTyped] = useState("");
  const [chosen, setChosen] = useState(0);
  const commands = [
    ...pages.map(([name, icon]) => [say("nav." + name), icon, () => go([name])]),
    ...["system", "light", "dark"].map((theme) => [
      say("palette.theme", { theme: say("app.theme." + theme) }), "sun",
      () => changeSettings({ theme }),
    ]),
    [say("app.keys"), "terminal", onKeys],
    [say("app.signOut"), "signOut", signOut],
  ];
  const wanted = typed.trim().toLowerCase();
  const groups = groupsOf(useFound(wanted), commands, wanted);
  const found = groups.flatMap(([, items]) => items);
  const at = Math.min(chosen, Math.max(found.length - 1, 0));
  function run([, , act]) {
    onClose();
    act();
  }
  function pressed(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") {
      // The browser would clear the field first.
      event.preventDefault();
      onClose();
    } else if (step) {
      event.preventDefault();
      if (found.length) setChosen((at + step + found.length) % found.length);
    } else if (event.key === "Enter" && found[at]) {
      event.preventDefault();
      run(found[at]);
    }
  }
  useEffect(() => document.getElementById("command-" + at)?.scrollIntoView({ block: "nearest" }), [at]);
  return html`
    <${Dialog} title=${say("app.palette")} onClose=${onClose} kind="palette">
      <${Icon} name="search" /><input type="search" role="combobox" aria-expanded="true" aria-controls="commands" autofocus
        aria-label=${say("app.palette")} placeholder=${say("app.palette")} value=${typed}
        aria-activedescendant=${found.length ? "command-" + at : undefined} onKeyDown=${pressed}
        onInput=${(event) => {
          setTyped(event.target.value);
          setChosen(0);
        }} />
      <ul id="commands" role="listbox" aria-label=${say("app.palette")} class="commands">
        ${groups.map(([title, items]) => html`<li role="group" aria-label=${say("palette." + title)}>
          <p class="group" aria-hidden="true">${say("palette." + title)}</p><ul role="presentation">${items.map((command) => {
            const index = found.indexOf(command);
            return html`<li role="option" id=${"command-" + index} aria-selected=${index === at ? "true" : "false"}
              onClick=${() => run(command)}><${Icon} name=${command[1]} /><span class="fill">${command[0]}</span>
              ${index === at && html`<kbd aria-hidden="true">Enter</kbd>`}</li>`;
          })}</ul></li>`)}
      </ul>
      ${!found.length && html`<p class="quiet" role="status">${say("palette.nothing")}</p>`}
    <//>
  `;
}

export const KeyHelp = ({ onClose }) => html`
  <${Dialog} title=${say("app.keys")} onClose=${onClose}>
    <dl class="facts">
      ${HELP.map(([keys, text]) => html`<dt><kbd>${keys}</kbd></dt><dd>${say(text)}</dd>`)}
    </dl>
  <//>
`;
