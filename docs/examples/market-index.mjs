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

  /**
   * Follows the books of some pairs, such as ["ADA/279c…:534e454b"]; of all without pairs. Calls `onBook(pair, book)` with
   * each book first and after each change of it, null while its pair is not tracked. Throws when the stream ends.
   */
  async follow(pairs, onBook) {
    const silence = new AbortController();
    const wait = () => setTimeout(() => silence.abort(new Error("the stream was silent for 15 seconds")), 15_000);
    let timer = wait();
    try {
      const query = pairs.length ? `?${new URLSearchParams({ pairs })}` : "";
      const response = await fetch(new URL(`stream${query}`, this.#base), { signal: silence.signal });
      if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
      let text = "";
      for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
        clearTimeout(timer);
        timer = wait();
        const events = (text + part.replaceAll("\r", "")).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const [, name, body] = /^event: (\w+)\ndata: (.*)$/m.exec(event) ?? [];
          if (name !== "book" && name !== "retract") continue; // a comment, or the end of a version
          const { base, quote } = parse(body);
          onBook(`${base}/${quote}`, name === "book" ? parse(body) : null);
        }
      }
      throw new Error("the stream has ended");
    } finally {
      clearTimeout(timer);
    }
  }

  async #get(path, absent) {
    const cached = this.#cache.get(path);
    const headers = cached ? { "If-None-Match": cached.etag } : {};
    const signal = AbortSignal.timeout(10_000);
    const response = await fetch(new URL(path, this.#base), { headers, cache: "no-store", signal });
    const text = await response.text();
    if (response.status === 304) return cached.value;
    if (response.status === 404 && absent !== undefined) return absent;
    if (!response.ok) throw new Error(`${response.status}: ${text}`);
    const value = parse(text);
    const etag = response.headers.get("etag");
    if (etag !== null) this.#cache.set(path, { etag, value });
    return value;
  }
}
