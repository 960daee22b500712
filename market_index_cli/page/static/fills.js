// Simulated fills: what a market order takes from one side of a book, exactly, as `OrderBook.simulate_fill`.

import { ZERO, add, compare, product, quotient, subtract, whole } from "./exact.js";

/** The average price of a fill has at most so many decimal places. */
const AVERAGE_PLACES = 40;

/**
 * Return what an amount of the base asset takes from the levels of a side: `filled`, `paid` in the quote asset, the `worst`
 * price, and whether it is `complete`. Amounts and prices are in smallest units.
 */
export function simulateFill(levels, amount) {
  let [left, paid, worst] = [amount, ZERO, null];
  for (const level of levels) {
    if (left === 0n) break;
    const taken = level.amount < left ? level.amount : left;
    paid = add(paid, product(level.value, whole(taken)));
    left -= taken;
    worst = level.value;
  }
  return { filled: amount - left, paid, worst, complete: left === 0n };
}

/** Return the average price of a fill, rounded against the taker; null if nothing is filled. */
export function averagePrice({ filled, paid }, isPurchase) {
  return filled === 0n ? null : quotient(paid, whole(filled), AVERAGE_PLACES, isPurchase);
}

/** Return by how much an average price is worse than the best one; a decimal in units of the price. */
export function slippage(average, best) {
  return compare(average, best) < 0 ? subtract(best, average) : subtract(average, best);
}
