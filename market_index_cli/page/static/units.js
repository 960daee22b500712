// The units of the numbers of a pair: whole units by the decimals of the assets, or smallest units as in the API.

import { shifted, text, whole } from "./exact.js";

export class Units {
  #shift;
  #places;

  /** `isWhole` demands whole units. An asset whose decimals are not known counts in smallest units. */
  constructor({ base, quote }, tokens, isWhole) {
    const decimals = (id) => (isWhole ? (tokens.decimals(id) ?? 0) : 0);
    this.#places = decimals(base);
    this.#shift = decimals(base) - decimals(quote);
  }

  /** Return a price in these units. */
  price(value) {
    return shifted(value, this.#shift);
  }

  /** Return an amount, or a total, in these units. */
  amount(amount) {
    return shifted(whole(amount), -this.#places);
  }

  /** Return a parsed order book with prices in these units. Amounts stay in smallest units, for arithmetic. */
  book({ spot, bids, asks }) {
    const priced = (one) => {
      const value = this.price(one.value);
      return { ...one, price: text(value), value };
    };
    return { spot: spot && priced(spot), bids: bids.map(priced), asks: asks.map(priced), units: this };
  }
}

/** Return the sentences that name the units of a pair: texts, and labels of assets as `{ name }`. */
export function unitsLine({ base, quote }, tokens, isWhole) {
  const unit = (id, smallest) => {
    const name = tokens.nameOf(id);
    if (isWhole && tokens.decimals(id) !== null) return [{ name }];
    if (id === "ADA") return ["lovelace"];
    return [`${smallest} of `, { name }, ...(isWhole ? [" (whose decimals are not known)"] : [])];
  };
  const amounts = unit(base, "smallest units");
  return ["Prices: ", ...unit(quote, "smallest units"), " for one ", ...unit(base, "smallest unit"), ". Amounts: ", ...amounts, "."];
}
