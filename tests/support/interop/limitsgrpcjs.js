// Long messages and metadata, half-closed streams and GOAWAY with @grpc/grpc-js.
//
// node limitsgrpcjs.js PORT PROTO [CA], with NODE_PATH set to the folder of the packages. Prints a line of JSON.
"use strict";

const fs = require("node:fs");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const LONGEST = 4 * 1024 * 1024 - 100;

const [port, proto, ca] = process.argv.slice(2);
const definition = protoLoader.loadSync(proto, { longs: Number, defaults: true });
const { TestService } = grpc.loadPackageDefinition(definition).interop;
const credentials = ca
  ? grpc.credentials.createSsl(fs.readFileSync(ca))
  : grpc.credentials.createInsecure();
const client = new TestService(`localhost:${port}`, credentials, { "grpc.max_metadata_size": 65536 });

const soon = () => ({ deadline: Date.now() + 30000 });

function unary(request, sent = new grpc.Metadata()) {
  return new Promise((resolve, reject) => {
    let initial;
    const call = client.unaryCall(request, sent, soon(), (error, response) =>
      error ? reject(error) : resolve([response, initial])
    );
    call.on("metadata", (given) => { initial = given; });
  });
}

function count(call) {
  return new Promise((resolve) => {
    let found = 0;
    call.on("data", () => { found += 1; });
    call.on("error", (error) => resolve(`${error.code} after ${found}`));
    call.on("end", () => resolve(found));
  });
}

const parameters = (number, ms) => ({
  responseParameters: Array.from({ length: number }, () => ({ size: 10, intervalUs: ms * 1000 })),
});

async function main() {
  const found = {};
  const [large] = await unary({ responseSize: LONGEST, payload: { body: Buffer.alloc(LONGEST) } });
  found.large = large.payload.body.length;
  const sent = new grpc.Metadata();
  sent.set("x-grpc-test-echo-initial", "v".repeat(8192));
  found.metadata = (await unary({}, sent))[1].get("x-grpc-test-echo-initial")[0].length;
  const duplex = client.fullDuplexCall(new grpc.Metadata(), soon());
  duplex.write(parameters(5, 20));
  duplex.end();
  found.halfClosed = await count(duplex);
  const streaming = count(client.streamingOutputCall(parameters(40, 20), new grpc.Metadata(), soon()));
  const statuses = {};
  for (let number = 0; number < 300; number += 1) {
    const status = await unary({ responseSize: 10 }).then(() => 0, (error) => error.message);
    statuses[status] = (statuses[status] || 0) + 1;
  }
  found.statuses = statuses;
  found.through = await streaming;
  console.log(JSON.stringify(found));
  client.close();
}

main();
