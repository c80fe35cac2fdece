// JSON with its names and texts in colours, and with the members that matter marked.

import { html } from "./ui.js";

const STRING = /("(?:[^"\\]|\\.)*")/;
const MOST_CHARACTERS = 50000;

// A line whose strings are coloured: those before a colon are names.
const coloured = (line) => line.split(STRING).map((part, at, parts) => (at % 2
  ? html`<span class=${parts[at + 1].trimStart().startsWith(":") ? "jsonName" : "jsonText"}>${part}</span>` : part));

// `marked` are names of the members of the outermost object.
export function JSONLines({ text, marked = [] }) {
  if (text.length > MOST_CHARACTERS) return text;
  let member = "";
  return text.split("\n").map((line) => {
    const found = /^ {2}"(\w+)":|^[[{}\]]/.exec(line);
    if (found) member = found[1];
    return html`<span class=${marked.includes(member) ? "line isMarked" : "line"}>${coloured(line)}</span>`;
  });
}
