// What a market order of an amount costs or brings.

import { grouped, levelPrice, percent, typed, whole } from "./exact.js";
import { part, setText } from "./elements.js";
import { averagePrice, simulateFill } from "./fills.js";

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
