// What happens, live: a stream of events for as long as a component is there.

import { useEffect, useRef, useState } from "./hooks.ceebd18b27.js";
import { endSession, openStream, state } from "./api.3f20c599c2.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10000;

async function read(body, received) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const found = /^event: (\w+)\ndata: (.*)$/.exec(part);
      if (found) received(found[1], JSON.parse(found[2]));
    }
  }
}

async function follow(query, received, changed, signal) {
  let wait = FIRST_WAIT_MS;
  while (!signal.aborted) {
    let isOpen = false;
    try {
      const response = await openStream("events", { query, signal });
      isOpen = true;
      changed({ open: true, error: null, atMs: Infinity });
      wait = FIRST_WAIT_MS;
      await read(response.body, received);
      changed({ open: false, error: null, atMs: Date.now() });
    } catch (error) {
      if (signal.aborted) return;
      // A stream that is cut is opened again; what is refused for good is not.
      changed({ open: false, error: error.status ? error : null, ...(isOpen && { atMs: Date.now() }) });
      if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
    }
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

const ended = (found) => ({ ...found, open: false, atMs: found.open ? Date.now() : found.atMs });

// `received(name, document)` is called with each event. Returns {open, error, atMs, reload}: `atMs` is
// when the stream was last open, and is infinite as long as it is, and 0 before it ever was.
export function useEvents(query, received) {
  const [found, setFound] = useState({ open: false, error: null, atMs: 0 });
  const [round, setRound] = useState(0);
  const latest = useRef(received);
  latest.current = received;
  useEffect(() => {
    if (state.ended) return undefined;
    const controller = new AbortController();
    const take = (name, document) => {
      if (controller.signal.aborted) return;
      if (name === "signedout") {
        controller.abort();
        endSession();
      } else latest.current(name, document);
    };
    const changed = (values) => controller.signal.aborted || setFound((before) => ({ ...before, ...values }));
    follow(query, take, changed, controller.signal);
    return () => {
      controller.abort();
      setFound(ended);
    };
  }, [JSON.stringify(query), state.session && state.session.expiresMs, state.ended, round]);
  return { ...found, reload: () => setRound((before) => before + 1) };
}
