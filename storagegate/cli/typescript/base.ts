/** The failure of a call. */
export class ServiceError extends Error {
    /** The code of the service, such as NOT_FOUND. */
    readonly code: string;
    /** The HTTP status; 0 without one. */
    readonly status: number;
    /** What the service adds to the code, such as the places of an invalid request. */
    readonly details: unknown;

    constructor(code: string, message: string, details?: unknown, status = 0) {
        super(message);
        this.name = "ServiceError";
        this.code = code;
        this.status = status;
        this.details = details;
    }
}

/** Credentials, or a function that returns the current ones. */
export type Credential = string | (() => string | undefined | Promise<string | undefined>);

export interface ClientOptions {
    /** A bearer token for every call. */
    token?: Credential;
    /** An API key for every call. */
    apiKey?: Credential;
    /** The header field of API keys over HTTP. */
    apiKeyHeader?: string;
    /** Further header fields over HTTP. */
    headers?: Record<string, string>;
    /** The deadline of calls that set none, in milliseconds. */
    deadlineMs?: number;
    /** Whether HTTP requests carry cookies; see fetch(). */
    credentials?: RequestCredentials;
    /** The class of WebSockets, where it is no global. */
    webSocket?: new (url: string) => WebSocket;
}

export interface CallOptions {
    /** Cancels the call, which then fails with CANCELLED. */
    signal?: AbortSignal;
    /** The deadline in milliseconds, after which the call fails with DEADLINE_EXCEEDED. */
    deadlineMs?: number;
    /** A bearer token instead of the client's. */
    token?: string;
}

async function current(credential: Credential | undefined): Promise<string | undefined> {
    return typeof credential === "function" ? await credential() : credential;
}

/** The signal of a call and its deadline. */
class Lifetime {
    readonly signal: AbortSignal;
    readonly deadlineMs: number | undefined;
    #controller = new AbortController();
    #timer: ReturnType<typeof setTimeout> | undefined;
    #outer: AbortSignal | undefined;
    #isLate = false;

    constructor(client: ClientOptions, call: CallOptions) {
        this.signal = this.#controller.signal;
        this.deadlineMs = call.deadlineMs ?? client.deadlineMs;
        this.#outer = call.signal;
        if (call.signal?.aborted) this.#controller.abort();
        call.signal?.addEventListener("abort", this.#abort);
        if (this.deadlineMs !== undefined) {
            this.#timer = setTimeout(() => {
                this.#isLate = true;
                this.#controller.abort();
            }, this.deadlineMs);
        }
    }

    #abort = (): void => this.#controller.abort();

    /** Cancel what still runs. */
    end(): void {
        clearTimeout(this.#timer);
        this.#outer?.removeEventListener("abort", this.#abort);
        this.#controller.abort();
    }

    /** Return the error of a call that was aborted, or could not be made. */
    failure(error: unknown): ServiceError {
        if (error instanceof ServiceError) return error;
        if (this.#isLate) return new ServiceError("DEADLINE_EXCEEDED", "The deadline has passed");
        if (this.signal.aborted) return new ServiceError("CANCELLED", "The call was cancelled");
        const reason = error instanceof Error ? error.message : String(error);
        return new ServiceError("UNAVAILABLE", `The server cannot be reached: ${reason}`);
    }
}

function errorOf(document: unknown, status: number): ServiceError {
    const found: Record<string, unknown> =
        typeof document === "object" && document !== null ? { ...document } : {};
    const code = found["error"] ?? found["code"];
    return new ServiceError(
        typeof code === "string" ? code : `HTTP_${status}`,
        typeof found["message"] === "string" ? found["message"] : `The status is ${status}`,
        found["details"],
        status,
    );
}

async function responseError(response: Response): Promise<ServiceError> {
    const text = await response.text();
    try {
        return errorOf(JSON.parse(text), response.status);
    } catch {
        return errorOf(undefined, response.status);
    }
}

async function headersOf(client: ClientOptions, call: CallOptions): Promise<Headers> {
    const headers = new Headers(client.headers);
    const token = call.token ?? (await current(client.token));
    if (token) headers.set("Authorization", `Bearer ${token}`);
    const apiKey = await current(client.apiKey);
    if (apiKey) headers.set(client.apiKeyHeader ?? "X-API-Key", apiKey);
    return headers;
}
