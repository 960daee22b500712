// The order book as people read it: its levels grouped by a step, with values, totals and texts.

import * as exact from "./exact.js";

const FACTORS = [1n, 2n, 5n, 10n, 20n, 50n, 100n, 1000n, 10000n];
const SMALLEST_STEP = exact.decimal(`0.${"1".padStart(28, "0")}`);
const MAX_AMOUNT = 2n ** 64n - 1n;
/** The choice of a step without grouping. */
export const EVERY_DIGIT = "every";

/** Return the default step of a book, as a price of the API: the sixth significant digit of its best price; null if empty. */
export function defaultStep({ bids, asks }) {
  const best = bids[0] ?? asks[0];
  if (!best) return null;
  const step = exact.lastDigit(best.value);
  return step < SMALLEST_STEP ? SMALLEST_STEP : step;
}

/** Return the texts of the steps that a visitor can choose for a book: from the default one to ten thousand of them. */
export function steps(book) {
  const first = defaultStep(book);
  return first === null ? [] : FACTORS.map((factor) => factor * first).filter(exact.isPrice).map(exact.text);
}

/** Return the choice of a step in the page's address: `EVERY_DIGIT`, 1, 2 or 5 × 10^n, or empty for the default. */
export function stepChoice(text) {
  if (text === EVERY_DIGIT) return text;
  return /^[\d.]{1,64}$/.test(text ?? "") && /^0*[125]0*$/.test(text.replace(".", "")) ? text : "";
}

/**
 * Return a parsed book with levels grouped by a choice, each with the `prices` that it sums. If a sum were too large for a
 * level, the book stays as it is, as on the terminal.
 */
export function grouped(book, choice) {
  const step = choice === EVERY_DIGIT ? null : choice ? exact.decimal(choice) : defaultStep(book);
  const [bids, asks] = [group(book.bids, step, false), group(book.asks, step, true)];
  const isTooLarge = step !== null && [...bids, ...asks].some(({ amount }) => amount > MAX_AMOUNT);
  return isTooLarge ? grouped(book, EVERY_DIGIT) : { ...book, bids, asks };
}

/** Group the levels of a side by the rules of the library: bids down, asks up. */
function group(levels, step, isUp) {
  const groups = [];
  for (const level of levels) {
    const multiple = step === null ? level.value : exact.multiple(level.value, step, isUp);
    const last = groups.at(-1);
    if (last?.multiple === multiple) {
      last.amount += level.amount;
      last.prices.push(level);
    } else groups.push({ multiple, amount: level.amount, prices: [level] });
  }
  return groups.map(({ multiple, amount, prices }) => {
    // Without a multiple that is a price, the worst of their own prices.
    const value = exact.isPrice(multiple) ? multiple : prices.at(-1).value;
    return { price: exact.text(value), value, amount, prices };
  });
}
