// Uploads to Storage with @grpc/grpc-js, two of them cancelled; prints the status of each as JSON.
//
// node grpcjsupload.js PORT PROTO KEY, with NODE_PATH set to the folder of the packages.
"use strict";

const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const [port, proto, apiKey] = process.argv.slice(2);
const definition = protoLoader.loadSync(proto, { longs: Number });
const { Storage } = grpc.loadPackageDefinition(definition).storagegate;
const client = new Storage(`127.0.0.1:${port}`, grpc.credentials.createInsecure());

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function begin(key) {
  const metadata = new grpc.Metadata();
  metadata.set("x-api-key", apiKey);
  let settle;
  const status = new Promise((resolve) => (settle = resolve));
  const call = client.putObject(metadata, (error) => settle(error ? error.code : 0));
  call.write({ bucket: "doors", key });
  for (let count = 0; count < 3; count += 1) call.write({ chunk: Buffer.alloc(100000, "x") });
  return [call, status];
}

async function main() {
  const found = {};
  const [atOnce, cancelled] = begin("at-once");
  atOnce.cancel();
  found["at-once"] = await cancelled;
  const [later, cancelledLater] = begin("later");
  await pause(300);
  later.cancel();
  found.later = await cancelledLater;
  const [whole, ended] = begin("whole");
  whole.write({ complete: true });
  whole.end();
  found.whole = await ended;
  // Data that the cancelled calls still send arrives.
  await pause(300);
  console.log(JSON.stringify(found));
}

main().then(() => process.exit(0));
