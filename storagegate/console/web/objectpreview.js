// What an object looks like, as far as a browser shows it: text as text, never as a page.

import { call } from "./api.js";
import { bytes, say } from "./messages.js";
import { html, Loaded, useLoad } from "./ui.js";

const MOST_TEXT = 131072;

const TEXTS = /^(text\/|application\/(json|xml|javascript|yaml|toml|sql|x-sh|x-ndjson|xhtml\+xml)\b)/;

export function kindOf(contentType) {
  const bare = contentType.split(";")[0].trim().toLowerCase();
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

export function Preview({ bucket, object, versionId }) {
  const kind = kindOf(object.contentType);
  const found = useLoad(async (signal) => {
    if (!kind) return {};
    const purpose = kind === "text" ? "download" : "preview";
    const body = { bucket, key: object.key, versionId: versionId || null, purpose };
    const { url } = await call("POST", "tickets", { body, signal });
    const address = new URL(url, document.baseURI).href;
    return { address, text: kind === "text" ? await fetchText(address, signal) : "" };
  }, [object.etag]);
  return html`
    <${Loaded} of=${found}>
      ${({ address, text }) => html`
        <div class="preview">
          ${!kind && html`<p class="quiet">${say("object.noPreview", { type: object.contentType })}</p>`}
          ${kind === "text" && html`<pre tabindex="0" dir="auto">${text}</pre>`}
          ${kind === "text" && object.size > MOST_TEXT && html`
            <p class="quiet">${say("object.cut", { size: bytes(MOST_TEXT) })}</p>
          `}
          ${kind === "image" && html`<img src=${address} alt=${say("object.image")} />`}
          ${kind === "audio" && html`<audio src=${address} controls></audio>`}
          ${kind === "video" && html`<video src=${address} controls></video>`}
          ${kind === "pdf" && html`<iframe src=${address} title=${say("object.preview")}></iframe>`}
        </div>
      `}
    <//>
  `;
}
