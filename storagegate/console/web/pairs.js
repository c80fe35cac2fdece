// A form's rows of a name and a value: metadata and tags.

import { addTexts, say } from "./messages.js";
import { Button, html, IconButton } from "./ui.js";

addTexts({
  "pairs.name": "Name",
  "pairs.value": "Value",
  "pairs.add": "Add",
  "pairs.remove": "Remove number {number}",
});

// Rows of a name and a value. `pairs` is [[name, value]]; an `error` may concern the row `wrong`.
export function Pairs({ label, pairs, change, error, wrong }) {
  const edit = (at, part, value) =>
    change(pairs.map((pair, index) => (index === at ? pair.with(part, value) : pair)));
  return html`
    <fieldset class="pairs">
      <legend class="hidden">${label}</legend>
      ${pairs.map((pair, at) => html`
        <div class="pair" key=${at}>
          ${["pairs.name", "pairs.value"].map((text, part) => html`
            <input aria-label=${label + ", " + say(text) + " " + (at + 1)} placeholder=${say(text)}
              autocomplete="off" spellcheck=${false} value=${pair[part]} aria-invalid=${error && wrong === at ? "true" : undefined}
              onInput=${(event) => edit(at, part, event.target.value)} />
          `)}
          <${IconButton} icon="close" label=${say("pairs.remove", { number: at + 1 })}
            onClick=${() => change(pairs.filter((each, index) => index !== at))} />
        </div>
      `)}
      ${error && html`<p class="help bad" role="alert">${error}</p>`}
      <${Button} icon="add" onClick=${() => change([...pairs, ["", ""]])}>${say("pairs.add")}<//>
    </fieldset>
  `;
}
