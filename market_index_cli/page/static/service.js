// The client of the service: it polls the two endpoints with If-None-Match, so that an unchanged response is a 304, and
// /healthz, which reports the state of the feed.

import { decimal, parseExact } from "./exact.js";

export const POLL_MILLISECONDS = 2000;
export const MAX_POLL_MILLISECONDS = 30000;
const TIMEOUT_MILLISECONDS = 10000;

/** The service failed, or sent an invalid response. The message is shown to the visitor. */
export class ServiceError extends Error {}

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
  value = null;
  changed = null;
  confirmed = null;
  asOf = null;

  constructor(path, parse) {
    this.#path = path;
    this.#parse = parse;
  }

  /** Request the resource, and return whether its value changed. */
  async refresh(signal) {
    const timeout = AbortSignal.timeout(TIMEOUT_MILLISECONDS);
    try {
      const response = await fetch(this.#path, {
        cache: "no-store",
        headers: this.#etag === null ? {} : { "If-None-Match": this.#etag },
        signal: AbortSignal.any([signal, timeout]),
      });
      if (response.status === 304) {
        // Otherwise the browser considers the response, although its body is empty, as not read to the end.
        await response.text();
        this.#confirm(response);
        return false;
      }
      if (response.status === 404) throw new NotFound();
      if (!response.ok) throw new ServiceError(`The service responded with an error (${response.status}).`);
      const text = await response.text();
      const value = parsed(this.#parse, text);
      this.#confirm(response);
      if (this.value !== null) this.changed = this.confirmed;
      this.value = value;
      this.#etag = response.headers.get("ETag");
      return true;
    } catch (error) {
      if (error instanceof ServiceError || error instanceof NotFound || signal.aborted) throw error;
      throw new ServiceError(timeout.aborted ? "The service did not respond in time." : "The service cannot be reached.");
    }
  }

  #confirm(response) {
    this.confirmed = new Date();
    this.asOf = response.headers.get("Market-Index-As-Of");
  }
}

/** Return the status from /healthz, and whether the service is healthy; null without a valid response. */
export async function fetchHealth(signal) {
  try {
    const timeout = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MILLISECONDS)]);
    const response = await fetch("healthz", { cache: "no-store", signal: timeout });
    return { ...(await response.json()), isHealthy: response.ok };
  } catch {
    return null;
  }
}

export function pairList() {
  return new Resource("trading-view/pair-list", parsePairList);
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
    spot: spot === null ? null : { text: spot, value: decimal(spot) },
    bids: bids.map(parseLevel),
    asks: asks.map(parseLevel),
  };
}

function parseLevel({ price, accumulated_liquidity: amount }) {
  if (typeof amount !== "bigint") throw new SyntaxError("not an amount");
  return { price, value: decimal(price), amount };
}

/** Runs a task every two seconds while the page is visible; with exponential backoff while the task fails. */
export class Poller {
  #task;
  #onFailure;
  #failures = 0;
  #timer = 0;
  #running = null;

  /** `task(signal)` is called each time, and `onFailure(error)` for each error that it throws. */
  constructor(task, onFailure) {
    this.#task = task;
    this.#onFailure = onFailure;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#stop() : this.now()));
  }

  /** Abort the task if it runs, and run it now. */
  async now() {
    this.#stop();
    const running = (this.#running = new AbortController());
    try {
      await this.#task(running.signal);
      this.#failures = 0;
    } catch (error) {
      if (running.signal.aborted) return;
      this.#failures += 1;
      try {
        this.#onFailure(error);
      } catch (another) {
        // Polling continues even if the failure cannot be shown.
        reportError(another);
      }
    }
    if (running !== this.#running || document.hidden) return;
    const wait = Math.min(POLL_MILLISECONDS * 2 ** Math.max(this.#failures - 1, 0), MAX_POLL_MILLISECONDS);
    this.#timer = setTimeout(() => this.now(), wait);
  }

  #stop() {
    clearTimeout(this.#timer);
    this.#running?.abort();
  }
}
