// A client of tests/support/everytype.py with @grpc/proto-loader and the printed file.
// Usage: node everytypeclient.js PROTO ADDRESS

const assert = require("node:assert");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [file, address] = process.argv.slice(2);
const options = { enums: String, longs: Number, oneofs: true };
const loaded = grpc.loadPackageDefinition(loader.loadSync(file, options));
const client = new loaded.notes.v1.Notes(address, grpc.credentials.createInsecure());

const call = (method, request) =>
    new Promise((done, failed) =>
        client[method](request, (error, result) => (error ? failed(error) : done(result))),
    );

const collect = (stream) =>
    new Promise((done, failed) => {
        const items = [];
        stream.on("data", (item) => items.push(item));
        stream.on("error", failed);
        stream.on("end", () => done(items));
    });

async function main() {
    const note = await call("get", { id: 2 });
    // The loader does not read keys of 64 bits, but writes them.
    for (const each of [note, ...note.children]) {
        each.byNumber = { 7: Object.values(each.byNumber)[0] };
    }
    assert.deepStrictEqual((await call("echo", note)).shapes, note.shapes);
    const chat = client.chat();
    const answers = collect(chat);
    chat.write(note);
    chat.end();
    assert.deepStrictEqual((await answers)[0].children.length, 1);
    const watched = await collect(client.watch({ id: 2 }));
    console.log(
        JSON.stringify({
            color: note.color,
            shape: note.shape,
            side: note.shapeSquare.side,
            took: [note.took.seconds, note.took.nanos],
            grid: note.grid.map((row) => row.values || []),
            byName: note.byName.a.name,
            watched: watched.length,
        }),
    );
    client.close();
}

main();
