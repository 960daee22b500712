// The two endpoints, asked again and again: with what is known already, so that an answer that still holds is a 304.
// And /healthz, which reports how the feed of the service is doing.

import { decimal, readJson } from "./exact.js";

export const INTERVAL = 2000;
export const LONGEST_INTERVAL = 30000;
const PATIENCE = 10000;

/** The service does not answer as it should; the message says how, to a reader. */
export class Trouble extends Error {}

/** The pair is not tracked. */
export class Absent extends Error {}

/** One address, and its last answer. */
export class Resource {
  #url;
  #read;
  #etag = null;
  value = null;
  changed = null;
  confirmed = null;
  asOf = null;

  constructor(path, read) {
    this.#url = path;
    this.#read = read;
  }

  /**
   * Ask whether the answer still holds. Return whether there is another; then `value` is it. `changed` is when that took
   * the place of the one before, null while there was none, and `confirmed` when it was last known to hold. `asOf` is
   * what it reflects, in terms of the publisher, null where that is not known.
   */
  async ask(signal) {
    const patience = AbortSignal.timeout(PATIENCE);
    try {
      const answer = await fetch(this.#url, {
        cache: "no-store",
        headers: this.#etag === null ? {} : { "If-None-Match": this.#etag },
        signal: AbortSignal.any([signal, patience]),
      });
      if (answer.status === 304) {
        // Else the browser has it that the answer, which has no body, was never read to its end.
        await answer.text();
        this.#confirm(answer);
        return false;
      }
      if (answer.status === 404) throw new Absent();
      if (!answer.ok) throw new Trouble(`The service answers with an error (${answer.status}).`);
      const text = await answer.text();
      const value = readable(this.#read, text);
      this.#confirm(answer);
      if (this.value !== null) this.changed = this.confirmed;
      this.value = value;
      this.#etag = answer.headers.get("ETag");
      return true;
    } catch (error) {
      if (error instanceof Trouble || error instanceof Absent || signal.aborted) throw error;
      throw new Trouble(patience.aborted ? "The service does not answer." : "The service cannot be reached.");
    }
  }

  #confirm(answer) {
    this.confirmed = new Date();
    this.asOf = answer.headers.get("Market-Index-As-Of");
  }
}

/** Return what /healthz answers, and whether the service is healthy; null where a proxy hides it. */
export async function health(signal) {
  try {
    const patience = AbortSignal.any([signal, AbortSignal.timeout(PATIENCE)]);
    const answer = await fetch("healthz", { cache: "no-store", signal: patience });
    return { ...(await answer.json()), isHealthy: answer.ok };
  } catch {
    return null;
  }
}

export function pairList() {
  return new Resource("trading-view/pair-list", readPairList);
}

export function orderBook(pair) {
  return new Resource(`trading-view/order-book?base=${pair.base}&quote=${pair.quote}`, readOrderBook);
}

function readable(read, text) {
  try {
    return read(text);
  } catch {
    throw new Trouble("The service answers with what is no answer of the API.");
  }
}

function readPairList(text) {
  // There is no number in a pair list: prices are strings.
  return JSON.parse(text).pairs.map(({ base, quote, last_spot: spot }) => {
    if (typeof base !== "string" || typeof quote !== "string") throw new SyntaxError("not an identifier");
    if (spot !== null) decimal(spot);
    return { base, quote, spot, key: `${base}/${quote}` };
  });
}

function readOrderBook(text) {
  const { spot, bids, asks } = readJson(text);
  return {
    spot: spot === null ? null : { text: spot, value: decimal(spot) },
    bids: bids.map(readLevel),
    asks: asks.map(readLevel),
  };
}

function readLevel({ price, accumulated_liquidity: amount }) {
  if (typeof amount !== "bigint") throw new SyntaxError("not an amount");
  return { price, value: decimal(price), amount };
}

/** Does its work every two seconds while the page is looked at; less often while the work fails. */
export class Rounds {
  #work;
  #failed;
  #failures = 0;
  #timer = 0;
  #running = null;

  /** `work(signal)` is done each time; `failed(trouble)` is told of every failure. */
  constructor(work, failed) {
    this.#work = work;
    this.#failed = failed;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#stop() : this.now()));
  }

  /** Do the work at once, in place of what is being done. */
  async now() {
    this.#stop();
    const running = (this.#running = new AbortController());
    try {
      await this.#work(running.signal);
      this.#failures = 0;
    } catch (error) {
      if (running.signal.aborted) return;
      this.#failures += 1;
      try {
        this.#failed(error);
      } catch (another) {
        // Whatever cannot be shown, what there is to know is asked for again.
        reportError(another);
      }
    }
    if (running !== this.#running || document.hidden) return;
    const wait = Math.min(INTERVAL * 2 ** Math.max(this.#failures - 1, 0), LONGEST_INTERVAL);
    this.#timer = setTimeout(() => this.now(), wait);
  }

  #stop() {
    clearTimeout(this.#timer);
    this.#running?.abort();
  }
}
