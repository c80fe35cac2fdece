// The rows of objects: the grid, its keys, and which rows are selected.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { typeOf } from "./filetypes.js";
import { bytes, date, number, say } from "./messages.js";
import { shown, shownBelow } from "./objectnames.js";
import { nameOf, sumsOf } from "./objectpages.js";
import { announce, html, Icon } from "./ui.js";
import { useRowHeight, VirtualList } from "./virtuallist.js";

const MOST_SELECTED = 10000;
const NOTHING = { all: false, names: new Set() };
export const ROW_PX = 36;
export const CARD_PX = 56;
const HEAD_PX = 32;

export const isFolder = (row) => typeof row === "string";

// Rows that are all here, with the interface of `ObjectPages`.
export class ObjectArray {
  constructor(rows, isComplete = true) {
    this.rows = rows;
    this.isComplete = isComplete;
    this.error = null;
  }

  get count() {
    return this.rows.length;
  }

  get sums() {
    return sumsOf(this.rows);
  }

  row(index) {
    return this.rows[index];
  }

  need() {}

  async names(first, last) {
    return this.rows.slice(first, last + 1).map(nameOf);
  }

  indexOf(name) {
    return this.rows.findIndex((row) => nameOf(row) === name);
  }

  loadedRows() {
    return this.rows;
  }
}

const KEYS = {
  size: (row, sizes) => (isFolder(row) ? (sizes && sizes.get(row)) || -1 : row[1]),
  type: (row) => (isFolder(row) ? "" : typeOf(row[0])[1]),
  modified: (row) => (isFolder(row) ? -1 : row[2]),
  class: (row) => (isFolder(row) ? "" : row[4]),
};

const names = new Intl.Collator(undefined, { numeric: true });

// Rows in another order than the store's, folders first; names as people sort them.
export function sorted(rows, [column, sign], sizes) {
  const key = KEYS[column] || nameOf;
  const compare = column === "name" ? names.compare : (one, other) => (one < other ? -1 : one > other ? 1 : 0);
  const indexed = rows.map((row, index) => [row, key(row, sizes), index]);
  indexed.sort(([a, one, i], [b, other, j]) => isFolder(b) - isFolder(a) || sign * compare(one, other) || i - j);
  return indexed.map(([row]) => row);
}

// Which rows are selected: [selection, {only, toggle, range, all, clear, keep}].
export function useSelection(pages) {
  const [selection, setSelection] = useState(NOTHING);
  const choose = (some) => {
    if (some.size > MOST_SELECTED) announce(say("objects.selectTooMany", { count: number(MOST_SELECTED) }));
    else setSelection({ all: false, names: some });
  };
  return [selection, {
    only: (name) => choose(new Set([name])),
    toggle: (name) => {
      const some = new Set(selection.names);
      if (!some.delete(name)) some.add(name);
      choose(some);
    },
    range: async (one, other) => {
      const [first, last] = [Math.min(one, other), Math.max(one, other)];
      if (last - first >= MOST_SELECTED) choose({ size: last - first + 1 });
      else choose(new Set(await pages.names(first, last)));
    },
    loaded: () => choose(new Set(pages.loadedRows().map(nameOf))),
    all: () => setSelection({ all: true, names: new Set() }),
    clear: () => setSelection(NOTHING),
    keep: (some) => choose(new Set(some)),
  }];
}

const className = (storageClass) => {
  const text = storageClass.toLowerCase().replaceAll("_", " ");
  return text.slice(0, 1).toUpperCase() + text.slice(1);
};

// The bytes of a folder, if they were added up.
function folderSize(row, measured) {
  if (!measured) return "–";
  const text = bytes(measured.sizes.get(row) || 0);
  return measured.state === "done" ? text : "≥ " + text;
}

// A name in which what was searched for is marked.
function Marked({ text, wanted }) {
  const at = wanted ? text.toLowerCase().indexOf(wanted.toLowerCase()) : -1;
  if (at < 0) return text;
  const end = at + wanted.length;
  return html`${text.slice(0, at)}<mark>${text.slice(at, end)}</mark>${text.slice(end)}`;
}

function Row({ index, top, height, row, measured, folder, wanted, href, isActive, isSelected, isOpen, onPointer }) {
  const style = { top: top + "px", height: height + "px" };
  if (row === undefined)
    return html`<div role="row" class="listRow" aria-rowindex=${index + 2} style=${style}>
      <span role="gridcell"></span><span role="gridcell" class="quiet">…</span></div>`;
  const name = nameOf(row);
  const [icon, type] = isFolder(row) ? ["folder", say("objects.folder")] : typeOf(name);
  return html`
    <div role="row" id=${"row-" + index} class=${"listRow" + (isActive ? " active" : "") + (isOpen ? " isOpen" : "")}
      aria-rowindex=${index + 2} aria-selected=${isSelected ? "true" : "false"} style=${style}
      onClick=${(event) => onPointer(event, index, name)}>
      <span role="gridcell" class="pick" aria-label=${say("objects.select", { name: shown(name) })}>
        <span class="tick"></span></span>
      <span role="gridcell" class=${isFolder(row) ? "label isFolder" : "label"}><a href=${href(row)} tabindex="-1">
        <${Icon} name=${icon} /><bdi><${Marked} text=${shownBelow(name, folder)} wanted=${wanted} /></bdi></a></span>
      <span role="gridcell" class="number">${isFolder(row) ? folderSize(row, measured) : bytes(row[1])}</span>
      <span role="gridcell" class="quiet hidePhone hideMid hideDrawer">${type}</span>
      <span role="gridcell" class="when">${isFolder(row) ? "–" : date(row[2])}</span>
      <span role="gridcell" class="quiet hidePhone hideMid hideDrawer">${isFolder(row) ? "" : className(row[4])}</span>
      <span role="gridcell" class="ends"><button type="button" class="button bare only small more" tabindex="-1"
        aria-label=${say("objects.actionsOf", { name: shown(name) })}><${Icon} name="more" /></button></span>
    </div>
  `;
}

const COLUMNS = [["name", "label"], ["size", "number"], ["type", "hidePhone hideMid hideDrawer"],
  ["modified", "hidePhone"], ["class", "hidePhone hideMid hideDrawer"]];

function Heads({ sort, onSort, onAll, picked }) {
  const [column, sign] = sort;
  return html`
    <div role="row" class="listHead" aria-rowindex="1">
      <span role="columnheader" class="pick" onClick=${onAll}><span class="hidden">${say("objects.selection")}</span>
        <span class=${"tick " + picked}></span></span>
      ${COLUMNS.map(([name, kind]) => html`
        <span role="columnheader" class=${kind} aria-sort=${column === name ? (sign > 0 ? "ascending" : "descending") : undefined}>
          ${onSort
            ? html`<button type="button" class="sort" onClick=${() => onSort([name, column === name ? -sign : 1])}>
                ${say("objects.column." + name)}${column === name && html`<${Icon} name=${sign > 0 ? "sortAsc" : "chevronDown"} />`}</button>`
            : say("objects.column." + name)}
        </span>
      `)}
      <span role="columnheader"><span class="hidden">${say("app.actions")}</span></span>
    </div>
  `;
}

// `acts` are {open(row), menu(row, element), up(), rename(row), remove(names)}; those absent are not offered.
export function ObjectGrid({ label, folder, wanted, pages, measured, selection, select, href, opened, sort, onSort, acts }) {
  const [active, setActive] = useState(0);
  const anchor = useRef(0);
  const handle = useRef(null);
  const height = useRowHeight(ROW_PX, CARD_PX);
  const onSpan = useMemo(() => (first, last) => pages.need(first, last), [pages]);
  useEffect(() => {
    if (document.activeElement === document.body || document.activeElement.id === "content")
      handle.current.focus();
  }, []);
  function move(index, isRange) {
    const to = Math.max(0, Math.min(index, pages.count - 1));
    setActive(to);
    handle.current.reveal(to);
    if (isRange) select.range(anchor.current, to);
    else anchor.current = to;
  }
  function pointed(event, index, name) {
    const isAdding = event.ctrlKey || event.metaKey;
    const button = event.target.closest("button");
    if (button) {
      setActive(index);
      acts.menu(pages.row(index), button);
      return;
    }
    if (event.target.closest("a") && !event.shiftKey && !isAdding) return;
    event.preventDefault();
    setActive(index);
    // The ring of the active row is for the keyboard.
    event.target.closest("[role=grid]").dataset.pointed = "";
    if (event.shiftKey) select.range(anchor.current, index);
    else if (isAdding || event.target.closest(".pick")) select.toggle(name);
    else select.only(name);
    if (!event.shiftKey) anchor.current = index;
  }
  function pressed(event) {
    const { page } = handle.current;
    delete event.currentTarget.dataset.pointed;
    const row = pages.row(active);
    const isControl = event.ctrlKey || event.metaKey;
    const steps = {
      ArrowDown: () => move(active + 1, event.shiftKey),
      ArrowUp: () => move(active - 1, event.shiftKey),
      PageDown: () => move(active + page(), event.shiftKey),
      PageUp: () => move(active - page(), event.shiftKey),
      Home: () => move(0, event.shiftKey),
      End: () => move(pages.count - 1, event.shiftKey),
      Enter: () => row !== undefined && (location.hash = href(row)),
      " ": () => row !== undefined && select.toggle(nameOf(row)),
      a: isControl && select.loaded,
      Escape: select.clear,
      Backspace: acts.up,
      ContextMenu: () => row !== undefined && acts.menu(row, document.querySelector("#row-" + active + " .more")),
      F2: acts.rename && (() => row !== undefined && acts.rename(row)),
      Delete: acts.remove && (() => {
        if (!selection.all && !selection.names.size && row !== undefined) select.only(nameOf(row));
        acts.remove();
      }),
    };
    const step = steps[event.key];
    if (!step || event.altKey || event.target !== event.currentTarget) return;
    event.preventDefault();
    step();
  }
  const picked = selection.all || (pages.isComplete && selection.names.size >= pages.count) ? "isAll" : selection.names.size ? "isSome" : "";
  const draw = (index, top) => {
    const row = pages.row(index);
    return html`<${Row} key=${index} index=${index} top=${top} height=${height} row=${row} measured=${measured} folder=${folder} wanted=${wanted} href=${href}
      isActive=${index === active} onPointer=${pointed} isOpen=${row !== undefined && opened === nameOf(row)}
      isSelected=${selection.all || (row !== undefined && selection.names.has(nameOf(row)))} />`;
  };
  return html`
    <${VirtualList} key=${height} count=${pages.count} row=${draw} height=${height} handle=${handle} onSpan=${onSpan} role="grid"
      head=${html`<${Heads} sort=${sort} onSort=${onSort} picked=${picked}
        onAll=${() => (selection.all || selection.names.size ? select.clear() : select.loaded())} />`} headHeight=${HEAD_PX}
      aria-label=${label} aria-multiselectable="true"
      aria-rowcount=${pages.isComplete ? pages.count + 1 : -1} aria-activedescendant=${pages.count ? "row-" + active : undefined}
      onKeyDown=${pressed} />
  `;
}
