// The units of the numbers of a pair: whole units by the decimals of the assets, or smallest units as in the API.

import { floor, product, shifted, whole } from "./exact.js";

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

  /** Return a value, a price times an amount, in these units. */
  value(value) {
    return shifted(value, this.#shift - this.#places);
  }

  /** Return the integer amount in smallest units that has this number in these units, rounded down. */
  smallest(number) {
    return floor(shifted(number, this.#places));
  }

  /** Return an integer amount in these units. */
  amount(amount) {
    return shifted(whole(amount), -this.#places);
  }

  /** Return what a level is worth: the sum of its prices times their amounts, in units of the quote. */
  worth({ prices }) {
    return prices.reduce((sum, one) => sum + product(this.price(one.value), this.amount(one.amount)), 0n);
  }
}

/**
 * Return the unit of the amounts of an asset: its name for whole units, or that of its smallest unit. Names are isolated:
 * they may have another direction. `isOne` is for a single unit.
 */
export function unitName(id, tokens, isWhole, isOne = false) {
  const name = `\u2068${tokens.nameOf(id)}\u2069`;
  if (isWhole && tokens.decimals(id) !== null) return name;
  if (id === "ADA") return "lovelace";
  return `smallest unit${isOne ? "" : "s"} of ${name}${isWhole ? " (whose decimals are not known)" : ""}`;
}

/** Return the sentence that names the units of a pair. */
export function unitsLine({ base, quote }, tokens, isWhole) {
  const [one, amounts, values] = [[base, true], [base], [quote]].map(([id, isOne]) => unitName(id, tokens, isWhole, isOne));
  return `Prices: ${values} for one ${one}. Amounts: ${amounts}. Values: ${values}.`;
}
