// What an object looks like, as far as a browser shows it: text as text, never as a page.

import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "./api.js";
import { typeOf } from "./filetypes.js";
import { bytes, say } from "./messages.js";
import { Table } from "./objecttable.js";
import { html, Loaded, useLoad } from "./ui.js";

const MOST_TEXT = 131072;

const TEXTS = /^(text\/|application\/(json|xml|javascript|yaml|toml|sql|x-sh|x-ndjson|xhtml\+xml)\b)/;

// Types that programs send for a file of which they know nothing.
const UNKNOWN = new Set(["application/octet-stream", "binary/octet-stream", "application/vnd.ms-excel", ""]);

export function kindOf(contentType, key = "") {
  const bare = contentType.split(";")[0].trim().toLowerCase();
  const isSheet = /\.(csv|tsv)$/i.test(key);
  if (bare === "text/csv" || bare === "text/tab-separated-values" || (isSheet && (UNKNOWN.has(bare) || bare === "text/plain"))) return "table";
  // A name says what is text, where the type says nothing.
  if (UNKNOWN.has(bare) && ["fileText", "fileCode"].includes(typeOf(key)[0]) && /\.(?!docx?$|odt$)\w+$/i.test(key)) return "text";
  if (TEXTS.test(bare) || /\+(json|xml)$/.test(bare) && !bare.startsWith("image/")) return "text";
  const [kind] = bare.split("/");
  if (kind === "image" || kind === "audio" || kind === "video") return kind;
  return bare === "application/pdf" ? "pdf" : "";
}

async function fetchText(address, signal) {
  const headers = { Range: "bytes=0-" + (MOST_TEXT - 1) };
  const response = await fetch(address, { headers, signal, cache: "no-store" });
  if (response.status === 416) return "";
  if (!response.ok) throw new Error(response.statusText);
  return new TextDecoder().decode(await response.arrayBuffer());
}

// Whether a browser shows an object in a window of its own, as the daemon has it.
const OPENS = /^(image|text|audio|video)\/|^application\/pdf/;

// A PDF. The browser's viewer takes the focus once it is loaded, and with it all keys: they come back, unless a person
// went there.
function Document({ address }) {
  const frame = useRef();
  useEffect(() => {
    let last = document.activeElement;
    let isChosen = false;
    const listeners = {
      focusin: () => (last = document.activeElement),
      keydown: (event) => (isChosen = event.key === "Tab"),
      pointerover: (event) => (isChosen = event.target === frame.current),
      blur: () => setTimeout(() => {
        if (isChosen || document.activeElement !== frame.current) return;
        frame.current.blur();
        focus();
        last.focus({ preventScroll: true });
      }),
    };
    for (const [name, act] of Object.entries(listeners)) addEventListener(name, act);
    return () => Object.entries(listeners).forEach(([name, act]) => removeEventListener(name, act));
  }, []);
  return html`<iframe ref=${frame} src=${address} title=${say("object.preview")}></iframe>`;
}

export function Preview({ bucket, object, versionId }) {
  const kind = kindOf(object.contentType, object.key);
  const isText = kind === "text" || kind === "table";
  const [asText, setAsText] = useState(false);
  const found = useLoad(async (signal) => {
    if (!kind) return {};
    const ticket = async (purpose) => {
      const body = { bucket, key: object.key, versionId: versionId || null, purpose };
      const { url } = await call("POST", "tickets", { body, signal });
      return new URL(url, document.baseURI).href;
    };
    const address = await ticket(isText ? "download" : "preview");
    const opens = OPENS.test(object.contentType) ? (isText ? await ticket("preview") : address) : "";
    return { address, opens, text: isText ? await fetchText(address, signal) : "" };
  }, [object.etag]);
  const isWhole = object.size <= MOST_TEXT;
  const links = (opens) => html`
    ${kind === "table" && html`<button type="button" class="link" onClick=${() => setAsText(!asText)}>${say(asText ? "table.asTable" : "table.asText")}</button>`}
    ${opens && html`<a href=${opens} target="_blank" rel="noopener noreferrer">${say("object.open")}</a>`}
  `;
  const isTable = kind === "table" && !asText;
  return html`
    <${Loaded} of=${found}>
      ${({ address, opens, text }) => html`
        <div class="preview">
          ${!kind && html`<p class="quiet">${say("object.noPreview", { type: object.contentType })}</p>`}
          ${isTable && html`<${Table} text=${text} isWhole=${isWhole}>${links(opens)}<//>`}
          ${isText && !isTable && html`<pre tabindex="0" dir="auto">${text}</pre>`}
          ${kind === "image" && html`<img src=${address} alt=${say("object.image")} />`}
          ${kind === "audio" && html`<audio src=${address} controls></audio>`}
          ${kind === "video" && html`<video src=${address} controls></video>`}
          ${kind === "pdf" && html`<${Document} key=${address} address=${address} />`}
          ${kind && !isTable && html`<p class="previewFoot">
            <span class="quiet">${isText && !isWhole && say("object.cut", { size: bytes(MOST_TEXT) })}</span><span class="fill"></span>${links(opens)}</p>`}
        </div>
      `}
    <//>
  `;
}
