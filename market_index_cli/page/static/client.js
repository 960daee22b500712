// A client of market_index without dependencies, for browsers and for Node 20.3 or later. Types: client.d.ts.
//
// Books have the form of the API, but amounts are BigInt: JSON.parse alone rounds integers above 2^53. Prices stay texts.

const SILENCE_MILLISECONDS = 5000; // The service sends a comment after two seconds of silence.
const SILENT = "The stream was silent for 5 seconds.";
const TIMEOUT_MILLISECONDS = 10_000;
const MAX_BACKOFF_MILLISECONDS = 30_000;
// Quotes within a string are escaped, so this matches only members of objects.
const AMOUNT = /"accumulated_liquidity"\s*:\s*(\d+)(?![\d.eE])/g;
const TEMPORARY = [408, 429];

/** The service failed, or sent an invalid response. `status` is that of the response, null without one. */
export class ServiceError extends Error {
  constructor(message, status = null) {
    super(message);
    this.status = status;
  }
}

/** Parse a JSON text of the API. Amounts become BigInt. Throws SyntaxError if one is not a whole number. */
export function parse(text) {
  return JSON.parse(text.replace(AMOUNT, '"accumulated_liquidity":"$1"'), (key, value) => {
    if (key !== "accumulated_liquidity") return value;
    if (typeof value !== "string") throw new SyntaxError(`an amount must be an integer, got ${value}`);
    return BigInt(value);
  });
}

/** Return a number below, equal to or above 0, for sorting: prices of the API are fixed-point texts without zeros to trim. */
export function comparePrices(one, other) {
  const [[whole, places = ""], [otherWhole, otherPlaces = ""]] = [one.split("."), other.split(".")];
  if (whole.length !== otherWhole.length) return whole.length - otherWhole.length;
  const [left, right] = [`${whole}.${places}`, `${otherWhole}.${otherPlaces}`];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** Return a book with a change of the stream: its levels have their new amounts, 0 if they are removed. */
export function withChange(book, { spot, bids, asks }) {
  const side = (levels, changes, direction) => {
    const byPrice = new Map([...levels, ...changes].map((level) => [level.price, level]));
    const found = [...byPrice.values()].filter((level) => level.accumulated_liquidity > 0n);
    return found.sort((level, next) => direction * comparePrices(level.price, next.price));
  };
  return { ...book, spot, bids: side(book.bids, bids, -1), asks: side(book.asks, asks, 1) };
}

export class Client {
  #base;
  #cached = new Map();

  /** `base` is where the service is served or mounted. */
  constructor(base) {
    this.#base = `${base}`.replace(/\/*$/, "/");
  }

  /** Return the tracked pairs, each with `base`, `quote` and `last_spot`. */
  async pairList(options) {
    return (await this.get("trading-view/pair-list", options)).pairs;
  }

  /** Return the book of a pair; null if the pair is not tracked. */
  async orderBook(base, quote, options) {
    try {
      return await this.get(`trading-view/order-book?${new URLSearchParams({ base, quote })}`, options);
    } catch (error) {
      if (error.status === 404) return null;
      throw error;
    }
  }

  /**
   * Return the parsed response of a path; the same object as before if the response is unchanged. A status other than 200
   * is an error, unless it is one of `expected`.
   */
  async get(path, { signal, expected = [] } = {}) {
    const cached = this.#cached.get(path);
    const timeout = AbortSignal.timeout(TIMEOUT_MILLISECONDS);
    const headers = cached ? { "If-None-Match": cached.etag } : {};
    const response = await this.#send(path, headers, signal, timeout);
    const text = await reached(response.text(), signal, timeout);
    if (response.status === 304 && cached) return cached.value;
    if (!response.ok && !expected.includes(response.status)) throw failure(response, text);
    const value = valid(text);
    const etag = response.headers.get("ETag");
    if (etag !== null) this.#cached.set(path, { etag, value });
    return value;
  }

  /**
   * Follow the books of some pairs, such as ["ADA/279c…:534e454b"], or of all if `pairs` is empty, until `signal` aborts.
   *
   * `onVersion({ books, changed, isFirst, asOf, publishedAt })` is called with each version of the service as a whole.
   * `books` is a Map from BASE/QUOTE to the book; a pair that is not tracked is not in it. It changes only before the next
   * call. `changed` has the pairs that the version replaced or removed. `isFirst` marks the first version of a connection.
   *
   * `onSilence(error, milliseconds)` is called if the stream is lost: with the reason, and the time until it is opened again.
   * Throws ServiceError if the service rejects the request, and errors of `onVersion`.
   */
  async follow(pairs, { onVersion, onSilence = () => {}, signal }) {
    const books = new Map();
    let failures = 0;
    while (!signal?.aborted) {
      let reason = new ServiceError("The stream has ended.");
      try {
        for await (const version of this.#versions(pairs, books, signal)) {
          failures = 0;
          onVersion(version);
        }
      } catch (error) {
        if (signal?.aborted) return;
        const isRejected = error.status >= 400 && error.status < 500 && !TEMPORARY.includes(error.status);
        if (!(error instanceof ServiceError) || isRejected) throw error;
        reason = error;
      }
      if (signal?.aborted) return;
      // Random: otherwise all clients of a service that restarts come back together.
      const backoff = Math.min(1000 * 2 ** failures, MAX_BACKOFF_MILLISECONDS) * (0.5 + Math.random() / 2);
      failures += 1;
      onSilence(reason, backoff);
      await pause(backoff, signal);
    }
  }

  /** Yield each version of one connection, and update the books just before. */
  async *#versions(pairs, books, signal) {
    let staged = new Map();
    let isFirst = true;
    for await (const [name, text] of this.#events(pairs, signal)) {
      const value = valid(text);
      const key = `${value.base}/${value.quote}`;
      if (name === "book") staged.set(key, value);
      else if (name === "retract") staged.set(key, null);
      else if (name === "change") {
        const before = staged.get(key) ?? (isFirst ? null : books.get(key));
        if (!before) throw new ServiceError(`The service sent a change without a book: ${key}.`);
        staged.set(key, withChange(before, value));
      } else if (name === "version") {
        // The first version of a connection has all books.
        if (isFirst) for (const known of books.keys()) if (!staged.has(known)) staged.set(known, null);
        for (const [one, book] of staged) book === null ? books.delete(one) : books.set(one, book);
        yield { books, changed: [...staged.keys()], isFirst, asOf: value.as_of, publishedAt: value.published_at };
        staged = new Map();
        isFirst = false;
      }
    }
  }

  /** Yield the name and the data of each event. */
  async *#events(pairs, signal) {
    const silence = new AbortController();
    let timer = null;
    const listen = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(new ServiceError(SILENT)), SILENCE_MILLISECONDS);
    };
    listen();
    try {
      const query = pairs.length > 0 ? `&${new URLSearchParams({ pairs: pairs.join() })}` : "";
      const response = await this.#send(`stream?levels=changed${query}`, {}, signal, silence.signal);
      if (!response.ok) throw failure(response, await reached(response.text(), signal, silence.signal));
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let [text, name, data] = ["", "", ""];
      for (;;) {
        const { done, value } = await reached(reader.read(), signal, silence.signal);
        if (done) return;
        listen();
        const lines = (text + value).split(/\r?\n/);
        text = lines.pop();
        for (const line of lines) {
          // Other lines are comments, or have what this client does not need.
          if (line.startsWith("event: ")) name = line.slice(7);
          else if (line.startsWith("data: ")) data = line.slice(6);
          else if (line === "") {
            if (data) yield [name, data];
            [name, data] = ["", ""];
          }
        }
      }
    } finally {
      clearTimeout(timer);
      silence.abort(); // Closes the connection.
    }
  }

  #send(path, headers, signal, timeout) {
    const signals = signal ? AbortSignal.any([signal, timeout]) : timeout;
    const request = fetch(new URL(path, this.#base), { cache: "no-store", headers, signal: signals });
    return reached(request, signal, timeout);
  }
}

/** Return the result of a request. Throws ServiceError with the reason if there is none, unless the caller aborted it. */
async function reached(result, signal, timeout) {
  try {
    return await result;
  } catch (error) {
    if (signal?.aborted) throw error;
    if (timeout.reason instanceof ServiceError) throw timeout.reason;
    throw new ServiceError(timeout.aborted ? "The service did not respond in time." : "The service cannot be reached.");
  }
}

function failure({ status }, text) {
  return new ServiceError(`The service responded with an error (${status}): ${text.slice(0, 300)}`, status);
}

function valid(text) {
  try {
    return parse(text);
  } catch {
    throw new ServiceError("The service sent an invalid response.");
  }
}

/** Wait for a time, or until the signal aborts. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal?.addEventListener("abort", end);
  });
}
