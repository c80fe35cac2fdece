// Long messages and metadata, half-closed streams and GOAWAY with @connectrpc/connect-node over gRPC.
//
// node limitsconnect.js URL DESCRIPTOR [CA], with NODE_PATH set to the folder of the packages; the descriptor is a
// FileDescriptorProto in base64. Prints a line of JSON.
"use strict";

const fs = require("node:fs");
const { createClient, Code, ConnectError } = require("@connectrpc/connect");
const { createGrpcTransport } = require("@connectrpc/connect-node");
const { createFileRegistry, create, fromBinary } = require("@bufbuild/protobuf");
const { FileDescriptorSetSchema, FileDescriptorProtoSchema } = require("@bufbuild/protobuf/wkt");

const LONGEST = 4 * 1024 * 1024 - 100;

const [baseUrl, descriptor, ca] = process.argv.slice(2);
const file = fromBinary(FileDescriptorProtoSchema, Buffer.from(descriptor, "base64"));
const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: [file] }));
const nodeOptions = ca ? { ca: fs.readFileSync(ca) } : {};
const transport = createGrpcTransport({ baseUrl, nodeOptions });
const client = createClient(registry.getService("interop.TestService"), transport);

const parameters = (number, ms) => ({
  responseParameters: Array.from({ length: number }, () => ({ size: 10, intervalUs: ms * 1000 })),
});

async function count(responses) {
  let found = 0;
  try {
    for await (const each of responses) found += each.payload.body.length ? 1 : 0;
  } catch (error) {
    return `${Code[ConnectError.from(error).code]} after ${found}`;
  }
  return found;
}

async function* once(request) {
  yield request;
}

async function main() {
  const found = {};
  const large = await client.unaryCall({
    responseSize: LONGEST,
    payload: { body: new Uint8Array(LONGEST) },
  });
  found.large = large.payload.body.length;
  let initial;
  await client.unaryCall({}, {
    headers: { "x-grpc-test-echo-initial": "v".repeat(8192) },
    onHeader: (given) => { initial = given; },
  });
  found.metadata = initial.get("x-grpc-test-echo-initial").length;
  found.halfClosed = await count(client.fullDuplexCall(once(parameters(5, 20))));
  const streaming = count(client.streamingOutputCall(parameters(40, 20)));
  const statuses = {};
  for (let number = 0; number < 300; number += 1) {
    const status = await client.unaryCall({ responseSize: 10 }).then(
      () => 0,
      (error) => String(ConnectError.from(error))
    );
    statuses[status] = (statuses[status] || 0) + 1;
  }
  found.statuses = statuses;
  found.through = await streaming;
  console.log(JSON.stringify(found));
}

main().then(() => process.exit(0));
