type Value = string | number | boolean | null | undefined;

/** Calls of routes over HTTP. */
class Routes {
    #base: string;
    #options: ClientOptions;

    constructor(base: string, options: ClientOptions) {
        this.#base = base.replace(/\/+$/, "");
        this.#options = options;
    }

    /** Call a route; the result is JSON, other text, or undefined without a body. */
    async call(
        method: string,
        path: string,
        query: Record<string, Value | Value[]>,
        headers: Record<string, Value>,
        body: { value: unknown } | undefined,
        options: CallOptions = {},
    ): Promise<unknown> {
        const lifetime = new Lifetime(this.#options, options);
        try {
            const fields = await headersOf(this.#options, options);
            for (const [name, value] of Object.entries(headers)) {
                if (value !== undefined && value !== null) fields.set(name, String(value));
            }
            if (body) fields.set("Content-Type", "application/json");
            const search = new URLSearchParams();
            for (const [name, value] of Object.entries(query)) {
                for (const each of Array.isArray(value) ? value : [value]) {
                    if (each !== undefined && each !== null) search.append(name, String(each));
                }
            }
            const suffix = `${search}` ? `?${search}` : "";
            const response = await fetch(`${this.#base}${path}${suffix}`, {
                method,
                headers: fields,
                signal: lifetime.signal,
                ...(body ? { body: JSON.stringify(body.value) } : {}),
                ...(this.#options.credentials ? { credentials: this.#options.credentials } : {}),
            });
            if (!response.ok) throw await responseError(response);
            const text = await response.text();
            if (!text) return undefined;
            const isJSON = /[/+]json\b/i.test(response.headers.get("Content-Type") ?? "");
            return isJSON ? (JSON.parse(text) as unknown) : text;
        } catch (error) {
            throw lifetime.failure(error);
        } finally {
            lifetime.end();
        }
    }
}
