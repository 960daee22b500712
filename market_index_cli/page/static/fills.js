// Simulated fills: what a market order takes from one side of a book, exactly, as `OrderBook.simulate_fill`.

import { decimal, multiple, quotient } from "./exact.js";

/** An average price is a multiple of this one: it may have no end. */
const AVERAGE_STEP = decimal(`0.${"1".padStart(40, "0")}`);

/**
 * Return what an integer amount of the base asset takes from the levels of a side: `filled`, which is an integer too, `paid`
 * in the quote asset, the `worst` price, and whether it is `complete`. Amounts and prices are in smallest units.
 */
export function simulateFill(levels, amount) {
  let [left, paid, worst] = [amount, 0n, null];
  for (const level of levels) {
    if (left === 0n) break;
    const taken = level.amount < left ? level.amount : left;
    paid += level.value * taken;
    left -= taken;
    worst = level.value;
  }
  return { filled: amount - left, paid, worst, complete: left === 0n };
}

/** Return the average price of an amount, rounded against the taker. */
export function averagePrice(paid, amount, isPurchase) {
  return multiple(quotient(paid, amount), AVERAGE_STEP, isPurchase);
}
