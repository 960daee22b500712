// The selected book: it follows the stream. Without a stream, as behind a proxy that blocks it, it is requested.

import { decimal } from "./exact.js";

export class SelectedBook {
  /** The parsed book; null until it is loaded. It stays after the pair was retracted. */
  value = null;
  /** Whether the pair is tracked; null until that is known. */
  isTracked = null;
  /** Whether the stream is open: then this book is that of the service's current version. */
  isStreamed = false;
  asOf = null;
  /** When the value last replaced another one: wall clock, to be shown. */
  changed = null;
  #source = null;

  constructor(pair) {
    this.pair = pair;
  }

  /** Take a book of the client; null or undefined if the pair is not tracked. */
  take(book) {
    this.isTracked = Boolean(book);
    if (!book || book === this.#source) return;
    const value = parsed(book);
    if (this.value !== null && !isEqual(value, this.value)) this.changed = new Date();
    [this.#source, this.value] = [book, value];
  }
}

/** Return a book with its prices also as decimals. Throws SyntaxError if one is not a price. */
export function parsed({ spot, bids, asks }) {
  const level = ({ price, accumulated_liquidity: amount }) => ({ price, value: decimal(price), amount });
  return {
    spot: spot === null ? null : { price: spot, value: decimal(spot) },
    bids: bids.map(level),
    asks: asks.map(level),
  };
}

function isEqual(one, other) {
  const side = (levels) => levels.map(({ price, amount }) => `${price} ${amount}`).join();
  const key = (book) => [book.spot?.price, side(book.bids), side(book.asks)].join("|");
  return key(one) === key(other);
}
