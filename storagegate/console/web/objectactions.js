// Where objects are in the API, and how they are downloaded, alone or as a zip.

import { call, segment } from "./api.js";

export const base = (bucket) => "buckets/" + segment(bucket);

export const objectPath = (bucket, key) => base(bucket) + "/objects/" + segment(key);

// Let the browser fetch what a ticket is for, as a file.
export async function download(ticket, name) {
  const { url } = await call("POST", "tickets", { body: ticket });
  const anchor = document.createElement("a");
  anchor.href = new URL(url, document.baseURI).href;
  anchor.download = name;
  anchor.click();
}

// A selection is {all, names}: names of folders end with a slash.
export function downloadSelection(bucket, prefix, { all, names }) {
  const keys = [...names].filter((name) => !name.endsWith("/"));
  const prefixes = [...names].filter((name) => name.endsWith("/"));
  if (!all && keys.length === 1 && !prefixes.length)
    return download({ bucket, key: keys[0], purpose: "download" }, keys[0].split("/").pop());
  const what = all ? { prefix } : { keys, prefixes };
  const folder = prefix.slice(0, prefix.lastIndexOf("/") + 1);
  return download({ bucket, purpose: "zip", base: folder, ...what }, "");
}
