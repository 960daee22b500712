const AMOUNT = /"accumulated_liquidity"\s*:\s*(\d+)(?![\d.eE])/g;

/** Parses the JSON of the API: prices are strings, amounts are BigInt. */
export function parse(text) {
  return JSON.parse(text.replace(AMOUNT, '"accumulated_liquidity":"$1"'), (key, value) => {
    if (key !== "accumulated_liquidity") return value;
    if (typeof value !== "string") throw new Error(`an amount must be an integer, got ${value}`);
    return BigInt(value);
  });
}

/** Reads the API with a cache, which it revalidates at each request. */
export class Reader {
  #base;
  #cache = new Map();

  /** `base` is where the app is served or mounted, such as http://127.0.0.1:8000/api. */
  constructor(base) {
    this.#base = base.endsWith("/") ? base : `${base}/`;
  }

  pairList() {
    return this.#get("trading-view/pair-list");
  }

  /** Returns the book; null if the pair is not tracked. */
  orderBook(base, quote) {
    return this.#get(`trading-view/order-book?${new URLSearchParams({ base, quote })}`, null);
  }

  /** Yields each version of a book; null while the pair is not tracked. Throws if a request fails. */
  async *orderBooks(base, quote, pollMilliseconds = 2000) {
    const path = `trading-view/order-book?${new URLSearchParams({ base, quote })}`;
    let seen;
    for (;;) {
      const [value, isAnswered] = await this.#send(path, null, 20);
      if (value !== seen) yield (seen = value);
      if (!isAnswered) await new Promise((resolve) => setTimeout(resolve, pollMilliseconds));
    }
  }

  async #get(path, absent) {
    const [value] = await this.#send(path, absent, 0);
    return value;
  }

  /** Returns the value, and whether the next request can follow immediately: this one has waited, or found a book. */
  async #send(path, absent, waitSeconds) {
    const cached = this.#cache.get(path);
    const headers = cached ? { "If-None-Match": cached.etag } : {};
    if (cached && waitSeconds) headers.Prefer = `wait=${waitSeconds}`;
    const signal = AbortSignal.timeout(10_000 + 1000 * waitSeconds);
    const response = await fetch(new URL(path, this.#base), { headers, cache: "no-store", signal });
    const text = await response.text();
    if (response.status === 304) return [cached.value, response.headers.has("preference-applied")];
    if (response.status === 404 && absent !== undefined) return [absent, false];
    if (!response.ok) throw new Error(`${response.status}: ${text}`);
    const value = parse(text);
    const etag = response.headers.get("etag");
    if (etag !== null) this.#cache.set(path, { etag, value });
    return [value, etag !== null];
  }
}
