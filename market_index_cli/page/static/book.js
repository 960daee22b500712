// The view of one order book: its name, identifiers, key figures, order form, ladder and depth chart.

import { Units } from "./assets.js";
import { compare, decimal, percent, price, text } from "./exact.js";
import { element, pairName, part, replaceParts, setText } from "./elements.js";
import { DepthChart } from "./chart.js";
import { grouped, steps, withTotals } from "./grouping.js";
import { Ladder } from "./ladder.js";
import { MarketOrder } from "./order.js";
import { freshness, unitsKey } from "./state.js";

const CROSSED =
  "Both orders could trade with each other. On an order-book exchange they stay until a transaction fills them, whose " +
  "costs may be higher than the gain. The book is shown as published.";

/**
 * Return what is shown of a parsed book: its levels grouped by a step, its key figures, which are never grouped and null if
 * there are none, its state with the sentence that explains it, and the ladder's middle line. Prices are in the units.
 */
export function summarize(book, units, step) {
  const [bid, ask] = [book.bids[0], book.asks[0]].map((level) => level && units.price(level.value));
  const spot = book.spot && units.price(book.spot.value);
  const [mid, spread] = bid && ask ? [(bid + ask) / 2n, ask - bid] : [null, null];
  const share = mid && percent(spread, mid);
  const state = bid && ask ? ["", "locked", "crossed"][compare(bid, ask) + 1] : bid ? "no asks" : ask ? "no bids" : "empty";
  const [bidText, askText] = [bid && price(bid, 6, false), ask && price(ask, 6, true)];
  const sentence = {
    empty: "This order book is empty.",
    "no asks": "This order book has bids only.",
    "no bids": "This order book has asks only.",
    crossed: `The best bid, ${bidText}, is above the best ask, ${askText}. ${CROSSED}`,
    locked: `The best bid and the best ask have the same price, ${bidText}. ${CROSSED}`,
    "": "",
  }[state];
  const facts = [spot && price(spot), bidText, askText, mid && `${price(spread)} (${share})`, mid && price(mid)];
  const levels = grouped(book, step);
  const [bids, asks] = [levels.bids, levels.asks].map((side) => withTotals(side, units));
  const middle = mid ? `mid ${price(mid)} · spread ${share}` : "no spread";
  return { bids, asks, mid, facts, state, sentence, middle, units };
}

export class BookView {
  #node = document.getElementById("book");
  #title = part("#title");
  #badge = part(".badge");
  #changed = part(".changed-at");
  #identifiers = [...this.#node.querySelectorAll("code")];
  #policies = part("summary span");
  #content = part(".content");
  #sentence = part(".sentence");
  #facts = [...this.#node.querySelectorAll(".facts div")];
  #units = part(".units span");
  #step = part("#step");
  #order;
  #ladder;
  #chart = new DepthChart();
  #key = null;
  #of = [];
  #summary = null;

  /** `onStep(step)` is called when the visitor chooses a step of the prices. */
  constructor(dispatch, onStep) {
    this.#step.addEventListener("change", () => onStep(this.#step.value));
    // A level fills the form with the amount up to its price. It is written as people type it.
    this.#ladder = new Ladder(({ isAsk, sum }) => dispatch("ordered", {
      isPurchase: isAsk, text: text(this.#summary.units.amount(sum)), isQuote: false, isLeft: true,
    }));
    this.#order = new MarketOrder(dispatch);
  }

  /** Show the selected book. Until the names of its assets are known, it would be shown in other names and units. */
  show(state) {
    const { book, step, tokens } = state;
    const isNamed = state.rows !== null || state.failures.content;
    this.#node.hidden = book === null || !isNamed;
    if (this.#node.hidden) return;
    const value = book.value;
    this.#name(book.pair, tokens);
    this.#content.hidden = value === null;
    this.#node.classList.toggle("old", freshness(state).isOld);
    setText(this.#changed, book.changedAt ? `changed ${book.changedAt.toLocaleTimeString()}` : "");
    if (value === null) return setText(this.#badge, "");
    this.#ladder.unmark(state.now);
    const of = [value, tokens, step];
    if (of.some((one, at) => one !== this.#of[at])) {
      this.#of = of;
      this.#showContent(summarize(value, new Units(book.pair, tokens), step), book, step, unitsKey(state));
    }
    this.#order.show(state, this.#summary.units);
  }

  #showContent(summary, { value, move }, step, key) {
    this.#summary = summary;
    const { units, state } = summary;
    setText(this.#units, `Prices: ${units.quoteName} for one ${units.baseName.replace("smallest units", "smallest unit")}. ${units.remark}`);
    setText(this.#badge, state);
    for (const node of [this.#badge, this.#sentence]) node.classList.toggle("warning", ["crossed", "locked"].includes(state));
    setText(this.#sentence, summary.sentence);
    part(".body").hidden = state === "empty";
    summary.facts.forEach((shown, at) => {
      const fact = this.#facts[at].lastElementChild;
      setText(fact, shown ?? "none");
      fact.classList.toggle("none", !shown);
    });
    this.#facts[0].dataset.move = ["down", "", "up"][move + 1];
    this.#showSteps(steps(value), step, units);
    this.#ladder.show(summary, key);
    this.#chart.show(summary);
  }

  /** Offer these steps, the default, and the chosen one. They are prices of the API, and shown in the units. */
  #showSteps(offered, step, units) {
    const others = step && !offered.includes(step) ? [step] : [];
    const options = [["", "finest"], ...[...offered, ...others].map((one) => [one, price(units.price(decimal(one)))])];
    const key = options.join();
    if (this.#step.dataset.options !== key) {
      this.#step.dataset.options = key;
      this.#step.replaceChildren(...options.map(([value, name]) => element("option", { value }, name)));
    }
    this.#step.value = step;
  }

  focus() {
    this.#title.focus({ preventScroll: true });
  }

  #name({ base, quote, key }, tokens) {
    const named = [base, quote].map((id) => tokens.nameParts(id));
    const title = pairName(...named.map(([name]) => name));
    named.forEach(([, policy], at) => policy && title[2 * at].append(element("small", {}, ` ${policy}`)));
    replaceParts(this.#title, title);
    [base, quote].forEach((id, at) => setText(this.#identifiers[at], id));
    // The minter of a token has chosen its name: the policy is always beside it.
    setText(this.#policies, [base, quote].map((id) => id.replace(/^(.{8}).{48}/, "$1…").replace(/^(.{20}).+/, "$1…")).join(" / "));
    if (key === this.#key) return;
    this.#key = key;
    part("details").open = false;
  }
}
