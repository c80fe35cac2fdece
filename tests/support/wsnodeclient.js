// A conversation with Node's "ws", as a program that prints the received messages as JSON.
//
// node wsnodeclient.js URL, with NODE_PATH set to the folder of the package.
"use strict";

const WebSocket = require("ws");

const heard = [];
const socket = new WebSocket(process.argv[2], ["json"], { perMessageDeflate: true });

const say = (message) => socket.send(JSON.stringify(message));

socket.on("open", () => {
  say({ id: "echo", service: "Probe", method: "echo", data: { text: "x".repeat(5000) } });
  say({ id: "count", service: "Probe", method: "count", data: { to: 3 } });
  say({ id: "collect", service: "Probe", method: "collect" });
  say({ id: "collect", type: "stream", data: { text: "a" } });
  say({ id: "collect", type: "stream", data: { text: "b" } });
  say({ id: "collect", type: "stream_end" });
  say({ id: "chat", service: "Probe", method: "chat", data: { text: "a" } });
  say({ id: "chat", type: "stream_end" });
  say({ id: "slow", service: "Probe", method: "slow", data: {} });
  say({ id: "slow", type: "cancel" });
  socket.send("{");
  socket.ping("there?");
});
socket.on("message", (data) => heard.push(JSON.parse(data)));
socket.on("pong", () => socket.close(1000));
socket.on("close", (code) => {
  const { protocol, extensions } = socket;
  process.stdout.write(JSON.stringify({ heard, code, protocol, extensions }) + "\n");
});
socket.on("error", (error) => {
  process.stderr.write(String(error));
  process.exitCode = 1;
});
