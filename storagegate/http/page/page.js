"use strict";

// The page reads the two descriptions next to it and builds everything from them. Text from them and from responses
// is only ever set as text.

const KINDS = {
  none: "one request, one response",
  server: "one request, a stream of responses",
  client: "a stream of requests, one response",
  bidirectional: "streams both ways",
};
const SHOWN = 200; // Maximum number of responses shown of a stream.

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function resolve(schema, api, depth = 0) {
  while (schema && schema.$ref && depth < 20) {
    schema = schema.$ref.slice(2).split("/").reduce((part, key) => part && part[key], api);
    depth += 1;
  }
  return schema || {};
}

// Replaces references by their targets; deeper ones, such as a type's reference to itself, stay.
function expanded(part, api, depth = 0) {
  if (Array.isArray(part)) return part.map((each) => expanded(each, api, depth));
  if (!part || typeof part !== "object") return part;
  if (part.$ref) return depth < 5 ? expanded(resolve(part, api), api, depth + 1) : part;
  return Object.fromEntries(Object.entries(part).map(([name, each]) => [name, expanded(each, api, depth)]));
}

// Makes an example of a request: required properties, with defaults if any.
function example(schema, api, depth = 0) {
  schema = resolve(schema, api);
  if (schema.default !== undefined && schema.default !== null) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.const !== undefined) return schema.const;
  const kind = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (schema.anyOf) return example(schema.anyOf[0], api, depth + 1);
  if (kind === "array") return depth < 5 && schema.items ? [example(schema.items, api, depth + 1)] : [];
  if (kind === "object" || schema.properties) {
    const found = {};
    const required = new Set(schema.required || []);
    for (const [name, part] of Object.entries(schema.properties || {})) {
      if (depth < 5 && (required.has(name) || !required.size)) found[name] = example(part, api, depth + 1);
    }
    return found;
  }
  return { integer: schema.minimum || 0, number: 0, boolean: false, string: "" }[kind] ?? null;
}

function contentSchema(content, api) {
  const first = Object.values(content || {})[0];
  return resolve(first && first.schema, api);
}

// Each line is a request if the method takes a stream; otherwise the whole text is one.
function requestsOf(text, streams) {
  if (!streams) return [JSON.parse(text)];
  return text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
}

function authorization() {
  const token = document.getElementById("token").value.trim();
  return token ? { Authorization: `Bearer ${token}`, "X-API-Key": token } : {};
}

async function callHTTP(path, method, requests, show) {
  const streams = method === "client" || method === "bidirectional";
  const type = streams ? "application/x-ndjson" : "application/json";
  const body = streams ? requests.map((each) => JSON.stringify(each) + "\n").join("") : JSON.stringify(requests[0]);
  const response = await fetch(path, { method: "POST", headers: { "Content-Type": type, ...authorization() }, body });
  show(`HTTP ${response.status}`, !response.ok);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (rest + (done ? "\n" : value)).split("\n");
    rest = lines.pop();
    lines.filter(Boolean).forEach((line) => show(line));
    if (done) return;
  }
}

function callWebSocket(address, service, name, kind, requests, show) {
  const token = document.getElementById("token").value.trim();
  const socket = new WebSocket(address);
  const streams = kind === "client" || kind === "bidirectional";
  const ends = kind === "none" || kind === "client" ? "response" : "stream_end";
  const send = (message) => socket.send(JSON.stringify({ id: "1", ...message }));
  socket.onopen = () => {
    const first = { service, method: name, ...(token ? { auth: { token } } : {}) };
    send(streams ? first : { ...first, data: requests[0] });
    if (!streams) return;
    requests.forEach((data) => send({ type: "stream", data }));
    send({ type: "stream_end" });
  };
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    show(event.data, message.type === "error");
    if (message.type === ends || message.type === "error") socket.close();
  };
  socket.onerror = () => show("The connection failed", true);
}

// The parts common to a method and a route: schemas, a form, and call buttons; a call shows lines.
function view(id, title, note, operation, schemas, form, actions) {
  const output = element("pre", { hidden: true });
  let count = 0;
  const show = (text, failed = false) => {
    output.hidden = false;
    output.classList.toggle("failed", failed || output.classList.contains("failed"));
    count += 1;
    if (count <= SHOWN) output.append(text, "\n");
    else if (count === SHOWN + 1) output.append("More is not shown.\n");
  };
  const buttons = actions.map(([textContent, call]) => {
    const onclick = async () => {
      output.replaceChildren();
      output.classList.remove("failed");
      count = 0;
      try {
        await call(show);
      } catch (error) {
        show(String(error), true);
      }
    };
    return element("button", { textContent, onclick });
  });
  const schema = ([title, value]) =>
    element("div", {}, element("h4", { textContent: title }), element("pre", { textContent: JSON.stringify(value, null, 2) }));
  return element(
    "details",
    { id },
    element("summary", {}, element("code", { textContent: title }), " ", element("span", { className: "kind", textContent: note })),
    element("p", { textContent: operation.description || operation.summary || "" }),
    element("div", { className: "columns" }, ...schemas.map(schema)),
    ...form,
    element("p", {}, ...buttons),
    output,
  );
}

function requestArea(operation, text) {
  const area = element("textarea", { spellcheck: false, ariaLabel: `Request of ${operation.operationId}` });
  area.value = text;
  return area;
}

// Returns the path of an operation on its server.
function target(api, path) {
  const server = (api.servers && api.servers[0] && api.servers[0].url) || "";
  return server.replace(/\/$/, "") + path;
}

function methodView(api, path, operation, socketAddress) {
  const [service, name] = [operation.tags[0], operation.operationId.slice(operation.tags[0].length + 1)];
  const kind = operation["x-streaming"];
  const streams = kind === "client" || kind === "bidirectional";
  const request = contentSchema(operation.requestBody && operation.requestBody.content, api);
  const response = contentSchema(operation.responses["200"].content, api);
  const result = resolve((response.properties || {}).data, api);
  const input = requestArea(operation, JSON.stringify(example(request, api), null, streams ? 0 : 2));
  const requests = () => requestsOf(input.value, streams);
  const actions = [["Call over HTTP", (show) => callHTTP(target(api, path), kind, requests(), show)]];
  if (socketAddress) {
    actions.push(["Call over WebSocket", (show) => callWebSocket(socketAddress, service, name, kind, requests(), show)]);
  }
  const form = [element("h4", { textContent: streams ? "Try it: a line for each request" : "Try it" }), input];
  const schemas = [["Request", expanded(request, api)], ["Response", expanded(result, api)]];
  return view(operation.operationId, name, KINDS[kind] || "", operation, schemas, form, actions);
}

function routeView(api, path, verb, operation) {
  const inputs = (operation.parameters || []).map((parameter) => [parameter, element("input", { placeholder: parameter.in })]);
  const form = [element("h4", { textContent: "Try it" })];
  inputs.forEach(([{ name, required }, input]) => {
    form.push(element("p", {}, element("label", {}, required ? `${name} (required) ` : `${name} `, input)));
  });
  const schemas = [];
  let area = null;
  if (operation.requestBody) {
    const request = contentSchema(operation.requestBody.content, api);
    area = requestArea(operation, JSON.stringify(example(request, api), null, 2));
    form.push(area);
    schemas.push(["Request", expanded(request, api)]);
  }
  const content = Object.values(operation.responses).map((each) => each.content).find(Boolean);
  if (content) schemas.push(["Response", expanded(contentSchema(content, api), api)]);
  const call = async (show) => {
    const query = new URLSearchParams();
    let url = target(api, path);
    inputs.forEach(([{ name, in: place }, { value }]) => {
      if (place === "path") url = url.replace(`{${name}}`, encodeURIComponent(value));
      else if (value) query.append(name, value);
    });
    const type = area ? { "Content-Type": Object.keys(operation.requestBody.content)[0] } : {};
    const headers = { ...authorization(), ...type };
    const sent = { method: verb.toUpperCase(), headers, ...(area ? { body: area.value } : {}) };
    const response = await fetch(query.size ? `${url}?${query}` : url, sent);
    show(`HTTP ${response.status}`, !response.ok);
    show(await response.text(), !response.ok);
  };
  return view(operation.operationId, `${verb.toUpperCase()} ${path}`, operation.summary || "", operation, schemas, form, [["Call", call]]);
}

async function main() {
  const services = document.getElementById("services");
  try {
    const read = async (name) => {
      const response = await fetch(name);
      return response.ok ? response.json() : null;
    };
    const [api, messages] = await Promise.all(["openapi.json", "asyncapi.json"].map(read));
    document.querySelector("h1").textContent = document.title = api.info.title;
    document.getElementById("asyncapi").hidden = !messages;
    const channel = messages && (messages.channels || {}).websocket;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socketAddress = channel && `${scheme}//${location.host}${channel.address}`;
    services.replaceChildren();
    const sections = new Map();
    for (const [path, verbs] of Object.entries(api.paths)) {
      for (const [verb, operation] of Object.entries(verbs)) {
        const isMethod = "x-streaming" in operation;
        // Configured routes are additional addresses of the same methods.
        if (isMethod && (verb !== "post" || !path.endsWith(`/${operation.operationId.replace(".", "/")}`))) continue;
        const tag = (operation.tags || ["Routes"])[0];
        if (!sections.has(tag)) sections.set(tag, element("section", {}, element("h2", { textContent: tag })));
        const made = isMethod ? methodView(api, path, operation, socketAddress) : routeView(api, path, verb, operation);
        sections.get(tag).append(made);
      }
    }
    services.append(...sections.values());
    if (!sections.size) services.append("Nothing is described.");
  } catch (error) {
    services.replaceChildren(`The descriptions could not be read: ${error}`);
  }
}

main();
