// The cases with @grpc/grpc-js, as a program that prints a line of JSON for each case.
//
// node grpcjsclient.js PORT TAPPED-PORT PROTO, with NODE_PATH set to the folder of the packages.
"use strict";

const assert = require("node:assert");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

const CALL_MS = 20000;
const LARGE_REQUEST = 271828;
const LARGE_RESPONSE = 314159;
const REQUEST_SIZES = [27182, 8, 1828, 45904];
const RESPONSE_SIZES = [31415, 9, 2653, 58979];
const INITIAL = ["x-grpc-test-echo-initial", "test_initial_metadata_value"];
const TRAILING = ["x-grpc-test-echo-trailing-bin", Buffer.from([0xab, 0xab, 0xab])];
const STATUS_MESSAGE = "test status message";
const SPECIAL_MESSAGE =
  "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \u{1f608}\t\n";
// The library's own number for gzip among its compression algorithms.
const GZIP = 2;
// The flag of a message that must not be compressed. A stream accepts flags in place of the
// encoding of Node's streams.
const NO_COMPRESS = 2;

const [port, tappedPort, proto] = process.argv.slice(2);
const definition = protoLoader.loadSync(proto, { longs: Number, defaults: true });
const services = grpc.loadPackageDefinition(definition).interop;

function connect(service, toPort, options = {}) {
  const own = { "grpc.use_local_subchannel_pool": 1, ...options };
  return new service(`127.0.0.1:${toPort}`, grpc.credentials.createInsecure(), own);
}

const client = connect(services.TestService, port);
const noService = connect(services.UnimplementedService, port);
const tapped = connect(services.TestService, tappedPort);

// Run calls on a channel that compresses. It must be a new one: once a server built on the C core
// has answered, whose list of encodings has a space after each comma, grpc-js assumes that gzip is
// not supported.
async function compressing(run) {
  const stub = connect(services.TestService, tappedPort, {
    "grpc.default_compression_algorithm": GZIP,
  });
  try {
    return await run(stub);
  } finally {
    stub.close();
  }
}

const payload = (size) => ({ body: Buffer.alloc(size) });
const soon = () => ({ deadline: Date.now() + CALL_MS });
const largeRequest = (fields = {}) => ({
  responseSize: LARGE_RESPONSE,
  payload: payload(LARGE_REQUEST),
  ...fields,
});
const duplexRequest = (size, ...sizes) => ({
  responseParameters: sizes.map((each) => ({ size: each })),
  payload: payload(size),
});

function metadata(...entries) {
  const made = new grpc.Metadata();
  for (const [name, value] of entries) made.set(name, value);
  return made;
}

const step = (name) => metadata(["x-step", name]);

function checkPayload(message, size) {
  assert.strictEqual(message.payload.body.length, size, "size of a payload");
  assert(message.payload.body.every((byte) => byte === 0), "a payload is zeros");
}

// Call a unary method: the response, the initial metadata and the final status.
function unary(stub, method, request, sent = metadata()) {
  return new Promise((resolve, reject) => {
    const got = {};
    const call = stub[method](request, sent, soon(), (error, response) => {
      if (error) reject(error);
      else got.response = response;
    });
    call.on("metadata", (initial) => (got.initial = initial));
    call.on("status", (status) => resolve({ ...got, status }));
  });
}

// Read a stream to its end: the messages, the initial metadata and the final status.
function finished(call) {
  return new Promise((resolve) => {
    const got = { messages: [] };
    call.on("metadata", (initial) => (got.initial = initial));
    call.on("data", (message) => got.messages.push(message));
    // Each failed call also has an error event; the status has the same content.
    call.on("error", () => {});
    call.on("status", (status) => resolve({ ...got, status }));
    // A paused stream stays paused.
    call.resume();
  });
}

const nextMessage = (call) =>
  new Promise((resolve, reject) => {
    const done = (settle) => (value) => {
      call.removeAllListeners("data");
      call.removeAllListeners("error");
      call.pause();
      settle(value);
    };
    call.on("data", done(resolve));
    call.on("error", done(reject));
    call.resume();
  });

// Send a stream of payloads, each with its flags, and receive the single response.
function sendStream(stub, sent, sizes, flags = []) {
  return new Promise((resolve, reject) => {
    const call = stub.streamingInputCall(sent, soon(), (error, response) =>
      error ? reject(error) : resolve(response));
    sizes.forEach((size, index) => call.write({ payload: payload(size) }, flags[index]));
    call.end();
  });
}

async function refused(promise, code, message) {
  const status = await promise.then(
    (got) => got.status,
    (error) => error,
  );
  assert.strictEqual(status.code, code, `status: ${status.code} (${status.details})`);
  if (message !== undefined) assert.strictEqual(status.details, message);
}

const cases = {
  async empty_unary() {
    const got = await unary(client, "emptyCall", {});
    assert.deepStrictEqual({ ...got.response }, {});
  },
  async large_unary() {
    checkPayload((await unary(client, "unaryCall", largeRequest())).response, LARGE_RESPONSE);
  },
  async client_streaming() {
    const response = await sendStream(client, metadata(), REQUEST_SIZES);
    assert.strictEqual(response.aggregatedPayloadSize, 74922);
  },
  async server_streaming() {
    const got = await finished(
      client.streamingOutputCall(duplexRequest(0, ...RESPONSE_SIZES), soon()),
    );
    assert.strictEqual(got.status.code, grpc.status.OK);
    assert.strictEqual(got.messages.length, 4);
    got.messages.forEach((message, index) => checkPayload(message, RESPONSE_SIZES[index]));
  },
  async ping_pong() {
    const call = client.fullDuplexCall(soon());
    for (const [index, size] of REQUEST_SIZES.entries()) {
      call.write(duplexRequest(size, RESPONSE_SIZES[index]));
      checkPayload(await nextMessage(call), RESPONSE_SIZES[index]);
    }
    call.end();
    const got = await finished(call);
    assert.strictEqual(got.messages.length, 0);
    assert.strictEqual(got.status.code, grpc.status.OK);
  },
  async empty_stream() {
    const call = client.fullDuplexCall(soon());
    call.end();
    const got = await finished(call);
    assert.strictEqual(got.messages.length, 0);
    assert.strictEqual(got.status.code, grpc.status.OK);
  },
  async client_compressed_unary() {
    const call = (name) => async (stub) => {
      const sent = step(`client_compressed_unary.${name}`);
      const got = await unary(stub, "unaryCall", largeRequest(), sent);
      checkPayload(got.response, LARGE_RESPONSE);
    };
    await compressing(call("compressed"));
    await call("plain")(tapped);
  },
  async server_compressed_unary() {
    for (const [name, responseCompressed] of [["compressed", true], ["plain", false]]) {
      const sent = step(`server_compressed_unary.${name}`);
      const got = await unary(tapped, "unaryCall", largeRequest({ responseCompressed }), sent);
      checkPayload(got.response, LARGE_RESPONSE);
    }
  },
  async client_compressed_streaming() {
    const sent = step("client_compressed_streaming.mixed");
    const response = await compressing((stub) =>
      sendStream(stub, sent, [27182, 45904], [undefined, NO_COMPRESS]));
    assert.strictEqual(response.aggregatedPayloadSize, 73086);
  },
  async server_compressed_streaming() {
    const request = {
      responseParameters: [
        { size: 31415, compressed: true },
        { size: 92653, compressed: false },
      ],
    };
    const sent = step("server_compressed_streaming.mixed");
    const got = await finished(tapped.streamingOutputCall(request, sent, soon()));
    assert.strictEqual(got.status.code, grpc.status.OK);
    assert.strictEqual(got.messages.length, 2);
    checkPayload(got.messages[0], 31415);
    checkPayload(got.messages[1], 92653);
  },
  async custom_metadata() {
    const sent = () => metadata(INITIAL, TRAILING);
    const call = client.fullDuplexCall(sent(), soon());
    call.write(duplexRequest(LARGE_REQUEST, LARGE_RESPONSE));
    call.end();
    const results = await Promise.all([
      unary(client, "unaryCall", largeRequest(), sent()),
      finished(call),
    ]);
    checkPayload(results[0].response, LARGE_RESPONSE);
    checkPayload(results[1].messages[0], LARGE_RESPONSE);
    for (const { initial, status } of results) {
      assert.deepStrictEqual(initial.get(INITIAL[0]), [INITIAL[1]]);
      assert.deepStrictEqual(status.metadata.get(TRAILING[0]), [TRAILING[1]]);
    }
  },
  async status_code_and_message() {
    const responseStatus = { code: 2, message: STATUS_MESSAGE };
    const call = client.fullDuplexCall(soon());
    call.write({ responseStatus });
    call.end();
    await refused(finished(call), 2, STATUS_MESSAGE);
    await refused(unary(client, "unaryCall", { responseStatus }), 2, STATUS_MESSAGE);
  },
  async special_status_message() {
    const responseStatus = { code: 2, message: SPECIAL_MESSAGE };
    await refused(unary(client, "unaryCall", { responseStatus }), 2, SPECIAL_MESSAGE);
  },
  async unimplemented_method() {
    await refused(unary(client, "unimplementedCall", {}), grpc.status.UNIMPLEMENTED);
  },
  async unimplemented_service() {
    await refused(unary(noService, "unimplementedCall", {}), grpc.status.UNIMPLEMENTED);
  },
  async cancel_after_begin() {
    const error = await new Promise((resolve) => {
      const call = client.streamingInputCall(soon(), resolve);
      call.cancel();
    });
    assert.strictEqual(error && error.code, grpc.status.CANCELLED);
  },
  async cancel_after_first_response() {
    const call = client.fullDuplexCall(soon());
    call.write(duplexRequest(27182, 31415));
    checkPayload(await nextMessage(call), 31415);
    call.cancel();
    assert.strictEqual((await finished(call)).status.code, grpc.status.CANCELLED);
  },
  async timeout_on_sleeping_server() {
    const call = client.fullDuplexCall({ deadline: Date.now() + 1 });
    call.write({
      responseParameters: [{ size: 1, intervalUs: 10000000 }],
      payload: payload(27182),
    });
    assert.strictEqual((await finished(call)).status.code, grpc.status.DEADLINE_EXCEEDED);
  },
};

async function main() {
  for (const [name, run] of Object.entries(cases)) {
    let outcome = { case: name, ok: true, why: "" };
    try {
      await run();
    } catch (error) {
      outcome = { case: name, ok: false, why: String(error) };
    }
    console.log(JSON.stringify(outcome));
  }
  for (const each of [client, noService, tapped]) each.close();
}

// A cancelled call leaves its deadline timer, which would keep the process alive.
main().then(() => process.exit(0));
