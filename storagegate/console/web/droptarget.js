// What uploads to a place: two buttons, and the whole window for what is dropped.

import { useEffect, useRef, useState } from "preact/hooks";
import { fromChoice, fromDrop } from "./filewalk.js";
import { addTexts, say } from "./messages.js";
import { announce, Button, Empty, html } from "./ui.js";

addTexts({
  "transfers.files": "Upload files",
  "transfers.folder": "Upload folder",
  "transfers.drop": "Drop to upload to {place}",
  "transfers.dropText": "Files and whole folders. An object of the same name is replaced.",
  "transfers.dropKept": "Files and whole folders. An object of the same name becomes an older version.",
});

const RELOAD_MS = 1000;

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

// `add(source)` gets what was dropped or chosen; `place` is how the target is called; `keeps` says whether it keeps versions.
export function DropButtons({ add, place, keeps }) {
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
    <${Button} icon="folder" kind="shrinks" aria-label=${say("transfers.folder")} onClick=${() => folder.current.click()}>${say("transfers.folder")}<//>
    <${Button} icon="upload" kind="primary" onClick=${() => files.current.click()}>${say("transfers.files")}<//>
    ${isOver && html`<div class="dropping"><${Empty} title=${say("transfers.drop", { place })} text=${say(keeps ? "transfers.dropKept" : "transfers.dropText")} /></div>`}
  `;
}

// The buttons of a folder; what sends is fetched with the first file. `onDone` is called, not more often than once a second, when a file is there.
export function DropTarget({ bucket, prefix, keeps, onDone }) {
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
    import("./upload.js").then(({ uploads }) => {
      uploads.add(source, (file, path) => ({ bucket, key: prefix + path }), reload);
      dispatchEvent(new Event("uploads"));
    }, (error) => announce(error.message));
  };
  return html`<${DropButtons} add=${add} place=${bucket + "/" + prefix} keeps=${keeps} />`;
}
