// The client of the service: it requests the two endpoints with If-None-Match, so that an unchanged response is a 304, and
// lets the requests wait for a change (Prefer: wait). /healthz reports the state of the feed.

import { decimal, parseExact } from "./exact.js";
import { Tokens } from "./names.js";

export const WAIT_SECONDS = 30;
export const POLL_MILLISECONDS = 2000;
// A book with 1,000 levels on each side takes about 40 ms to show. The browser needs time for the visitor, too.
export const CHANGE_MILLISECONDS = 200;
const MAX_RETRY_MILLISECONDS = 30000;
const TIMEOUT_MILLISECONDS = 10000;

/** The service failed, or sent an invalid response. The message is shown to the visitor. */
export class ServiceError extends Error {}

/** There was no response in time. */
export class TimedOut extends ServiceError {}

/** The pair is not tracked. */
export class NotFound extends Error {}

/**
 * An address and its last valid response, parsed as `value`.
 *
 * `changed` is when the value last replaced another one, null if it never did. `confirmed` is when the value was last
 * known to be current. `asOf` is what it reflects, in terms of the publisher; null if unknown. Times are wall clock.
 */
export class Resource {
  #path;
  #parse;
  #etag = null;
  #waits = false;
  value = null;
  changed = null;
  confirmed = null;
  asOf = null;

  constructor(path, parse) {
    this.#path = path;
    this.#parse = parse;
  }

  /** Request the resource, and return whether its value changed. The service may wait so many seconds for a change. */
  async refresh(signal, waitSeconds = 0) {
    const headers = this.#etag === null ? {} : { "If-None-Match": this.#etag };
    if (this.#etag !== null && waitSeconds > 0) headers.Prefer = `wait=${waitSeconds}`;
    const [response, text] = await request(this.#path, headers, signal, waitSeconds);
    if (response.headers.has("Preference-Applied")) this.#waits = true;
    else if (response.status === 304 || !response.headers.has("ETag")) this.#waits = false;
    if (response.status === 304) {
      this.#confirm(response);
      return false;
    }
    if (response.status === 404) throw new NotFound();
    if (!response.ok) throw new ServiceError(`The service responded with an error (${response.status}).`);
    const value = parsed(this.#parse, text);
    this.#confirm(response);
    if (this.value !== null) this.changed = this.confirmed;
    this.value = value;
    this.#etag = response.headers.get("ETag");
    return true;
  }

  /** The milliseconds until the next request: the polling interval if the service did not let the last one wait. */
  get pause() {
    return this.#waits ? CHANGE_MILLISECONDS : POLL_MILLISECONDS;
  }

  #confirm(response) {
    this.confirmed = new Date();
    this.asOf = response.headers.get("Market-Index-As-Of");
  }
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
async function request(path, headers, signal, waitSeconds = 0) {
  const timeout = AbortSignal.timeout(TIMEOUT_MILLISECONDS + 1000 * waitSeconds);
  try {
    const response = await fetch(path, { cache: "no-store", headers, signal: AbortSignal.any([signal, timeout]) });
    // Also that of a 304, which is empty: otherwise the browser considers the response as not read to the end.
    return [response, await response.text()];
  } catch (error) {
    if (signal.aborted) throw error;
    throw timeout.aborted
      ? new TimedOut("The service did not respond in time.")
      : new ServiceError("The service cannot be reached.");
  }
}

/** Wait so many milliseconds. Throws when the signal is aborted. */
export function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const end = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", end);
      resolve();
    }, milliseconds);
    signal.addEventListener("abort", end);
  });
}

export function pairList() {
  return new Resource("trading-view/pair-list", parsePairList);
}

/** Return the labels and decimals of tokens that the service has. */
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
    throw new ServiceError("The service sent an invalid response.");
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

/** Follows the service while the page is visible. After a failure it starts again, with exponential backoff. */
export class Follower {
  #follow;
  #onFailure;
  #failures = 0;
  #timer = 0;
  #running = null;

  /** `follow(signal)` runs until it fails; then `onFailure(error)` is called. It is aborted when the page is hidden. */
  constructor(follow, onFailure) {
    this.#follow = follow;
    this.#onFailure = onFailure;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#stop() : this.restart()));
  }

  /** Abort all requests, and start again. */
  async restart() {
    this.#stop();
    const running = (this.#running = new AbortController());
    try {
      await this.#follow(running.signal);
    } catch (error) {
      if (running.signal.aborted) return;
      running.abort();
      this.#failures += 1;
      if (!document.hidden) this.#timer = setTimeout(() => this.restart(), this.#backoff());
      this.#onFailure(error);
    }
  }

  /** Reset the backoff: everything was requested without a failure. */
  succeed() {
    this.#failures = 0;
  }

  #backoff() {
    return Math.min(POLL_MILLISECONDS * 2 ** (this.#failures - 1), MAX_RETRY_MILLISECONDS);
  }

  #stop() {
    clearTimeout(this.#timer);
    this.#running?.abort();
  }
}
