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

  async #get(path, absent) {
    const cached = this.#cache.get(path);
    const headers = cached ? { "If-None-Match": cached.etag } : {};
    const response = await fetch(new URL(path, this.#base), { headers, cache: "no-store" });
    if (response.status === 304) return cached.value;
    const text = await response.text();
    if (response.status === 404 && absent !== undefined) return absent;
    if (!response.ok) throw new Error(`${response.status}: ${text}`);
    const value = parse(text);
    const etag = response.headers.get("etag");
    if (etag !== null) this.#cache.set(path, { etag, value });
    return value;
  }
}
