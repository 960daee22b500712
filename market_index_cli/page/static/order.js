// What a market order of an amount trades, and what it costs or brings: exactly, by the rules of the library.

import { exactly, integer, multiple, decimal, percent, price, quotient, shifted, text, typed, whole } from "./exact.js";
import { part, setText } from "./elements.js";

/** An average price is a multiple of this one: it may have no end. */
const AVERAGE_STEP = decimal(`0.${"1".padStart(40, "0")}`);

export class MarketOrder {
  #form = part(".order");
  #side = part("#side");
  #amount = part("#amount");
  #unit = part("#unit");
  #understood = part(".understood");
  #result = part(".result");
  #announced = part(".announced");

  constructor(dispatch) {
    const enter = (isLeft) => dispatch("ordered", {
      isPurchase: this.#side.value === "buy", text: this.#amount.value, isQuote: this.#unit.value === "quote", isLeft,
    });
    this.#form.addEventListener("input", () => enter(false));
    // Now the number is complete: an error is shown, and a screen reader announces the result.
    this.#form.addEventListener("change", () => enter(true));
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      enter(true);
    });
  }

  /** Show the cost of the entered order in the book. */
  show({ order, book }, units) {
    this.#side.value = order.isPurchase ? "buy" : "sell";
    this.#unit.value = order.isQuote ? "quote" : "base";
    [units.baseName, units.quoteName].forEach((name, at) => setText(this.#unit.options[at], name));
    if (this.#amount.value !== order.text) this.#amount.value = order.text;
    const { understood, result, problem } = resultOf(book.value, units, order);
    setText(this.#understood, understood);
    const isWrong = problem !== "" && order.isLeft;
    this.#amount.setAttribute("aria-invalid", isWrong);
    setText(this.#result, isWrong ? problem : result);
    this.#result.classList.toggle("warning", isWrong);
    // The result changes with the book: only what the visitor has entered is announced.
    const entered = order.isLeft ? `${order.isPurchase} ${order.text} ${order.isQuote}` : "";
    if (this.#announced.dataset.entered === entered) return;
    this.#announced.dataset.entered = entered;
    setText(this.#announced, order.isLeft ? `${understood} ${problem || result}`.trim() : "");
  }
}

/**
 * Return how an order is understood, with what it costs or brings; or the problem of what was typed. `text` is an amount of
 * the base in the units, or of the quote with `isQuote`.
 */
export function resultOf(book, units, { isPurchase, text: entered, isQuote }) {
  const none = { understood: "", result: "", problem: "" };
  if (!entered.trim()) return none;
  const [name, decimals] = isQuote ? [units.quoteName, units.quote] : [units.baseName, units.base];
  let number;
  try {
    number = typed(entered);
  } catch (error) {
    return { ...none, problem: error.message };
  }
  const understood = `= ${exactly(number)} ${name}`;
  const amount = integer(shifted(number, decimals));
  if (whole(amount) !== shifted(number, decimals)) {
    return { ...none, understood, problem: `An amount of ${name} must be a multiple of ${text(units.amount(1n, decimals))}.` };
  }
  if (amount === 0n) return { ...none, understood, problem: "The amount must be above 0." };
  const levels = isPurchase ? book.asks : book.bids;
  if (levels.length === 0) return { ...none, understood, result: "There is no order to trade with." };
  return { ...none, understood, result: sentence(levels, amount, units, isPurchase, isQuote) };
}

function sentence(levels, amount, units, isPurchase, isQuote) {
  const { filled, paid, complete } = trade(levels, amount, isPurchase, isQuote);
  if (filled === 0n) return `This is too little for the smallest amount of ${units.baseName}.`;
  // A ledger has only whole units: a cost is rounded up, and proceeds down.
  const quote = integer(paid, isPurchase);
  const [base, value] = [exactly(units.amount(filled)), exactly(units.amount(quote, units.quote))];
  const found = isQuote ? `${value} ${units.quoteName}` : `${base} ${units.baseName}`;
  const asked = isQuote ? units.amount(amount, units.quote) : units.amount(amount);
  const missing = complete ? "" : `The book has only ${found} of ${exactly(asked)}. `;
  const average = averagePrice(paid, whole(filled), isPurchase);
  const best = levels[0].value;
  const slippage = percent(isPurchase ? average - best : best - average, best);
  return `${missing}${isPurchase ? "Buying" : "Selling"} ${base} ${units.baseName} ${isPurchase ? "costs" : "brings"} ` +
    `${value} ${units.quoteName} before venue fees: ${price(units.price(average), 9, isPurchase)} on average, ` +
    `${slippage} worse than the best price.`;
}

/**
 * Return what an integer amount of the base, or of the quote with `isQuote`, takes from the levels of a side: `filled`, an
 * integer of the base; `paid`, a number of the quote; and whether it is `complete`. For an amount of the quote, a purchase is
 * the largest that costs at most as much, and a sale the smallest that brings at least as much. All is in smallest units.
 */
export function trade(levels, amount, isPurchase, isQuote = false) {
  let [left, filled, paid] = [isQuote ? whole(amount) : amount, 0n, 0n];
  for (const level of levels) {
    const all = isQuote ? level.value * level.amount : level.amount;
    const isLast = left < all;
    const rest = isQuote ? (left + (isPurchase ? 0n : level.value - 1n)) / level.value : left;
    const taken = isLast ? rest : level.amount;
    filled += taken;
    paid += level.value * taken;
    if (isLast) return { filled, paid, complete: true };
    left -= all;
  }
  return { filled, paid, complete: left === 0n };
}

/** Return the average price of an amount, rounded against the taker. */
export function averagePrice(paid, amount, isPurchase) {
  return multiple(quotient(paid, amount), AVERAGE_STEP, isPurchase);
}
