// The uploads of this page: what waits, what is sent, and what has failed.
//
//   waiting -> looking -> sending -> completing -> done
//                 any of them -> paused, failed; from both back to waiting
//
// At most three requests are in flight for all of them, so that the rest of the page has connections.
// A file of more than a part is a multipart upload. The server keeps by which file it was begun (size
// and date), so the same file goes on where it was, also in another page.

import { APIError, call, segment, sendFile, state, watch as watchSession } from "./api.js";

export const PART_BYTES = 8 << 20;

const MOST_REQUESTS = 3;
const MOST_TRIES = 8;
const LONGEST_WAIT_MS = 30000;

// Sources are read as long as fewer items than this are held that are not done.
const MOST_HELD = 1000;

const MOST_DONE = 200;
const SPEED_MS = 10000;
const REDRAW_MS = 250;
const PAGE = 1000;

const base = (bucket) => "buckets/" + segment(bucket);
const now = () => performance.now();
const isAborted = (error) => error.name === "AbortError";

class Item {
  constructor({ bucket, key, file, upload, done }) {
    Object.assign(this, { bucket, key, file, upload, onDone: done });
    this.size = file.size;
    this.state = "waiting";
    this.error = null;
    this.tries = 0;
    this.notBefore = 0;
    this.etags = null; // of each part that is stored
    this.next = 0; // the first part that may be missing
    this.stored = 0; // bytes of parts that are stored
    this.flying = new Map(); // part to {controller, sent}
    this.isWhole = file.size <= PART_BYTES;
  }

  get sent() {
    if (this.state === "done") return this.size;
    let bytes = this.stored;
    for (const each of this.flying.values()) bytes += each.sent;
    return Math.min(bytes, this.size);
  }

  get isOpen() {
    return ["waiting", "looking", "sending", "completing"].includes(this.state);
  }
}

class Uploads {
  constructor() {
    this.items = []; // in their order; what is done leaves it
    this.done = [];
    this.sources = [];
    this.inFlight = 0;
    this.holdUntil = 0;
    this.isPaused = false;
    this.watchers = new Set();
    this.samples = [];
    this.accessKey = state.session && state.session.accessKey;
    this.reset();
    watchSession(() => this.sessionChanged());
    addEventListener("beforeunload", (event) => {
      if (this.isRunning) event.preventDefault();
    });
  }

  reset() {
    this.totals = { files: 0, bytes: 0, doneFiles: 0, doneBytes: 0, counting: 0 };
  }

  get isRunning() {
    return this.sources.length > 0 || this.items.some((item) => item.isOpen);
  }

  get isHeld() {
    return this.isPaused || !state.online || state.ended || !state.session;
  }

  watch(watcher) {
    this.watchers.add(watcher);
    watcher();
    return () => this.watchers.delete(watcher);
  }

  changed() {
    if (this.drawing) return;
    this.drawing = setTimeout(() => {
      this.drawing = 0;
      for (const watcher of this.watchers) watcher();
    }, REDRAW_MS);
  }

  sessionChanged() {
    if (!state.session || (this.accessKey && state.session.accessKey !== this.accessKey)) {
      // The files are of the one who has signed out.
      for (const each of this.sources) each.isCancelled = true;
      for (const item of this.items) this.interrupt(item, "paused");
      Object.assign(this, { items: [], done: [], sources: [], isPaused: false, holdUntil: 0 });
      this.reset();
    }
    this.accessKey = state.session && state.session.accessKey;
    this.changed();
    this.pump();
  }

  // Add the files of a source. `place(file, path)` returns {bucket, key, upload}: the upload that is
  // known to be of this file, if one is; or null: then it is left out.
  add(source, place, done) {
    if (!this.isRunning && !this.items.length) this.reset();
    const entry = { files: source.files(), place, done, isReading: false };
    this.sources.push(entry);
    this.count(source, entry);
    this.pump();
  }

  async count(source, entry) {
    this.totals.counting += 1;
    const totals = this.totals;
    for await (const { file } of source.files()) {
      if (entry.isCancelled) break;
      if (file) {
        totals.files += 1;
        totals.bytes += file.size;
      }
      this.changed();
    }
    totals.counting -= 1;
    this.changed();
  }

  async read(entry) {
    if (entry.isReading || this.items.length >= MOST_HELD) return;
    entry.isReading = true;
    const { value, done } = await entry.files.next();
    entry.isReading = false;
    if (entry.isCancelled) return;
    if (done) this.sources = this.sources.filter((each) => each !== entry);
    else if (value.error) this.unreadable(value, entry);
    else {
      const placed = entry.place(value.file, value.path);
      if (placed) this.items.push(new Item({ ...placed, file: value.file, done: entry.done }));
      else {
        this.totals.files -= 1;
        this.totals.bytes -= value.file.size;
      }
    }
    this.changed();
    this.pump();
  }

  unreadable({ path, error }, entry) {
    const item = new Item({ ...entry.place({ name: path, size: 0 }, path), file: new File([], path) });
    Object.assign(item, { state: "failed", error, isUnreadable: true });
    this.items.push(item);
  }

  // Begin as many requests as there may be.
  pump() {
    clearTimeout(this.timer);
    if (this.sources.length) this.read(this.sources[0]);
    if (this.isHeld) return;
    const time = now();
    let wake = this.holdUntil > time ? this.holdUntil : Infinity;
    if (wake === Infinity)
      for (const item of this.items) {
        if (this.inFlight >= MOST_REQUESTS) break;
        if (item.notBefore > time) wake = Math.min(wake, item.notBefore);
        else this.begin(item);
      }
    if (wake < Infinity) this.timer = setTimeout(() => this.pump(), wake - time);
  }

  begin(item) {
    if (item.state === "waiting") {
      item.error = null;
      if (item.isWhole) this.run(item, 0, (flight) => this.sendWhole(item, flight));
      else if (item.etags) item.state = "sending";
      else this.run(item, 0, (flight) => this.look(item, flight));
    }
    while (item.state === "sending" && !item.isWhole && this.inFlight < MOST_REQUESTS) {
      const part = this.missing(item);
      if (part) this.run(item, part, (flight) => this.sendPart(item, part, flight));
      else {
        if (!item.flying.size) this.run(item, 0, (flight) => this.complete(item, flight));
        break;
      }
    }
  }

  missing(item) {
    while (item.next < item.etags.length && item.etags[item.next]) item.next += 1;
    for (let index = item.next; index < item.etags.length; index += 1)
      if (!item.etags[index] && !item.flying.has(index + 1)) return index + 1;
    return 0;
  }

  async run(item, part, act) {
    const flight = { controller: new AbortController(), sent: 0 };
    item.flying.set(part, flight);
    this.inFlight += 1;
    this.changed();
    try {
      await act(flight);
      item.tries = 0;
    } catch (error) {
      if (!isAborted(error)) await this.failed(item, error);
    }
    this.inFlight -= 1;
    if (item.flying.get(part) === flight) item.flying.delete(part);
    this.changed();
    this.pump();
  }

  progress(item, flight) {
    return (bytes) => {
      this.sample(bytes - flight.sent);
      flight.sent = bytes;
      this.changed();
    };
  }

  async sendWhole(item, flight) {
    item.state = "sending";
    const path = base(item.bucket) + "/objects/" + segment(item.key);
    const headers = { "Content-Type": item.file.type || "application/octet-stream" };
    await sendFile(path, item.file, {
      headers, signal: flight.controller.signal, progress: this.progress(item, flight),
    });
    this.finish(item);
  }

  // Find the upload that the same file has begun, or begin one.
  async look(item, flight) {
    item.state = "looking";
    const { signal } = flight.controller;
    const { lastModified: lastModifiedMs, type: contentType } = item.file;
    const upload = item.upload || (await findUpload(item, signal));
    if (upload) await this.readParts(item, upload, signal);
    else {
      const body = { key: item.key, contentType, size: item.size, lastModifiedMs };
      const made = await call("POST", base(item.bucket) + "/uploads", { body, signal });
      this.take(item, made);
    }
    if (item.state === "looking") item.state = "sending";
  }

  take(item, upload) {
    item.upload = upload;
    item.partBytes = upload.partBytes;
    item.etags = new Array(Math.ceil(item.size / item.partBytes)).fill("");
    item.next = 0;
    item.stored = 0;
  }

  async readParts(item, upload, signal) {
    const found = [];
    let after = 0;
    do {
      const path = base(item.bucket) + "/uploads/" + segment(upload.id);
      const page = await call("GET", path, { query: { after, limit: PAGE }, signal });
      found.push(...page.items);
      after = page.next;
    } while (after !== null);
    this.take(item, upload);
    for (const { number, size, etag } of found)
      if (number <= item.etags.length && size === partSize(item, number)) {
        item.etags[number - 1] = etag;
        item.stored += size;
      }
    this.totals.doneBytes += item.stored;
  }

  async sendPart(item, part, flight) {
    const path = base(item.bucket) + "/uploads/" + segment(item.upload.id) + "/parts/" + part;
    const start = (part - 1) * item.partBytes;
    const raw = item.file.slice(start, start + partSize(item, part));
    const made = await sendFile(path, raw, {
      signal: flight.controller.signal, progress: this.progress(item, flight),
    });
    item.etags[part - 1] = made.etag;
    item.stored += raw.size;
    this.totals.doneBytes += raw.size;
    flight.sent = 0;
  }

  async complete(item, flight) {
    item.state = "completing";
    const parts = item.etags.map((etag, index) => ({ number: index + 1, etag }));
    const path = base(item.bucket) + "/uploads/" + segment(item.upload.id) + "/complete";
    const body = { parts, size: item.size };
    await call("POST", path, { body, signal: flight.controller.signal });
    this.finish(item);
  }

  finish(item) {
    if (item.state === "cancelled") return;
    item.state = "done";
    item.etags = item.file = null;
    this.totals.doneFiles += 1;
    if (item.isWhole) this.totals.doneBytes += item.size;
    this.items = this.items.filter((each) => each !== item);
    this.done = [item, ...this.done].slice(0, MOST_DONE);
    if (item.onDone) item.onDone(item);
  }

  async failed(item, error) {
    if (!(error instanceof APIError)) console.error(error);
    if (!item.isOpen) return;
    if (error.status === 0 && !(await isReadable(item.file))) {
      // The browser tells a file that has changed from a lost connection by nothing else.
      error = new APIError(0, "FILE_CHANGED", "");
      return this.stop(item, error);
    }
    if (error.status === 404 && item.upload) {
      // The upload was ended elsewhere, so the file is begun anew.
      this.interrupt(item, "waiting");
      this.forgetParts(item);
      return undefined;
    }
    item.state = "waiting";
    item.error = error;
    if (error.status === 0 || error.status === 401) return undefined;
    const isBusy = error.status === 429 || error.status === 503;
    if (!(isBusy || error.status >= 500) || (item.tries += 1) > MOST_TRIES) return this.stop(item, error);
    const backoff = Math.min(1000 * 2 ** (item.tries - 1), LONGEST_WAIT_MS) * (0.5 + Math.random() / 2);
    const until = now() + Math.max(backoff, (error.retryAfter || 0) * 1000);
    if (isBusy) this.holdUntil = Math.max(this.holdUntil, until);
    else item.notBefore = until;
    return undefined;
  }

  stop(item, error) {
    this.interrupt(item, "failed");
    item.error = error;
  }

  forgetParts(item) {
    this.totals.doneBytes -= item.stored;
    Object.assign(item, { upload: null, etags: null, stored: 0, next: 0 });
  }

  interrupt(item, next) {
    item.state = next;
    for (const { controller } of item.flying.values()) controller.abort();
    item.flying.clear();
    this.changed();
  }

  pause(item) {
    if (item.isOpen) this.interrupt(item, "paused");
    this.pump();
  }

  resume(item) {
    if (item.state !== "paused" && item.state !== "failed") return;
    if (item.isUnreadable) return;
    Object.assign(item, { state: "waiting", tries: 0, notBefore: 0, error: null });
    this.pump();
  }

  // Remove an item; what the server has of it is dropped.
  cancel(item) {
    const { bucket, upload } = item;
    this.interrupt(item, "cancelled");
    this.items = this.items.filter((each) => each !== item);
    this.totals.files -= 1;
    this.totals.bytes -= item.size;
    this.totals.doneBytes -= item.stored;
    if (upload)
      call("DELETE", base(bucket) + "/uploads/" + segment(upload.id)).catch(() => null);
    this.pump();
  }

  pauseAll() {
    this.isPaused = true;
    for (const item of this.items) {
      if (item.state === "waiting" && !item.flying.size) continue;
      if (item.isOpen) this.interrupt(item, "waiting");
    }
    this.changed();
  }

  resumeAll() {
    this.isPaused = false;
    for (const item of this.items)
      if (item.state === "paused" || item.state === "failed") this.resume(item);
    this.changed();
    this.pump();
  }

  cancelAll() {
    for (const each of this.sources) each.isCancelled = true;
    this.sources = [];
    for (const item of [...this.items]) this.cancel(item);
    this.isPaused = false;
    this.reset();
    this.changed();
  }

  clear() {
    this.done = [];
    this.changed();
  }

  sample(bytes) {
    const time = now();
    this.samples.push([time, bytes]);
    while (this.samples.length && time - this.samples[0][0] > SPEED_MS) this.samples.shift();
  }

  // All in figures: {files, doneFiles, bytes, sent, perSecond, secondsLeft}; the last is null while unknown.
  figures() {
    const { files, bytes, doneFiles, doneBytes, counting } = this.totals;
    let flying = 0;
    for (const item of this.items) for (const each of item.flying.values()) flying += each.sent;
    const sent = Math.min(doneBytes + flying, bytes);
    const time = now();
    const recent = this.samples.filter(([at]) => time - at <= SPEED_MS);
    const seconds = recent.length ? Math.max((time - recent[0][0]) / 1000, 1) : 1;
    const perSecond = recent.reduce((sum, [, each]) => sum + Math.max(each, 0), 0) / seconds;
    const isKnown = perSecond > 0 && !counting && !this.isHeld;
    const secondsLeft = isKnown ? (bytes - sent) / perSecond : null;
    const failed = this.items.filter((item) => item.state === "failed").length;
    return { files, doneFiles, bytes, sent, perSecond, secondsLeft, failed, counting };
  }
}

const partSize = (item, part) =>
  Math.min(item.partBytes, item.size - (part - 1) * item.partBytes);

async function isReadable(file) {
  try {
    await file.slice(0, 1).arrayBuffer();
    return true;
  } catch {
    return false;
  }
}

export const isOf = (upload, file) =>
  upload.size === file.size && upload.lastModifiedMs === file.lastModified;

async function findUpload({ bucket, key, file }, signal) {
  try {
    const query = { prefix: key, limit: PAGE };
    const { items } = await call("GET", base(bucket) + "/uploads", { query, signal });
    const same = items.filter((each) => each.key === key && isOf(each, file));
    return same.length ? same.reduce((a, b) => (b.startedMs > a.startedMs ? b : a)) : null;
  } catch (error) {
    // A key may be allowed to write and not to list.
    if (error.status === 403) return null;
    throw error;
  }
}

export const uploads = new Uploads();
