// Calls of tests/support/everygateway.py with the generated clients, in node and in a browser.

import { createClient as createRoutes, ServiceError as RouteError } from "./app.js";
import { createClient, ServiceError, type Note, type NoteInput, type Wish } from "./gateway.js";

async function failure(promise: Promise<unknown>): Promise<unknown[]> {
    try {
        await promise;
        return ["none"];
    } catch (error) {
        // Each file has a class of its own.
        if (error instanceof ServiceError || error instanceof RouteError) {
            return [error.code, error.message, error.details ?? null];
        }
        return ["other", String(error)];
    }
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
    const found: T[] = [];
    for await (const item of items) found.push(item);
    return found;
}

/** Call the services over one transport. */
export async function checkServices(url: string): Promise<Record<string, unknown>> {
    const client = createClient(url, { deadlineMs: 20_000, token: () => Promise.resolve("t") });
    const notes = client.Notes;
    const note: Note = await notes.Get({ id: 2 });
    const again: NoteInput = note;
    const shape = note.shape.type === "sq" ? note.shape.side : note.shape.radius;
    const echoed = await notes.Echo(again);
    async function* two(): AsyncIterable<NoteInput> {
        yield again;
        yield again;
    }
    const wish: Wish = await client.Wishes.wish({ name: "tea" });
    const controller = new AbortController();
    const waiting = failure(client.Wishes.wait({}, { signal: controller.signal }));
    controller.abort();
    let ticks = 0;
    for await (const each of client.Wishes.tick({ name: "tick" })) {
        if (each.name === "tick" && ++ticks === 3) break;
    }
    const broken: string[] = [];
    const chat = client.Wishes.break([again]);
    const ended = await failure(
        (async () => {
            for await (const each of chat) broken.push(each.text);
        })(),
    );
    const hostile = Object.keys(client).find((name) => name.includes("alert"));
    if (hostile === undefined) throw new Error("the service is missing");
    const evil = (client as unknown as Record<string, Record<string, (data: unknown) => unknown>>)[
        hostile
    ];
    const found = {
        isSame: JSON.stringify(echoed) === JSON.stringify(note),
        shape,
        color: note.color,
        watched: (await collect(notes.Watch({ id: 2 }))).length,
        added: await notes.Add(two()),
        chatted: (await collect(notes.Chat(two()))).map((each) => each.id),
        tags: (await notes.Tags({ id: 1 })).map((each) => each.name),
        found: await notes.Find({ id: 0 }),
        wish,
        failed: await failure(client.Wishes.fail({ name: "tea" })),
        invalid: await failure(notes.Get({ id: "x" as unknown as number })),
        late: await failure(client.Wishes.wait({}, { deadlineMs: 50 })),
        cancelled: await waiting,
        ticks,
        broken,
        ended,
        token: [await client.Wishes.whoAmI(), await client.Wishes.whoAmI({}, { token: "u" })],
        evil: await evil?.['"];evil()']?.({ a: 1 }),
        then: await client.await.then({ b: 1 }),
    };
    client.close();
    // A closed client connects again.
    const reopened = (await notes.Find({ id: 1 }))?.name;
    client.close();
    const nobody = url.startsWith("ws") ? "ws://127.0.0.1:1/ws" : "http://127.0.0.1:1/api";
    const refused = await failure(createClient(nobody).Notes.Get({ id: 1 }));
    return { ...found, reopened, refused: refused[0] };
}

/** Call the routes of the application. */
export async function checkRoutes(url: string): Promise<Record<string, unknown>> {
    const client = createRoutes(url);
    const wishes = await client.findWishes({ name: "a/b c" }, { name: "q", color: "dark blue" });
    return {
        wishes: wishes.map((each) => [each.name, each.color]),
        added: await client.addWish({ name: "tea", tags: ["x"] }),
        failed: await failure(client.addWish({ name: "bad" })),
        removed: (await client.removeWish({ name: "x" })) ?? null,
    };
}
