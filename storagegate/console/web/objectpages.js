// The rows of a folder, page by page: those near what is seen are kept, far ones are fetched again.

import { isBefore } from "./objectnames.js";

const KEPT_ROWS = 4000;
const AHEAD_ROWS = 300;

export const nameOf = (row) => (typeof row === "string" ? row : row[0]);

// Folders and objects of a page in the order of their names.
export function merged({ prefixes, objects }) {
  const rows = [];
  let at = 0;
  for (const prefix of prefixes) {
    while (at < objects.length && isBefore(objects[at][0], prefix)) rows.push(objects[at++]);
    rows.push(prefix);
  }
  while (at < objects.length) rows.push(objects[at++]);
  return rows;
}

// What rows are: {folders, objects, bytes}.
export function sumsOf(rows) {
  const found = { folders: 0, objects: 0, bytes: 0 };
  for (const row of rows) {
    if (typeof row === "string") found.folders += 1;
    else {
      found.objects += 1;
      found.bytes += row[1];
    }
  }
  return found;
}

export class ObjectPages {
  // `load(after, signal)` fetches a page; `first` is the one after `after`; `onChange` is called for others.
  constructor(load, after, first, onChange) {
    this.load = load;
    this.onChange = onChange;
    this.error = null;
    this.failed = null;
    this.pages = [];
    this.next = after;
    this.count = 0;
    this._add(after, first);
  }

  get isComplete() {
    return this.next === null;
  }

  // What all pages so far have: {folders, objects, bytes}.
  get sums() {
    const found = { folders: 0, objects: 0, bytes: 0 };
    for (const { sums } of this.pages) for (const name of Object.keys(found)) found[name] += sums[name];
    return found;
  }

  // The row at an index; undefined while it is not there.
  row(index) {
    const page = this._pageOf(index);
    return page && page.rows ? page.rows[index - page.first] : undefined;
  }

  // Fetch what is seen, and forget what is far from it.
  need(first, last) {
    for (const page of this.pages) {
      const end = page.first + page.count;
      if (end < first - KEPT_ROWS || page.first > last + KEPT_ROWS) page.rows = null;
      const isNear = end > first - AHEAD_ROWS && page.first < last + AHEAD_ROWS;
      if (isNear && !page.rows) this._fetch(page);
      else if (!isNear && page.aborter) page.aborter.abort();
    }
    if (last + AHEAD_ROWS >= this.count && !this.isComplete) this._more();
  }

  // The names of a range of rows, those that are forgotten, too. Rejects with an APIError.
  async names(first, last) {
    const found = [];
    for (const page of [...this.pages]) {
      if (page.first + page.count <= first || page.first > last) continue;
      const rows = page.rows || merged(await this.load(page.after, new AbortController().signal));
      for (let at = Math.max(0, first - page.first); at < page.count && page.first + at <= last; at += 1)
        if (rows[at]) found.push(nameOf(rows[at]));
    }
    return found;
  }

  // The index of a name among the rows that are here; -1 for another.
  indexOf(name) {
    for (const { rows, first } of this.pages) {
      const at = rows ? rows.findIndex((row) => nameOf(row) === name) : -1;
      if (at >= 0) return first + at;
    }
    return -1;
  }

  loadedRows() {
    return this.pages.flatMap((page) => page.rows || []);
  }

  retry() {
    const failed = this.failed;
    this.error = this.failed = null;
    if (failed && failed !== this) this._fetch(failed);
    else this._more();
  }

  close() {
    this.isClosed = true;
    for (const each of [this, ...this.pages]) if (each.aborter) each.aborter.abort();
  }

  _add(after, page) {
    const rows = merged(page);
    if (rows.length) this.pages.push({ after, rows, first: this.count, count: rows.length, last: page.next, sums: sumsOf(rows) });
    this.count += rows.length;
    this.next = page.next;
  }

  _pageOf(index) {
    let low = 0;
    let high = this.pages.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.pages[middle].first <= index) low = middle;
      else high = middle - 1;
    }
    return this.pages[low];
  }

  _more() {
    this._run(this, this.next, (page) => this._add(this.next, page));
  }

  _fetch(page) {
    this._run(page, page.after, (found) => this._replace(page, found));
  }

  // A page that was forgotten: names may have come and gone meanwhile.
  _replace(page, found) {
    let rows = merged(found);
    const { last } = page;
    if (last !== null) rows = rows.filter((row) => !isBefore(last, nameOf(row)));
    page.rows = rows;
    page.count = rows.length;
    page.sums = sumsOf(rows);
    if (found.next !== null && (last === null || isBefore(found.next, last))) {
      const rest = { after: found.next, rows: null, first: 0, count: 1, last, sums: sumsOf([]) };
      this.pages.splice(this.pages.indexOf(page) + 1, 0, rest);
      page.last = found.next;
    }
    this.count = 0;
    for (const each of this.pages) {
      each.first = this.count;
      this.count += each.count;
    }
  }

  async _run(owner, after, take) {
    if (owner.aborter || this.error || this.isClosed) return;
    const aborter = new AbortController();
    owner.aborter = aborter;
    try {
      const found = await this.load(after, aborter.signal);
      if (aborter.signal.aborted) return;
      take(found);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.error = error;
      this.failed = owner;
    } finally {
      owner.aborter = null;
      if (!this.isClosed) this.onChange();
    }
  }
}
