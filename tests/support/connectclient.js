// A client of @connectrpc/connect-node over gRPC, of interop.TestService.
// node connectclient.js PORT DESCRIPTOR, whose second is a FileDescriptorProto in base64. Prints a line of JSON.
const { createClient, Code, ConnectError } = require("@connectrpc/connect");
const { createGrpcTransport } = require("@connectrpc/connect-node");
const { createFileRegistry, create, fromBinary } = require("@bufbuild/protobuf");
const { FileDescriptorSetSchema, FileDescriptorProtoSchema } = require("@bufbuild/protobuf/wkt");

const [port, descriptor] = process.argv.slice(2);
const file = fromBinary(FileDescriptorProtoSchema, Buffer.from(descriptor, "base64"));
const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: [file] }));
const transport = createGrpcTransport({ baseUrl: `http://127.0.0.1:${port}` });
const client = createClient(registry.getService("interop.TestService"), transport);

async function* uploads(sizes) {
  for (const size of sizes) yield { payload: { body: new Uint8Array(size) } };
}

async function failure(calling) {
  try {
    await calling;
    return "none";
  } catch (error) {
    return `${Code[ConnectError.from(error).code]}: ${ConnectError.from(error).rawMessage}`;
  }
}

async function main() {
  const found = {};
  await client.emptyCall({});
  const large = await client.unaryCall({ responseSize: 314159, payload: { body: new Uint8Array(271828) } });
  found.large = large.payload.body.length;
  const sum = await client.streamingInputCall(uploads([27182, 8, 1828, 45904]));
  found.sum = sum.aggregatedPayloadSize;
  found.sizes = [];
  const parameters = [31415, 9, 2653, 58979].map((size) => ({ size }));
  for await (const each of client.streamingOutputCall({ responseParameters: parameters })) {
    found.sizes.push(each.payload.body.length);
  }
  let headers, trailers;
  await client.unaryCall({}, {
    headers: { "x-grpc-test-echo-initial": "first", "x-grpc-test-echo-trailing-bin": "q6ur" },
    onHeader: (given) => { headers = given; },
    onTrailer: (given) => { trailers = given; },
  });
  found.initial = headers.get("x-grpc-test-echo-initial");
  found.trailing = trailers.get("x-grpc-test-echo-trailing-bin");
  found.status = await failure(client.unaryCall({ responseStatus: { code: 2, message: "test status \u00e4" } }));
  const sleeping = { responseParameters: [{ size: 1, intervalUs: 20000000 }] };
  const take = async (options) => { for await (const each of client.streamingOutputCall(sleeping, options)); };
  found.late = (await failure(take({ timeoutMs: 100 }))).split(":")[0];
  const aborting = new AbortController();
  setTimeout(() => aborting.abort(), 50);
  found.cancelled = (await failure(take({ signal: aborting.signal }))).split(":")[0];
  console.log(JSON.stringify(found));
}

main().then(() => process.exit(0));
