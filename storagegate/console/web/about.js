// The licences, and the colours of this browser.

import { useState } from "preact/hooks";
import { state } from "./api.js";
import { FONT_LICENCE, LIBRARIES, LICENCES } from "./libraries.js";
import { addTexts, say } from "./messages.js";
import { changeSettings, settings } from "./settings.js";
import { html, Page, Select } from "./ui.js";

addTexts({
  "about.licence": "storagegate {version} is free software under the MIT licence.",
  "about.libraries": "Libraries of these pages",
  "about.licences": "The licences in full",
  "about.font": "the licence of the font",
});

export default function About() {
  const [theme, setTheme] = useState(settings().theme || "system");
  return html`
    <${Page} title=${say("nav.about")}>
      <p>${say("about.licence", { version: state.session.version })}</p>
      <section class="card">
        <${Select} label=${say("app.theme")} value=${theme}
          onChange=${(event) => {
            setTheme(event.target.value);
            changeSettings({ theme: event.target.value });
          }}
          options=${["system", "light", "dark"].map((name) => [name, say("app.theme." + name)])} />
      </section>
      <h2>${say("about.libraries")}</h2>
      <ul>${LIBRARIES.map((each) => html`<li>${each.name} ${each.version} (${each.license})</li>`)}</ul>
      <p><a href=${LICENCES} target="_blank" rel="noopener">${say("about.licences")}</a>, <a href=${FONT_LICENCE} target="_blank" rel="noopener">${say("about.font")}</a></p>
    <//>
  `;
}
