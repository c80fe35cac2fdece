// The uploads of this page in a corner, which stays while pages change: failures first.

import { useEffect, useState } from "preact/hooks";
import { typeOf } from "./filetypes.js";
import { bytes, number, say } from "./messages.js";
import { shown } from "./objectnames.js";
import { link } from "./router.js";
import { stateOf } from "./transferstates.js";
import { html, Icon, IconButton } from "./ui.js";
import { percent, useUploads } from "./uploadstate.js";

const SHOWN = 20;
const CLOSE_MS = 6000;

const RANK = { failed: 0, sending: 1, completing: 1, looking: 1, paused: 2, waiting: 3, done: 4 };

const Item = ({ item, uploads }) => html`
  <li>
    <${Icon} name=${{ failed: "error", done: "ok" }[item.state] || typeOf(item.key)[0]} />
    <span><bdi>${shown(item.key)}</bdi><small class=${item.state === "failed" ? "bad" : ""}>${bytes(item.size)} · ${stateOf(item)}</small>
      ${item.isOpen && item.sent > 0 && html`<progress max=${item.size} value=${item.sent} aria-label=${shown(item.key)}></progress>`}</span>
    ${item.state === "failed" && !item.isUnreadable
      ? html`<${IconButton} icon="retry" kind="small" label=${say("app.retry")} onClick=${() => uploads.resume(item)} />`
      : item.state !== "done" && html`<${IconButton} icon="close" kind="small" label=${say("app.cancel")} onClick=${() => uploads.cancel(item)} />`}
  </li>
`;

export function Tray() {
  const uploads = useUploads();
  const [isOpen, setIsOpen] = useState(true);
  const { files, doneFiles, bytes: total, sent, failed, perSecond } = uploads.figures();
  const isOver = !uploads.isRunning && !failed;
  // It is one line again when there is no more to see.
  useEffect(() => {
    if (!isOver) return setIsOpen(true);
    const timer = setTimeout(setIsOpen, CLOSE_MS, false);
    return () => clearTimeout(timer);
  }, [isOver]);
  const all = [...uploads.items, ...uploads.done];
  if (!all.length && !uploads.sources.length) return null;
  const some = all.slice(0, 1000).sort((one, other) => RANK[one.state] - RANK[other.state]).slice(0, SHOWN);
  const title = failed
    ? say("transfers.failed", { count: number(failed) })
    : isOver ? say(files === 1 ? "transfers.overOne" : "transfers.over", { count: number(files) }) : say("transfers.brief", { done: number(doneFiles), files: number(files), percent: percent(sent, total) });
  return html`
    <section class="tray" aria-label=${say("transfers.list")}>
      <header>
        <h2 class="fill" role="status">${title}</h2>
        ${uploads.isRunning && html`<${IconButton} icon=${uploads.isPaused ? "play" : "pause"} kind="small"
          label=${say(uploads.isPaused ? "transfers.resumeAll" : "transfers.pauseAll")}
          onClick=${() => (uploads.isPaused ? uploads.resumeAll() : uploads.pauseAll())} />`}
        <${IconButton} icon="chevronDown" kind="small" label=${say("transfers.details")} aria-expanded=${isOpen} onClick=${() => setIsOpen(!isOpen)} />
        ${!uploads.isRunning && html`<${IconButton} icon="close" kind="small" label=${say("app.close")} onClick=${() => {
          uploads.clear();
          if (failed) uploads.cancelAll();
        }} />`}
      </header>
      ${isOpen && html`
        <div class="traySum"><progress max=${total || 1} value=${total ? sent : 1} aria-label=${say("transfers.progress")}></progress>
          <div class="row"><small>${say("transfers.sent", { sent: bytes(sent), bytes: bytes(total) })}${perSecond > 0 && !isOver
            && " · " + say("transfers.speed", { speed: bytes(perSecond) })}</small>
            <a href=${link(["transfers"])}>${say("transfers.show")}</a></div></div>
        <ul>${some.map((item) => html`<${Item} key=${item.bucket + "/" + item.key} item=${item} uploads=${uploads} />`)}</ul>
      `}
    </section>
  `;
}
