// The client of the service. It requests the list with If-None-Match, so that an unchanged response is a 304, and follows
// one book by the stream of changes. /healthz reports the state of the feed.

import { compare, decimal, parseExact } from "./exact.js";
import { Tokens } from "./names.js";

export const POLL_MILLISECONDS = 5000;
// The service sends a comment every five seconds, but a browser reports only events.
const QUIET_MILLISECONDS = 15000;
const TIMEOUT_MILLISECONDS = 10000;
const INVALID = "The service sent an invalid response.";

/** The service failed, or sent an invalid response. The message is shown to the visitor. */
export class ServiceError extends Error {}

/** The pair is not tracked. */
export class NotFound extends Error {}

/** An address and its last valid response, parsed as `value`. `asOf` is what it reflects, in terms of the publisher. */
export class Resource {
  #path;
  #parse;
  #etag = null;
  value = null;
  asOf = null;

  constructor(path, parse) {
    this.#path = path;
    this.#parse = parse;
  }

  /** Request the resource, and return whether its value changed. */
  async refresh(signal) {
    const headers = this.#etag === null ? {} : { "If-None-Match": this.#etag };
    const [response, text] = await request(this.#path, headers, signal);
    const isUnchanged = response.status === 304;
    if (response.status === 404) throw new NotFound();
    if (!response.ok && !isUnchanged) throw new ServiceError(`The service responded with an error (${response.status}).`);
    if (!isUnchanged) this.value = parsed(this.#parse, text);
    this.#etag = response.headers.get("ETag");
    this.asOf = response.headers.get("Market-Index-As-Of");
    return !isUnchanged;
  }
}

/**
 * The book of one pair. It follows the stream, and is requested while the stream is quiet, or blocked by a proxy.
 *
 * `value` is the parsed book, null until it is loaded; `isTracked` is null until it is known. `changed` is when the value
 * last replaced another one: wall clock, to be shown.
 */
export class Book {
  #resource;
  #events = null;
  #openedAt = -Infinity;
  #heardAt = -Infinity;
  #onChange;
  #onFailure;
  value = null;
  isTracked = null;
  asOf = null;
  changed = null;

  /** `onChange()` is called after each event; `onFailure(error)` after an invalid one, or without an error if there is no stream. */
  constructor(pair, onChange, onFailure) {
    this.pair = pair;
    this.#resource = orderBook(pair);
    this.#onChange = onChange;
    this.#onFailure = onFailure;
  }

  /** Follow the stream from its begin. */
  open() {
    this.close();
    this.#openedAt = performance.now();
    const pair = encodeURIComponent(`${this.pair.base}/${this.pair.quote}`);
    const events = (this.#events = new EventSource(`stream?pairs=${pair}&levels=changed`));
    const handlers = {
      book: (text) => this.#take(parseOrderBook(text)),
      change: (text) => this.#take(withChanges(this.value, parseOrderBook(text))),
      retract: () => (this.isTracked = false),
      version: (text) => (this.asOf = JSON.parse(text).as_of),
    };
    for (const [name, handle] of Object.entries(handlers)) {
      events.addEventListener(name, ({ data }) => {
        try {
          parsed(handle, data);
        } catch (error) {
          this.close();
          this.#onFailure(error);
          return;
        }
        this.#heardAt = performance.now();
        this.#onChange();
      });
    }
    events.addEventListener("error", () => {
      this.#heardAt = -Infinity;
      this.#onFailure();
    });
  }

  close() {
    this.#events?.close();
    this.#events = null;
    this.#heardAt = -Infinity;
  }

  /**
   * Request the book if the stream is quiet. To request a book that the list of pairs does not have would be an error.
   * The stream is opened again if it was refused, or has missed a change.
   */
  async check(signal, isListed) {
    const heardAt = this.#heardAt;
    if (performance.now() - heardAt < QUIET_MILLISECONDS) return;
    const found = isListed ? await loaded(this.#resource, signal) : null;
    // An event that arrived in the meantime is newer.
    if (signal.aborted || heardAt !== this.#heardAt) return;
    const hasMissed = this.isTracked !== (found !== null) || (found !== null && !isEqual(found, this.value));
    if (hasMissed && found !== null) this.#take(found);
    this.isTracked = found !== null;
    this.asOf = this.#resource.asOf;
    const isRefused = this.#events === null || this.#events.readyState === EventSource.CLOSED;
    if ((hasMissed || isRefused) && performance.now() - this.#openedAt > QUIET_MILLISECONDS) this.open();
  }

  #take(value) {
    if (this.value !== null && !isEqual(value, this.value)) this.changed = new Date();
    this.value = value;
    this.isTracked = true;
  }
}

/** Return the value of a resource; null if it is not there. */
export async function loaded(resource, signal) {
  try {
    await resource.refresh(signal);
    return resource.value;
  } catch (error) {
    if (error instanceof NotFound) return null;
    throw error;
  }
}

/** Return a parsed book with changes of the stream: levels with their new amounts, 0 for a removed one. */
export function withChanges(book, { spot, bids, asks }) {
  const side = (levels, changes, direction) => {
    const byPrice = new Map([...levels, ...changes].map((level) => [level.price, level]));
    const found = [...byPrice.values()].filter((level) => level.amount > 0n);
    return found.sort((one, other) => direction * compare(one.value, other.value));
  };
  return { spot, bids: side(book.bids, bids, -1), asks: side(book.asks, asks, 1) };
}

function isEqual(one, other) {
  const side = (levels) => levels.map(({ price, amount }) => `${price} ${amount}`).join();
  const key = (book) => book && [book.spot?.price, side(book.bids), side(book.asks)].join("|");
  return key(one) === key(other);
}

/** Return the status from /healthz, and whether the service is healthy; null without a valid status. */
export async function fetchHealth(signal) {
  const [response, text] = await request("healthz", {}, signal);
  try {
    return { ...JSON.parse(text), isHealthy: response.ok };
  } catch {
    return null;
  }
}

/** Return the response and its text. Throws `ServiceError` without a whole response. */
async function request(path, headers, signal) {
  const timeout = AbortSignal.timeout(TIMEOUT_MILLISECONDS);
  try {
    const response = await fetch(path, { cache: "no-store", headers, signal: AbortSignal.any([signal, timeout]) });
    // Also that of a 304, which is empty: otherwise the browser considers the response as not read to the end.
    return [response, await response.text()];
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ServiceError(timeout.aborted ? "The service did not respond in time." : "The service cannot be reached.");
  }
}

export function pairList() {
  return new Resource("trading-view/pair-list", parsePairList);
}

/** Return the labels, decimals and names of tokens that the service has. */
export function tokenRegistry() {
  return new Resource("tokens.json", (text) => new Tokens(JSON.parse(text)));
}

export function orderBook(pair) {
  return new Resource(`trading-view/order-book?base=${pair.base}&quote=${pair.quote}`, parseOrderBook);
}

function parsed(parse, text) {
  try {
    return parse(text);
  } catch {
    throw new ServiceError(INVALID);
  }
}

function parsePairList(text) {
  // A pair list contains no numbers: prices are strings.
  return JSON.parse(text).pairs.map(({ base, quote, last_spot: spot }) => {
    if (typeof base !== "string" || typeof quote !== "string") throw new SyntaxError("not an identifier");
    if (spot !== null) decimal(spot);
    return { base, quote, spot, key: `${base}/${quote}` };
  });
}

function parseOrderBook(text) {
  const { spot, bids, asks } = parseExact(text);
  return {
    spot: spot === null ? null : { price: spot, value: decimal(spot) },
    bids: bids.map(parseLevel),
    asks: asks.map(parseLevel),
  };
}

function parseLevel({ price, accumulated_liquidity: amount }) {
  if (typeof amount !== "bigint") throw new SyntaxError("not an amount");
  return { price, value: decimal(price), amount };
}
