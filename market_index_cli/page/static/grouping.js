// The order book as people read it: its levels grouped by a step, with values and totals.

import * as exact from "./exact.js";

const MAX_STEPS = 10;
const SMALLEST_STEP = exact.decimal(`0.${"1".padStart(28, "0")}`);
const MAX_AMOUNT = 2n ** 64n - 1n;

/** Return the default step of a book, as a price of the API: the sixth significant digit of its best price; null if empty. */
export function defaultStep({ bids, asks }) {
  const best = bids[0] ?? asks[0];
  if (!best) return null;
  const step = exact.lastDigit(best.value);
  return step < SMALLEST_STEP ? SMALLEST_STEP : step;
}

/**
 * Return the texts of the steps that a visitor can choose for a book: 1, 2 or 5 × 10^n, above the default one and up to the
 * best price. A step that divides all prices would change none.
 */
export function steps({ bids, asks }) {
  const first = defaultStep({ bids, asks });
  if (first === null) return [];
  // The greatest common divisor of the prices.
  let divisor = 0n;
  for (const { value } of [...bids, ...asks]) for (let rest = value; rest; ) [divisor, rest] = [rest, divisor % rest];
  const found = [];
  for (let unit = first; unit <= (bids[0] ?? asks[0]).value; unit *= 10n) {
    found.push(...[1n, 2n, 5n].map((factor) => factor * unit).filter((step) => divisor % step && exact.isPrice(step)));
  }
  return found.filter((step) => step > first).slice(0, MAX_STEPS).map(exact.text);
}

/**
 * Return a parsed book with levels grouped by a step (empty: the default one), each with the `prices` that it sums. If a sum
 * were too large for a level, each price is a level, as on the terminal.
 */
export function grouped(book, step) {
  const size = step ? exact.decimal(step) : defaultStep(book);
  const [bids, asks] = [group(book.bids, size, false), group(book.asks, size, true)];
  const isTooLarge = [...bids, ...asks].some(({ amount }) => amount > MAX_AMOUNT);
  return isTooLarge ? { bids: group(book.bids, 1n, false), asks: group(book.asks, 1n, true) } : { bids, asks };
}

/** Group the levels of a side by the rules of the library: bids down, asks up. */
function group(levels, step, isAsk) {
  const groups = [];
  for (const level of levels) {
    const multiple = exact.multiple(level.value, step, isAsk);
    const last = groups.at(-1);
    if (last?.value === multiple) {
      last.amount += level.amount;
      last.prices.push(level);
    } else groups.push({ value: multiple, amount: level.amount, prices: [level], isAsk });
  }
  // Without a multiple that is a price, the worst of their own prices.
  for (const one of groups) if (!exact.isPrice(one.value)) one.value = one.prices.at(-1).value;
  return groups;
}

/** Add to each level its price in the units, what it is worth, and the sums of worths and of amounts up to it. */
export function withTotals(levels, units) {
  let [total, sum] = [0n, 0n];
  for (const level of levels) {
    level.shown = units.price(level.value);
    level.worth = units.worth(level);
    level.total = total += level.worth;
    level.sum = sum += level.amount;
  }
  return levels;
}
