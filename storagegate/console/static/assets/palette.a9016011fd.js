// Commands by their names, and the keys of the keyboard.

import { useState } from "./hooks.ceebd18b27.js";
import { signOut } from "./api.3f20c599c2.js";
import { addTexts, say } from "./messages.5d7ca40ed1.js";
import { go } from "./router.dcba0dcacc.js";
import { changeSettings } from "./settings.b1273204a3.js";
import { Dialog, html } from "./ui.7967bae88c.js";

addTexts({
  "palette.find": "Type a command",
  "palette.go": "Go to {page}",
  "palette.bucket": "Go to the bucket {name}",
  "palette.theme": "Colours: {theme}",
  "palette.nothing": "No command has this name",
  "help.palette": "Commands",
  "help.help": "This list",
  "help.escape": "Close a dialog",
  "help.arrows": "Walk through a list",
});

const HELP = [
  ["Ctrl K", "help.palette"],
  ["?", "help.help"],
  ["Esc", "help.escape"],
  ["↑ ↓", "help.arrows"],
];

export function Palette({ pages, onClose, onKeys }) {
  const [typed, setTyped] = useState("");
  const [chosen, setChosen] = useState(0);
  const commands = [
    ...pages.map(([name]) => [say("palette.go", { page: say("nav." + name) }), () => go([name])]),
    ...["system", "light", "dark"].map((theme) => [
      say("palette.theme", { theme: say("app.theme." + theme) }),
      () => changeSettings({ theme }),
    ]),
    [say("app.keys"), onKeys],
    [say("app.signOut"), signOut],
  ];
  const wanted = typed.trim().toLowerCase();
  const found = commands.filter(([label]) => label.toLowerCase().includes(wanted));
  if (/^[a-z0-9][a-z0-9.-]{2,62}$/.test(wanted))
    found.push([say("palette.bucket", { name: wanted }), () => go(["buckets", wanted])]);
  const at = Math.min(chosen, Math.max(found.length - 1, 0));
  function run(command) {
    onClose();
    command[1]();
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
    <${Dialog} title=${say("app.palette")} onClose=${onClose}>
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
            onClick=${() => run(command)}>${command[0]}</li>
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
