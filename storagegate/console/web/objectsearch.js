// Names that contain a text: a scan of all names below a folder, which has a bound and can be stopped.

import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "./api.js";
import { addTexts, number, say } from "./messages.js";
import { base } from "./objectactions.js";
import { ObjectArray } from "./objectgrid.js";
import { ObjectList } from "./objectlist.js";
import { Button, Empty, html, Problem } from "./ui.js";

addTexts({
  "objects.typeToFind": "Type a part of a name",
  "objects.scan.scanning": "{scanned} names searched, {count} found…",
  "objects.scan.stopped": "Stopped after {scanned} names, {count} found",
  "objects.scan.bounded": "The first {count} results, of {scanned} names. Search in a folder, or for a longer part.",
  "objects.scan.done": "{scanned} names searched, {count} found",
});

const LIMIT = 1000;
const MOST_SCANNED = 1000000;
const MOST_FOUND = 5000;
const DELAY_MS = 250;

// {rows, scanned, state, error, stop}; the state is "idle", "scanning", "stopped", "bounded" or "done".
function useScan(bucket, folder, wanted, round) {
  const [found, setFound] = useState({ rows: new ObjectArray([]), scanned: 0, state: "idle", error: null });
  const aborter = useRef(null);
  useEffect(() => {
    const controller = new AbortController();
    aborter.current = controller;
    const rows = [];
    let scanned = 0;
    const show = (state, error = null) =>
      setFound({ rows: new ObjectArray([...rows], state === "done"), scanned, state, error });
    async function scan() {
      const text = wanted.toLowerCase();
      let after = "";
      while (after !== null) {
        const page = await call("GET", base(bucket) + "/objects", {
          query: { prefix: folder, limit: LIMIT, after }, signal: controller.signal,
        });
        scanned += page.objects.length;
        rows.push(...page.objects.filter(([name]) => name.slice(folder.length).toLowerCase().includes(text)));
        after = page.next;
        if (after !== null && (scanned >= MOST_SCANNED || rows.length >= MOST_FOUND)) return show("bounded");
        show(after === null ? "done" : "scanning");
      }
      return undefined;
    }
    if (!wanted) {
      show("idle");
      return undefined;
    }
    // The next letter may come at once.
    const timer = setTimeout(() => {
      show("scanning");
      scan().catch((error) => show("stopped", error.name === "AbortError" ? null : error));
    }, DELAY_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [bucket, folder, wanted, round]);
  return { ...found, stop: () => aborter.current.abort() };
}

export function ObjectSearch({ bucket, folder, wanted, reload, ...rest }) {
  const [round, setRound] = useState(0);
  const { rows, scanned, state, error, stop } = useScan(bucket, folder, wanted, round);
  // How many names a folder has is not known.
  const most = !folder && rest.info ? rest.info.objects - (rest.info.older || 0) : 0;
  const values = { scanned: number(scanned), count: number(rows.count) };
  return html`
    <${ObjectList} ...${rest} bucket=${bucket} folder=${folder} prefix=${folder} pages=${rows} sort=${["", 1]} isSearch wanted=${wanted}
      reload=${() => setRound((before) => before + 1)}
      between=${state !== "idle" && html`<div class="notice" role="status">
        <span class="fill">${say("objects.scan." + state, values)}
          ${state === "scanning" && html`<progress max=${most || undefined} value=${most ? scanned : undefined} aria-label=${say("objects.contains")}></progress>`}</span>
        ${state === "scanning" && html`<${Button} kind="small" onClick=${stop}>${say("objects.stop")}<//>`}</div>`}
      empty=${state !== "scanning" && html`<${Empty} title=${say(wanted ? "objects.emptyFound" : "objects.typeToFind")} />`} />
    ${error && html`<${Problem} error=${error} retry=${() => setRound((before) => before + 1)} />`}
  `;
}
