// What uploads to a place: two buttons, and the whole window for what is dropped.

import { useEffect, useRef, useState } from "./hooks.ceebd18b27.js";
import { fromChoice, fromDrop } from "./filewalk.bf74a1dfef.js";
import { number, say } from "./messages.5d7ca40ed1.js";
import { link } from "./router.dcba0dcacc.js";
import "./transfertexts.b0cf30c988.js";
import { announce, Button, html } from "./ui.7967bae88c.js";
import { uploads } from "./upload.3ea841703c.js";

const RELOAD_MS = 1000;

const percents = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 0 });

export const percent = (part, whole) => percents.format(whole ? Math.floor((part / whole) * 100) / 100 : 1);

// Draw again with each change of the uploads.
export function useUploads() {
  const [, redraw] = useState(0);
  useEffect(() => uploads.watch(() => redraw((round) => round + 1)), []);
  return uploads;
}

const hasFiles = (event) => event.dataTransfer && event.dataTransfer.types.includes("Files");

function useDrop(drop) {
  const [isOver, setIsOver] = useState(false);
  const latest = useRef(drop);
  latest.current = drop;
  useEffect(() => {
    let timer = 0;
    const over = (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = "copy";
      setIsOver(true);
      // There is no event that comes for certain when the pointer has left the window.
      clearTimeout(timer);
      timer = setTimeout(() => setIsOver(false), 500);
    };
    const dropped = (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setIsOver(false);
      latest.current(fromDrop(event.dataTransfer));
    };
    addEventListener("dragover", over);
    addEventListener("drop", dropped);
    return () => {
      clearTimeout(timer);
      removeEventListener("dragover", over);
      removeEventListener("drop", dropped);
    };
  }, []);
  return isOver;
}

// Ask for files to upload, as the button does.
export const chooseFiles = () => document.getElementById("files").click();

// `add(source)` gets what was dropped or chosen; `place` is how the target is called.
export function DropButtons({ add, place }) {
  const files = useRef();
  const folder = useRef();
  const isOver = useDrop(add);
  const chosen = (event) => {
    if (event.target.files.length) add(fromChoice(event.target.files));
    event.target.value = "";
  };
  return html`
    <input id="files" ref=${files} type="file" multiple class="hidden" tabindex="-1" aria-label=${say("transfers.files")}
      onChange=${chosen} />
    <input ref=${folder} type="file" webkitdirectory class="hidden" tabindex="-1"
      aria-label=${say("transfers.folder")} onChange=${chosen} />
    <${Button} icon="folder" onClick=${() => folder.current.click()}>${say("transfers.folder")}<//>
    <${Button} icon="add" kind="primary" onClick=${() => files.current.click()}>${say("transfers.files")}<//>
    ${isOver && html`<div class="dropping"><p>${say("transfers.drop", { place })}</p></div>`}
  `;
}

// The buttons of a folder. `onDone` is called, not more often than once a second, when a file is there.
export function DropTarget({ bucket, prefix, onDone }) {
  const all = useUploads();
  const latest = useRef(onDone);
  const timer = useRef(0);
  latest.current = onDone;
  useEffect(() => () => clearTimeout(timer.current), []);
  const done = useRef(false);
  useEffect(() => () => {
    done.current = true;
  }, []);
  const reload = () => {
    if (timer.current || done.current) return;
    latest.current();
    timer.current = setTimeout(() => {
      timer.current = 0;
      if (!done.current) latest.current();
    }, RELOAD_MS);
  };
  const add = (source) => {
    uploads.add(source, (file, path) => ({ bucket, key: prefix + path }), reload);
    announce(say("transfers.added"));
  };
  const { files, doneFiles, sent, bytes } = all.figures();
  return html`
    ${all.isRunning && html`<a href=${link(["transfers"])} aria-label=${say("transfers.show")}>${say("transfers.brief", {
      done: number(doneFiles), files: number(files), percent: percent(sent, bytes),
    })}</a>`}
    <${DropButtons} add=${add} place=${bucket + "/" + prefix} />
  `;
}
