// Search or jump: pages, commands and the buckets that exist; and the keys of the keyboard.

import { useEffect, useState } from "preact/hooks";
import { call, signOut } from "./api.js";
import { addTexts, say } from "./messages.js";
import { go } from "./router.js";
import { changeSettings } from "./settings.js";
import { Dialog, html, Icon } from "./ui.js";

addTexts({
  "palette.find": "Search or jump to",
  "palette.theme": "Theme: {theme}",
  "palette.nothing": "Nothing found",
  "help.palette": "Search or jump",
  "help.find": "Find on this page",
  "help.move": "Move the active row",
  "help.select": "Select",
  "help.open": "Open",
  "help.change": "Rename, delete",
  "help.drawer": "Previous, next object",
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
  ["← →", "help.drawer"],
  ["Esc", "help.escape"],
  ["?", "help.help"],
];

const MOST_BUCKETS = 6;
const DELAY_MS = 120;

// The buckets whose names begin with a text.
function useBuckets(wanted) {
  const [names, setNames] = useState([]);
  useEffect(() => {
    setNames([]);
    if (!wanted) return undefined;
    const aborter = new AbortController();
    const timer = setTimeout(() => {
      call("GET", "buckets", { query: { prefix: wanted, limit: MOST_BUCKETS }, signal: aborter.signal })
        .then(({ items }) => setNames(items.map((each) => each.name)), () => {});
    }, DELAY_MS);
    return () => {
      clearTimeout(timer);
      aborter.abort();
    };
  }, [wanted]);
  return names;
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
  const buckets = useBuckets(wanted);
  const found = [
    ...buckets.map((name) => [name, "bucket", () => go(["buckets", name, "objects"])]),
    ...commands.filter(([label]) => label.toLowerCase().includes(wanted)),
  ];
  const at = Math.min(chosen, Math.max(found.length - 1, 0));
  function run([, , act]) {
    onClose();
    act();
  }
  function pressed(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      if (found.length) setChosen((at + step + found.length) % found.length);
    } else if (event.key === "Enter" && found[at]) {
      event.preventDefault();
      run(found[at]);
    }
  }
  return html`
    <${Dialog} title=${say("app.palette")} onClose=${onClose} kind="palette">
      <input type="search" role="combobox" aria-expanded="true" aria-controls="commands" autofocus
        aria-label=${say("palette.find")} placeholder=${say("palette.find")} value=${typed}
        aria-activedescendant=${found.length ? "command-" + at : undefined} onKeyDown=${pressed}
        onInput=${(event) => {
          setTyped(event.target.value);
          setChosen(0);
        }} />
      <ul id="commands" role="listbox" aria-label=${say("app.palette")} class="commands">
        ${found.map((command, index) => html`
          <li role="option" id=${"command-" + index} aria-selected=${index === at ? "true" : "false"}
            onClick=${() => run(command)}><${Icon} name=${command[1]} />${command[0]}</li>
        `)}
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
