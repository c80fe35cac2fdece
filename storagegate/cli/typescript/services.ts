/** A stream of requests. */
export type Requests = Iterable<unknown> | AsyncIterable<unknown>;

/** How calls reach the server. */
export interface Transport {
    once(service: string, method: string, data: unknown, options?: CallOptions): Promise<unknown>;
    each(
        service: string,
        method: string,
        data: unknown,
        options?: CallOptions,
    ): AsyncIterableIterator<unknown>;
    sendOnce(
        service: string,
        method: string,
        requests: Requests,
        options?: CallOptions,
    ): Promise<unknown>;
    sendEach(
        service: string,
        method: string,
        requests: Requests,
        options?: CallOptions,
    ): AsyncIterableIterator<unknown>;
    close(): void;
}

/** Calls over HTTP. A stream of requests is sent once it is complete, because browsers do so. */
class HTTPTransport implements Transport {
    #base: string;
    #options: ClientOptions;
    #open = new Set<Lifetime>();

    constructor(base: string, options: ClientOptions) {
        this.#base = base.replace(/\/+$/, "");
        this.#options = options;
    }

    close(): void {
        for (const lifetime of this.#open) lifetime.end();
    }

    once(service: string, method: string, data: unknown, options?: CallOptions): Promise<unknown> {
        return this.#single(service, method, JSON.stringify(data ?? {}), false, options);
    }

    async sendOnce(
        service: string,
        method: string,
        requests: Requests,
        options?: CallOptions,
    ): Promise<unknown> {
        return this.#single(service, method, await joined(requests), true, options);
    }

    each(
        service: string,
        method: string,
        data: unknown,
        options?: CallOptions,
    ): AsyncIterableIterator<unknown> {
        return this.#items(service, method, [data ?? {}], false, options);
    }

    sendEach(
        service: string,
        method: string,
        requests: Requests,
        options?: CallOptions,
    ): AsyncIterableIterator<unknown> {
        return this.#items(service, method, requests, true, options);
    }

    async #single(
        service: string,
        method: string,
        body: string,
        isStream: boolean,
        options: CallOptions = {},
    ): Promise<unknown> {
        const lifetime = new Lifetime(this.#options, options);
        this.#open.add(lifetime);
        try {
            const response = await this.#fetch(service, method, body, isStream, options, lifetime);
            return ((await response.json()) as { data?: unknown }).data;
        } catch (error) {
            throw lifetime.failure(error);
        } finally {
            this.#open.delete(lifetime);
            lifetime.end();
        }
    }

    async *#items(
        service: string,
        method: string,
        requests: Requests,
        isStream: boolean,
        options: CallOptions = {},
    ): AsyncIterableIterator<unknown> {
        const lifetime = new Lifetime(this.#options, options);
        this.#open.add(lifetime);
        try {
            const body = await joined(requests);
            const response = await this.#fetch(service, method, body, isStream, options, lifetime);
            for await (const line of lines(response)) {
                const item = JSON.parse(line) as Record<string, unknown>;
                if (!("data" in item)) throw errorOf(item, response.status);
                yield item["data"];
            }
        } catch (error) {
            throw lifetime.failure(error);
        } finally {
            this.#open.delete(lifetime);
            lifetime.end();
        }
    }

    async #fetch(
        service: string,
        method: string,
        body: string,
        isStream: boolean,
        options: CallOptions,
        lifetime: Lifetime,
    ): Promise<Response> {
        const headers = await headersOf(this.#options, options);
        headers.set("Content-Type", isStream ? "application/x-ndjson" : "application/json");
        headers.set("Accept", "application/json, application/x-ndjson");
        if (lifetime.deadlineMs !== undefined) {
            headers.set("X-Deadline-Ms", String(Math.max(1, Math.ceil(lifetime.deadlineMs))));
        }
        const path = `${encodeURIComponent(service)}/${encodeURIComponent(method)}`;
        const response = await fetch(`${this.#base}/${path}`, {
            method: "POST",
            headers,
            body,
            signal: lifetime.signal,
            ...(this.#options.credentials ? { credentials: this.#options.credentials } : {}),
        });
        if (!response.ok) throw await responseError(response);
        return response;
    }
}

/** The most characters of a line that is not complete. */
const MAX_LINE = 16 * 1024 * 1024;

async function joined(requests: Requests): Promise<string> {
    let body = "";
    for await (const each of requests) body += `${JSON.stringify(each)}\n`;
    return body;
}

async function* lines(response: Response): AsyncIterableIterator<string> {
    if (!response.body) return;
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    try {
        for (;;) {
            const { done, value } = await reader.read();
            rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
            const parts = rest.split("\n");
            rest = done ? "" : (parts.pop() ?? "");
            for (const line of parts) if (line.trim()) yield line;
            if (rest.length > MAX_LINE) {
                throw new ServiceError("RESPONSE_TOO_LARGE", "An item is too long");
            }
            if (done) return;
        }
    } finally {
        await reader.cancel().catch(() => undefined);
    }
}

/** How many items of a stream may wait: a browser cannot pause a WebSocket. */
const MAX_WAITING = 1024;

/** A call over a WebSocket. */
class SocketCall {
    #items: unknown[] = [];
    #isOver = false;
    #error: unknown;
    #wake: (() => void) | undefined;

    get isOver(): boolean {
        return this.#isOver;
    }

    /** Take an item; return false if too many wait. */
    add(item: unknown): boolean {
        this.#items.push(item);
        this.#wake?.();
        return this.#items.length <= MAX_WAITING;
    }

    end(error?: unknown): void {
        if (this.#isOver) return;
        this.#isOver = true;
        this.#error = error;
        this.#wake?.();
    }

    async *items(): AsyncIterableIterator<unknown> {
        for (;;) {
            if (this.#items.length) {
                yield this.#items.shift();
            } else if (this.#isOver) {
                if (this.#error !== undefined) throw this.#error;
                return;
            } else {
                await new Promise<void>((done) => {
                    this.#wake = done;
                });
                this.#wake = undefined;
            }
        }
    }
}

/** Calls over one WebSocket, which connects with the first call and again after it was lost. */
class WebSocketTransport implements Transport {
    #url: string;
    #options: ClientOptions;
    #socket: Promise<WebSocket> | undefined;
    #calls = new Map<number, SocketCall>();
    #lastId = 0;

    constructor(url: string, options: ClientOptions) {
        this.#url = url;
        this.#options = options;
    }

    close(): void {
        this.#socket?.then(
            (socket) => socket.close(),
            () => undefined,
        );
        this.#socket = undefined;
        this.#lost("CANCELLED", "The client is closed");
    }

    once(service: string, method: string, data: unknown, options?: CallOptions): Promise<unknown> {
        return only(this.#call(service, method, data ?? {}, undefined, options));
    }

    each(
        service: string,
        method: string,
        data: unknown,
        options?: CallOptions,
    ): AsyncIterableIterator<unknown> {
        return this.#call(service, method, data ?? {}, undefined, options);
    }

    sendOnce(
        service: string,
        method: string,
        requests: Requests,
        options?: CallOptions,
    ): Promise<unknown> {
        return only(this.#call(service, method, undefined, requests, options));
    }

    sendEach(
        service: string,
        method: string,
        requests: Requests,
        options?: CallOptions,
    ): AsyncIterableIterator<unknown> {
        return this.#call(service, method, undefined, requests, options);
    }

    async *#call(
        service: string,
        method: string,
        data: unknown,
        requests: Requests | undefined,
        options: CallOptions = {},
    ): AsyncIterableIterator<unknown> {
        const lifetime = new Lifetime(this.#options, options);
        const id = ++this.#lastId;
        const call = new SocketCall();
        lifetime.signal.addEventListener("abort", () =>
            call.end(lifetime.failure(lifetime.signal.reason)),
        );
        let socket: WebSocket | undefined;
        try {
            if (lifetime.signal.aborted) throw lifetime.failure(lifetime.signal.reason);
            const credential =
                options.token ??
                (await current(this.#options.token)) ??
                (await current(this.#options.apiKey));
            socket = await Promise.race([this.#connected(), aborted(lifetime.signal)]);
            this.#calls.set(id, call);
            const message: Record<string, unknown> = { id, service, method };
            if (data !== undefined) message["data"] = data;
            if (credential) message["auth"] = { token: credential };
            if (lifetime.deadlineMs !== undefined) message["deadlineMs"] = lifetime.deadlineMs;
            socket.send(JSON.stringify(message));
            if (requests) void this.#sendAll(socket, id, call, requests);
            yield* call.items();
        } catch (error) {
            throw lifetime.failure(error);
        } finally {
            this.#calls.delete(id);
            const isCut = !call.isOver || lifetime.signal.aborted;
            if (isCut && socket?.readyState === socket?.OPEN) {
                socket?.send(JSON.stringify({ id, type: "cancel" }));
            }
            call.end();
            lifetime.end();
        }
    }

    async #sendAll(
        socket: WebSocket,
        id: number,
        call: SocketCall,
        requests: Requests,
    ): Promise<void> {
        try {
            for await (const data of requests) {
                while (socket.bufferedAmount > MAX_BUFFERED && !call.isOver) await pause();
                if (call.isOver) return;
                socket.send(JSON.stringify({ id, type: "stream", data }));
            }
            if (!call.isOver) socket.send(JSON.stringify({ id, type: "stream_end" }));
        } catch (error) {
            if (!call.isOver) socket.send(JSON.stringify({ id, type: "cancel" }));
            call.end(error);
        }
    }

    #connected(): Promise<WebSocket> {
        if (this.#socket) return this.#socket;
        const opened: Promise<WebSocket> = new Promise((done, failed) => {
            const socket = new (this.#options.webSocket ?? WebSocket)(this.#url);
            socket.onopen = () => done(socket);
            socket.onmessage = (event) => this.#received(socket, String(event.data));
            // Some programs report a failed connection only as an error.
            socket.onclose = socket.onerror = () => {
                failed(new ServiceError("UNAVAILABLE", "The server cannot be reached"));
                if (this.#socket !== opened) return;
                this.#socket = undefined;
                this.#lost("UNAVAILABLE", "The connection was lost");
            };
        });
        this.#socket = opened;
        return opened;
    }

    #received(socket: WebSocket, text: string): void {
        const message = JSON.parse(text) as Record<string, unknown>;
        const id = message["id"];
        const call = typeof id === "number" ? this.#calls.get(id) : undefined;
        if (!call || typeof id !== "number") return;
        switch (message["type"]) {
            case "response":
                call.add(message["data"]);
                call.end();
                break;
            case "stream":
                if (!call.add(message["data"])) {
                    call.end(new ServiceError("RESOURCE_EXHAUSTED", "Too many items wait"));
                    socket.send(JSON.stringify({ id, type: "cancel" }));
                }
                break;
            case "stream_end":
                call.end();
                break;
            case "error":
                call.end(errorOf(message["error"], 0));
                break;
        }
    }

    #lost(code: string, reason: string): void {
        const calls = [...this.#calls.values()];
        this.#calls.clear();
        for (const call of calls) call.end(new ServiceError(code, reason));
    }
}

/** Above this many bytes that a WebSocket has not sent, the requests of a stream wait. */
const MAX_BUFFERED = 1024 * 1024;

function pause(): Promise<void> {
    return new Promise((done) => setTimeout(done, 10));
}

/** Return a promise that fails when a call is aborted. */
function aborted(signal: AbortSignal): Promise<never> {
    return new Promise((_, failed) =>
        signal.addEventListener("abort", () => failed(signal.reason), { once: true }),
    );
}

async function only(items: AsyncIterableIterator<unknown>): Promise<unknown> {
    for await (const item of items) return item;
    throw new ServiceError("UNAVAILABLE", "The server returned no result");
}

function transportOf(url: string, options: ClientOptions): Transport {
    return /^wss?:/i.test(url)
        ? new WebSocketTransport(url, options)
        : new HTTPTransport(url, options);
}
