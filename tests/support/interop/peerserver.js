// A server of echo.proto with @grpc/grpc-js, which prints its port and serves until it is killed.
//
// node peerserver.js PROTO, with NODE_PATH set to the folder of the packages.
"use strict";

const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const [proto] = process.argv.slice(2);
const { probe } = grpc.loadPackageDefinition(protoLoader.loadSync(proto, { defaults: false }));

function own(call) {
  const found = new grpc.Metadata();
  for (const [key, value] of Object.entries(call.metadata.getMap())) {
    if (key.startsWith("x-")) found.set(key, value);
  }
  return found;
}

const server = new grpc.Server();
server.addService(probe.Echo.service, {
  send(call, callback) {
    call.sendMetadata(own(call));
    if (call.request.text === "fail") {
      callback({ code: grpc.status.NOT_FOUND, details: "no such thing: ä", metadata: own(call) });
    } else if (call.request.text !== "wait") {
      callback(null, call.request, own(call));
    }
  },
  async split(call) {
    for (let number = 0; number < (call.request.count || 0); number++) {
      if (!call.write({ count: number, body: call.request.body })) {
        await new Promise((resolve) => call.once("drain", resolve));
      }
    }
    if (call.request.text === "fail") {
      call.emit("error", { code: grpc.status.NOT_FOUND, details: "no more" });
    } else {
      call.end();
    }
  },
  join(call, callback) {
    const seen = [];
    call.on("data", (each) => seen.push(each.text));
    call.on("end", () => callback(null, { seen, count: seen.length }));
  },
  chat(call) {
    call.on("data", (each) => call.write(each));
    call.on("end", () => call.end());
  },
});
server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log(port);
});
