// A client of market_index without dependencies, for browsers and for Node 20.3 or later. Types: client.d.ts.
//
// Books have the form of the API, but amounts are BigInt: JSON.parse alone rounds integers above 2^53. Prices stay texts.

// Quotes within a string are escaped, so this matches only members of objects.
const AMOUNT = /"accumulated_liquidity"\s*:\s*(\d+)(?![\d.eE])/g;
const TEMPORARY = [408, 429];
/** The service sends a comment after two seconds of silence. Times are milliseconds. */
const OPTIONS = { silence: 5000, timeout: 10_000, maxBackoff: 30_000, cached: 100 };

/** The service failed, or sent an invalid response. `status` is that of the response, null without one. */
export class ServiceError extends Error {
  constructor(message, status = null) {
    super(message);
    this.status = status;
  }
}

/** A price, and a BigInt. In JSON, the amount is a text, which `parse` reads. */
class PriceLevel {
  toJSON() {
    return { ...this, accumulated_liquidity: `${this.accumulated_liquidity}` };
  }
}

/** Parse a JSON text of the API. Amounts become BigInt. Throws SyntaxError if one is not a whole number. */
export function parse(text) {
  return JSON.parse(text.replace(AMOUNT, '"accumulated_liquidity":"$1"'), (key, value) => {
    if (typeof value?.accumulated_liquidity === "bigint") return Object.assign(new PriceLevel(), value);
    if (key !== "accumulated_liquidity") return value;
    if (typeof value !== "string" || !/^\d+$/.test(value)) throw new SyntaxError(`an amount must be an integer, got ${value}`);
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

/**
 * Return a number with its point moved, as an exact text. In whole units, an amount is `shifted(amount, -decimals)`, and a
 * price `shifted(price, baseDecimals - quoteDecimals)`.
 */
export function shifted(number, places) {
  const [, sign, whole, fraction = ""] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(`${number}`);
  const digits = "0".repeat(Math.max(-places, 0)) + whole + fraction + "0".repeat(Math.max(places - fraction.length, 0));
  const point = digits.length - Math.max(fraction.length - places, 0);
  const [before, after] = [digits.slice(0, point).replace(/^0+(?=\d)/, ""), digits.slice(point).replace(/0+$/, "")];
  return `${sign}${before}${after && `.${after}`}`;
}

/** Return a book with a change of the stream: its levels have their new amounts, 0 if they are removed. */
export function withChange(book, { spot, bids, asks }) {
  const side = (levels, changes, direction) => {
    if (changes.length === 0) return levels;
    const byPrice = new Map([...levels, ...changes].map((level) => [level.price, level]));
    const found = [...byPrice.values()].filter((level) => level.accumulated_liquidity > 0n);
    return found.sort((level, next) => direction * comparePrices(level.price, next.price));
  };
  return { ...book, spot, bids: side(book.bids, bids, -1), asks: side(book.asks, asks, 1) };
}

export class Client {
  #base;
  #options;
  #headers = {};
  #cached = new Map();

  /**
   * `base` is where the service is served or mounted; a name and password in it are sent by Basic authentication. Options:
   * `silence` after which a stream is lost, `timeout` of a request, `maxBackoff` between two streams, in milliseconds; and
   * how many responses are `cached`.
   */
  constructor(base, options = {}) {
    this.#base = new URL(`${base}`.replace(/\/*$/, "/"));
    const { username, password } = this.#base;
    // fetch rejects an address with credentials.
    if (username || password) {
      const bytes = new TextEncoder().encode([username, password].map(decodeURIComponent).join(":"));
      this.#headers.Authorization = `Basic ${btoa(String.fromCharCode(...bytes))}`;
      [this.#base.username, this.#base.password] = ["", ""];
    }
    this.#options = { ...OPTIONS, ...options };
  }

  /** Return the tracked pairs, each with `base`, `quote` and `last_spot`. */
  async pairList(options) {
    return (await this.get("trading-view/pair-list", options)).pairs;
  }

  /** Return the tracked pairs, each with its best prices, spread and numbers of levels. Only `serve` has them. */
  async summary(options) {
    return (await this.get("summary", options)).pairs;
  }

  /** Return the assets of the tracked pairs by identifier, each with its name and decimals. Only `serve` has them. */
  async tokens(options) {
    return new Map((await this.get("tokens", options)).tokens.map((token) => [token.id, token]));
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
    const timeout = AbortSignal.timeout(this.#options.timeout);
    const response = await this.#send(path, cached ? { "If-None-Match": cached.etag } : {}, signal, timeout);
    const text = await reached(response.text(), signal, timeout);
    if (!response.ok && response.status !== 304 && !expected.includes(response.status)) throw failure(response, text);
    const value = response.status === 304 && cached ? cached.value : valid(text, response.status);
    const etag = response.headers.get("ETag");
    // A map is in the order of insertion: the first one was not used for the longest time.
    this.#cached.delete(path);
    if (etag !== null) this.#cached.set(path, { etag, value });
    if (this.#cached.size > this.#options.cached) this.#cached.delete(this.#cached.keys().next().value);
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
   * The time is null while an open stream has sent no version: the service has nothing to send yet.
   * Throws ServiceError if the service rejects the request, and errors of `onVersion`.
   */
  async follow(pairs, { onVersion, onSilence = () => {}, signal }) {
    const books = new Map();
    let failures = 0;
    while (!signal?.aborted) {
      let reason = new ServiceError("The stream has ended.");
      try {
        for await (const version of this.#versions(pairs, books, onSilence, signal)) {
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
      const backoff = Math.min(1000 * 2 ** failures, this.#options.maxBackoff) * (0.5 + Math.random() / 2);
      failures += 1;
      onSilence(reason, backoff);
      await pause(backoff, signal);
    }
  }

  /** Yield each version of one connection, and update the books just before. */
  async *#versions(pairs, books, onSilence, signal) {
    let staged = new Map();
    let isFirst = true;
    for await (const [name, text] of this.#events(pairs, onSilence, signal)) {
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

  /** Yield the name and the data of each event, by the rules of the HTML standard. */
  async *#events(pairs, onSilence, signal) {
    const silence = new AbortController();
    const openedAt = performance.now();
    let timer = null;
    let isWaiting = true;
    const listen = () => {
      clearTimeout(timer);
      const seconds = this.#options.silence / 1000;
      const error = new ServiceError(`The stream was silent for ${seconds} seconds.`);
      timer = setTimeout(() => silence.abort(error), this.#options.silence);
    };
    listen();
    try {
      const query = pairs.length > 0 ? `&${new URLSearchParams({ pairs: pairs.join() })}` : "";
      const response = await this.#send(`stream?levels=changed${query}`, {}, signal, silence.signal);
      if (!response.ok) throw failure(response, await reached(response.text(), signal, silence.signal));
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let [text, name, data] = ["", "", []];
      for (;;) {
        const { done, value } = await reached(reader.read(), signal, silence.signal);
        if (done) return;
        listen();
        if (isWaiting && performance.now() - openedAt > this.#options.silence) {
          isWaiting = false;
          onSilence(new ServiceError("The stream has sent no version."), null);
        }
        // The second character of a CRLF may be in the next piece.
        const lines = (text + value).split(/\r\n|\n|\r(?!$)/);
        text = lines.pop();
        for (const line of lines) {
          const [, field, content] = /^([^:]*):? ?(.*)$/s.exec(line);
          if (field === "event") name = content;
          else if (field === "data") data.push(content);
          else if (line === "") {
            if (name === "version") isWaiting = false;
            if (data.length > 0) yield [name, data.join("\n")];
            [name, data] = ["", []];
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
    const all = { ...this.#headers, ...headers };
    const request = fetch(new URL(path, this.#base), { cache: "no-store", headers: all, signal: signals });
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
    const cause = error.cause?.message ?? error.message;
    throw new ServiceError(timeout.aborted ? "The service did not respond in time." : `The service cannot be reached: ${cause}.`);
  }
}

function failure({ status }, text) {
  return new ServiceError(`The service responded with an error (${status}): ${text.slice(0, 300)}`, status);
}

function valid(text, status = null) {
  try {
    return parse(text);
  } catch {
    throw new ServiceError("The service sent an invalid response.", status);
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
    if (signal?.aborted) end();
  });
}
