// The session and the calls of the API.
//
// A session has two halves: a cookie that scripts cannot read, and a token that each call sends.
// The token is kept by the tab, and handed to other tabs of the console by a channel.

const TOKEN = "storagegate-token";
const FIELD = "X-Console-Token";
// Whether some tab has signed in and none has signed out since.
const OPEN = "storagegate-open";
const BASE = new URL("api/v1/", document.baseURI);
const ROLES = ["none", "auditor", "admin", "root"];
const HAND_OVER_MS = 200;

export class APIError extends Error {
  constructor(status, code, message, details, trace) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details || {};
    this.trace = trace;
  }
}

// What is the same for all of the page; `refused` is the error of an issuer. Its watchers draw it.
export const state = { session: null, ended: false, online: true, ready: false, refused: null };
const watchers = new Set();

// Calls it at once, for what has changed between the first drawing and the effect that comes after it.
export function watch(watcher) {
  watchers.add(watcher);
  watcher();
  return () => watchers.delete(watcher);
}

function change(values) {
  Object.assign(state, values);
  for (const watcher of watchers) watcher();
}

export const has = (role) =>
  state.session !== null && ROLES.indexOf(state.session.role) >= ROLES.indexOf(role);

export const rolesUpTo = (role) => ROLES.slice(0, Math.min(ROLES.indexOf(role), 2) + 1);

const channel = new BroadcastChannel("storagegate " + BASE.pathname);

channel.onmessage = ({ data }) => {
  const token = sessionStorage.getItem(TOKEN);
  if (data.kind === "wanted" && token && state.session) channel.postMessage({ kind: "token", token });
  else if (data.kind === "token" && !state.session) resume(data.token);
  else if (data.kind === "signedOut" && state.session) forget(false);
};

function forget(ended) {
  sessionStorage.removeItem(TOKEN);
  if (!ended) localStorage.removeItem(OPEN);
  change(ended ? { ended: true } : { session: null, ended: false });
}

async function resume(token) {
  sessionStorage.setItem(TOKEN, token);
  const found = await call("GET", "session").catch(() => null);
  if (found && found.signedIn) open(found);
  else if (found) sessionStorage.removeItem(TOKEN);
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

export async function start() {
  await finishSignIn();
  if (hasToken()) await resume(sessionStorage.getItem(TOKEN));
  // Without a session of another tab there is nothing to wait for.
  if (!state.session && localStorage.getItem(OPEN)) {
    channel.postMessage({ kind: "wanted" });
    await new Promise((done) => setTimeout(done, HAND_OVER_MS));
  }
  change({ ready: true });
}

const PLACE = "storagegate-place";
const ATTEMPT = "storagegate-attempt";

// Go to an issuer, which sends the browser back to the console with a query.
export async function beginSignIn(issuer) {
  const { url: target } = await call("POST", "session/issuers/" + segment(issuer));
  sessionStorage.setItem(PLACE, location.hash);
  sessionStorage.setItem(ATTEMPT, new URL(target).searchParams.get("state"));
  location.assign(target);
}

async function finishSignIn() {
  const given = new URLSearchParams(location.search);
  if (!given.has("state") && !given.has("error")) return;
  // The code belongs in no history. The fragment is this page's own, so it leads nowhere else.
  history.replaceState(null, "", location.pathname + (sessionStorage.getItem(PLACE) || ""));
  const [code, state, iss, error, errorDescription] =
    ["code", "state", "iss", "error", "error_description"].map((name) => given.get(name) || "");
  // Another site on this host can set the cookie of a sign-in, but it cannot write to this tab.
  const isOwn = !state || state === sessionStorage.getItem(ATTEMPT);
  sessionStorage.removeItem(ATTEMPT);
  try {
    const body = { code, state: isOwn ? state : "of-another-tab", iss, error, errorDescription };
    begun(await call("POST", "session/code", { body }));
  } catch (refused) {
    change({ refused });
  }
}

export const signIn = async (accessKey, secretKey) =>
  begun(await call("POST", "session", { body: { accessKey, secretKey } }));

function begun(found) {
  sessionStorage.setItem(TOKEN, found.token);
  channel.postMessage({ kind: "token", token: found.token });
  delete found.token;
  open(found);
}

function open(session) {
  localStorage.setItem(OPEN, "1");
  change({ session, ended: false });
}

export async function signOut() {
  await call("DELETE", "session").catch(() => null);
  channel.postMessage({ kind: "signedOut" });
  forget(false);
}

export function url(path, query) {
  const found = new URL(BASE);
  found.pathname = BASE.pathname + path;
  for (const [name, value] of Object.entries(query || {}))
    if (value !== undefined && value !== null && value !== "") found.searchParams.set(name, value);
  return found.href;
}

// Browsers take "." and "..", encoded or not, for steps: the API has a spelling with a tilde before them.
export const segment = (text) => encodeURIComponent(/^~*\.\.?$/.test(text) ? "~" + text : text);

function tokenField() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { [FIELD]: token } : {};
}

function offline() {
  lost();
  return new APIError(0, "OFFLINE", "The server does not answer");
}

// The error of an answer. `field` returns a field of its head; `sent` are those of the request.
function refusal(path, status, reason, text, field, sent) {
  const { error = "HTTP_" + status, message = reason, details } = parsed(text) || {};
  // It may be of a session before this one.
  if (status === 401 && path !== "session" && sent[FIELD] === sessionStorage.getItem(TOKEN)) forget(true);
  const trace = field("X-Trace-Id") || field("X-Request-Id");
  const failure = new APIError(status, error, message, details, trace);
  failure.retryAfter = Number(field("Retry-After")) || 0;
  return failure;
}

// Send a request. `body` is sent as JSON, `raw` as it is. `read` takes a response that is good.
async function send(method, path, { query, body, raw, signal, headers }, read) {
  const fields = { ...headers, ...tokenField() };
  if (body !== undefined) fields["Content-Type"] = "application/json";
  let response, text;
  try {
    response = await fetch(url(path, query), {
      method,
      headers: fields,
      body: body === undefined ? raw : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
    text = await (response.ok ? read(response) : response.text());
  } catch (error) {
    // A connection that breaks is a TypeError; others are those of `read`, or an abort.
    if (error.name !== "TypeError") throw error;
    throw offline();
  }
  if (!state.online) change({ online: true });
  if (response.ok) return text;
  throw refusal(path, response.status, response.statusText, text, (name) => response.headers.get(name), fields);
}

function parsed(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

// Call an operation. Raises an APIError.
export const call = async (method, path, options = {}) =>
  parsed(await send(method, path, options, (response) => response.text()));

// Call an operation whose answer is lines of JSON; `take` gets each as it comes.
export const callLines = (method, path, options, take) =>
  send(method, path, options, async (response) => {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = "";
    for (;;) {
      const { value = "", done } = await reader.read();
      const lines = (held + value).split("\n");
      held = lines.pop();
      for (const line of lines) if (line) take(JSON.parse(line));
      if (done) return;
    }
  });

// Send a file or a part of one; `progress` takes the bytes that were sent so far. One that has not
// gone on for `stallMs` counts as lost: a connection that was open as the machine slept says nothing.
export function sendFile(path, raw, { headers, signal, progress, stallMs = 60000 }) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    let timer = 0;
    let stalled = false;
    const moved = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        stalled = true;
        request.abort();
      }, stallMs);
    };
    const abort = () => request.abort();
    const end = (act) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
      act();
    };
    request.open("PUT", url(path));
    const fields = { ...headers, ...tokenField() };
    for (const [name, value] of Object.entries(fields))
      request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded }) => {
      moved();
      progress(loaded);
    };
    request.onload = () => end(() => {
      try {
        const field = (name) => request.getResponseHeader(name);
        const text = request.responseText;
        if (!state.online) change({ online: true });
        if (request.status >= 200 && request.status < 300) done(parsed(text));
        else failed(refusal(path, request.status, request.statusText, text, field, fields));
      } catch (error) {
        failed(error);
      }
    });
    request.onerror = () => end(() => failed(offline()));
    request.onabort = () => end(() => failed(stalled ? offline() : new DOMException("", "AbortError")));
    signal.addEventListener("abort", abort);
    moved();
    if (signal.aborted) end(() => failed(new DOMException("", "AbortError")));
    else request.send(raw);
  });
}

let probing = false;

async function lost() {
  change({ online: false });
  if (probing) return;
  probing = true;
  for (let wait = 1000; !state.online; wait = Math.min(wait * 1.5, 10000)) {
    await new Promise((done) => setTimeout(done, wait));
    await call("GET", "session").catch(() => null);
  }
  probing = false;
}

// Open a stream, whose response is read by the caller. Raises an APIError.
export const openStream = (path, options) => send("GET", path, options, (response) => response);

export const endSession = () => forget(true);
