// What a market order of an amount trades, and what it costs or brings: exactly, as `OrderBook.simulate_fill`.

import { decimal, grouped, levelPrice, multiple, percent, quotient, typed, whole } from "./exact.js";
import { part, setText } from "./elements.js";

/** An average price is a multiple of this one: it may have no end. */
const AVERAGE_STEP = decimal(`0.${"1".padStart(40, "0")}`);

export class MarketOrder {
  #form = part(".order");
  #side = part(".order select");
  #amount = part(".order input");
  #unit = part(".order bdi");
  #cost = part(".cost");
  #shown = null;

  constructor() {
    this.#form.addEventListener("input", () => this.#show());
    this.#form.addEventListener("submit", (event) => event.preventDefault());
  }

  /** Show the cost of the entered amount in this book. `names` are those of the units of base and quote. */
  update(book, units, names) {
    this.#shown = [book, units, names];
    this.#show();
  }

  #show() {
    const [book, units, names] = this.#shown;
    setText(this.#unit, names.base);
    setText(this.#cost, orderSentence(book, units, this.#side.value === "Buy", this.#amount.value, names));
  }
}

/**
 * Return the sentence about a market order: what it costs or brings, its average price, and its slippage. `entered` is the
 * amount of the base in the units, as it was typed.
 */
export function orderSentence(book, units, isPurchase, entered, names) {
  const number = typed(entered);
  if (number === null) return entered.trim() ? "The amount must be a number, such as 1,500.5." : "";
  const levels = isPurchase ? book.asks : book.bids;
  const fill = simulateFill(levels, units.smallest(number));
  if (fill.filled === 0n) return levels.length > 0 ? "The amount must be above 0." : "There is no order to trade with.";
  const average = averagePrice(fill.paid, whole(fill.filled), isPurchase);
  const best = levels[0].value;
  const slippage = percent(isPurchase ? average - best : best - average, best);
  const trade = `${isPurchase ? "Buying" : "Selling"} ${grouped(units.amount(fill.filled))} ${names.base}`;
  const paid = `${isPurchase ? "costs" : "brings"} ${grouped(units.value(fill.paid))} ${names.quote}`;
  const limit = fill.complete ? "" : " The book has no more.";
  return `${trade} ${paid}: ${levelPrice(units.price(average), isPurchase)} on average, ${slippage} worse than the best price.${limit}`;
}

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
