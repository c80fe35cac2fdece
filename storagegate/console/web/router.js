// Where the page is: the fragment of the address, so that any prefix of the console works.

import { useEffect, useState } from "preact/hooks";

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function current() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return {
    path: path === "" ? [] : path.split("/").map(decode),
    query: Object.fromEntries(new URLSearchParams(query || "")),
  };
}

export function link(path, query) {
  const entries = Object.entries(query || {}).filter(([, value]) => value);
  const search = entries.length ? "?" + new URLSearchParams(entries) : "";
  return "#/" + path.map(encodeURIComponent).join("/") + search;
}

export function go(path, query, replace) {
  const target = link(path, query);
  if (target === location.hash) return;
  if (!replace) location.hash = target;
  else {
    history.replaceState(null, "", target);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}

export function useRoute() {
  const [route, setRoute] = useState(current);
  useEffect(() => {
    const changed = () => setRoute(current());
    addEventListener("hashchange", changed);
    // It may have changed since it was drawn.
    changed();
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
