// Comma-separated values as a table: a few rows and columns of what may be anything, as text only.

import { addTexts, number, say } from "./messages.js";
import { html } from "./ui.js";

addTexts({
  "table.all": "{count} rows",
  "table.some": "The first {count} rows",
  "table.of": "The first {count} of {all} rows",
  "table.columns": "{count} more columns",
  "table.none": "No rows",
  "table.asText": "Show as text",
  "table.asTable": "Show as table",
});

const MOST_ROWS = 50;
const MOST_COLUMNS = 20;
const MOST_CELL = 120;
const DELIMITERS = [",", ";", "\t", "|"];

// The delimiter that the first line has most of.
function delimiterOf(text) {
  const [line] = text.split(/\r?\n/, 1);
  const count = (each) => line.split(each).length;
  return DELIMITERS.reduce((best, each) => (count(each) > count(best) ? each : best));
}

// Rows of cells (RFC 4180). The last row of a text that goes on is left out, for it may be cut.
export function parseRows(text, isWhole) {
  const delimiter = delimiterOf(text);
  const rows = [];
  let row = [];
  let cell = "";
  let isQuoted = false;
  const source = text.replace(/^\ufeff/, "");
  for (let at = 0; at < source.length; at += 1) {
    const each = source[at];
    if (isQuoted) {
      if (each !== '"') cell += each;
      else if (source[at + 1] === '"') {
        cell += each;
        at += 1;
      } else isQuoted = false;
    } else if (each === '"' && cell === "") isQuoted = true;
    else if (each === delimiter) {
      row.push(cell);
      cell = "";
    } else if (each === "\n") {
      row.push(cell.replace(/\r$/, ""));
      rows.push(row);
      row = [];
      cell = "";
    } else cell += each;
  }
  if (isWhole && (cell || row.length)) rows.push([...row, cell]);
  return rows;
}

const NUMBER = /^-?[\d.,'\u00a0 ]*\d%?$/;

const cut = (cell) => (cell.length > MOST_CELL ? cell.slice(0, MOST_CELL) + "…" : cell);

export function Table({ text, isWhole, children }) {
  const [head, ...all] = parseRows(text, isWhole);
  if (!head) return html`<p class="quiet">${say("table.none")}</p>`;
  const rows = all.slice(0, MOST_ROWS);
  const width = Math.min(MOST_COLUMNS, Math.max(head.length, ...rows.map((row) => row.length)));
  const columns = Array.from({ length: width }, (_, at) => at);
  const isNumber = columns.map((at) => rows.length > 0 && rows.every((row) => !row[at] || NUMBER.test(row[at])));
  const kind = (at) => (isNumber[at] ? "number" : "");
  const more = Math.max(0, ...[head, ...rows].map((row) => row.length)) - width;
  const values = { count: number(rows.length), all: number(all.length) };
  return html`
    <div class="sheet" tabindex="0" role="region" aria-label=${say(isWhole ? "table.all" : "table.some", values)}><table>
      <thead><tr>${columns.map((at) => html`<th scope="col" class=${kind(at)}><bdi>${cut(head[at] || "")}</bdi></th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${columns.map((at) => html`<td class=${kind(at)}><bdi>${cut(row[at] || "")}</bdi></td>`)}</tr>`)}</tbody>
    </table></div>
    <p class="previewFoot"><span class="quiet">${say(!isWhole ? "table.some" : rows.length < all.length ? "table.of" : "table.all", values)}
      ${more > 0 && " · " + say("table.columns", { count: number(more) })}</span><span class="fill"></span>${children}</p>
  `;
}
