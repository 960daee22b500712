// The view of one order book: its name, identifiers, key figures, ladder and depth chart.

import { compare, decimal, fitting, grouped, levelPrice, percent, readable, readablePrice, text } from "./exact.js";
import { element, pairName, part, replaceParts, setText } from "./elements.js";
import { DepthChart } from "./chart.js";
import { EVERY_DIGIT, grouped as groupedBook, steps } from "./grouping.js";
import { Ladder } from "./ladder.js";
import { MarketOrder } from "./order.js";
import { unitName, unitsLine } from "./units.js";

const COPIED_MILLISECONDS = 2000;
const CROSSED =
  "Both orders could trade with each other. On an order-book exchange they stay until a transaction fills them, whose " +
  "costs may be higher than the gain. The book is shown as published.";

/**
 * Return what is shown of a parsed book: its levels grouped by the choice of a step, its key figures, each with its exact
 * text, its state with the sentence that explains it, and the ladder's middle line. Prices are in the units. `write`
 * returns the text of an amount.
 */
export function summarize(book, units, choice) {
  const [bid, ask] = [book.bids[0], book.asks[0]].map((level) => level && units.price(level.value));
  const isExact = choice === EVERY_DIGIT;
  const write = isExact ? grouped : readable;
  const writePrice = isExact ? grouped : readablePrice;
  const levels = groupedBook(book, choice);
  const [bids, asks] = [levels.bids, levels.asks].map((side, at) => withTotals(side, at === 1, units, isExact));
  const spot = book.spot && units.price(book.spot.value);
  const spotText = spot ? writePrice(spot) : "none yet";
  const [mid, spread] = bid && ask ? [(bid + ask) / 2n, ask - bid] : [null, null];
  const midText = mid && writePrice(mid);
  const share = mid && percent(spread, mid);
  const state = stateOf(book);
  const sentence = {
    empty: "This order book is empty.",
    "no asks": "This order book has bids only.",
    "no bids": "This order book has asks only.",
    crossed: `The best bid, ${bids[0]?.text}, is above the best ask, ${asks[0]?.text}. ${CROSSED}`,
    locked: `The best bid and the best ask have the same price, ${bid && writePrice(bid)}. ${CROSSED}`,
    "": "",
  }[state];
  const facts = [
    [spotText, spot],
    [bids[0]?.text ?? "none", bid],
    [asks[0]?.text ?? "none", ask],
    [mid ? `${writePrice(spread)} (${share})` : "none", spread],
    [midText ?? "none", mid],
  ].map(([shown, exact]) => [shown, exact == null ? "" : text(exact)]);
  const middle = mid ? `mid ${midText} · spread ${share}` : "no spread";
  return { bids, asks, spot, spotText, mid, midText, facts, state, sentence, middle, units, write, writePrice };
}

/**
 * Return the levels of a side in the units: value of the price, worth, and the sums of worths and of amounts up to each.
 * The text of a price is made only for the levels that are visible.
 */
function withTotals(levels, isAsk, units, isExact) {
  let [total, sum] = [0n, 0n];
  return levels.map((level) => {
    const { price, amount, prices } = level;
    const [value, worth] = [units.price(level.value), units.worth(level)];
    total += worth;
    sum += amount;
    return {
      price, amount, prices, isAsk, value, worth, total, sum,
      get text() {
        return isExact ? grouped(value) : levelPrice(value, isAsk);
      },
    };
  });
}

function stateOf({ bids: [bid], asks: [ask] }) {
  if (bid && ask) return ["", "locked", "crossed"][compare(bid.value, ask.value) + 1];
  return bid ? "no asks" : ask ? "no bids" : "empty";
}

export class BookView {
  #node = document.getElementById("book");
  #title = part("h2");
  #badge = part(".badge");
  #changed = part(".changed-at");
  #identifiers = [...this.#node.querySelectorAll("code")];
  #content = part(".content");
  #sentence = part(".sentence");
  #facts = [...this.#node.querySelectorAll(".facts div")];
  #units = part(".units span");
  #step = part("#step");
  #switch = part("#smallest");
  #exact = part(".exact");
  #order = new MarketOrder();
  #ladder = new Ladder();
  #chart = new DepthChart();
  #key = null;

  /**
   * `onUnits(isSmallest)` is called when the visitor switches between whole and smallest units, `onStep(choice)` when
   * the visitor chooses a step.
   */
  constructor(onUnits, onStep) {
    this.#switch.addEventListener("change", () => onUnits(this.#switch.checked));
    this.#step.addEventListener("change", () => onStep(this.#step.value));
    for (const identifier of this.#identifiers) offerCopy(identifier, identifier.nextElementSibling);
    // A screen without a pointer shows no tooltip. So a touch shows its text, until the next one.
    this.#node.addEventListener("click", ({ target }) => {
      setText(this.#exact, target.closest("[title]:not([title=''])")?.title ?? "");
    });
  }

  /**
   * Show a pair and its parsed book, or the name alone without a book. `content` is what `summarize` returned of it for
   * the `choice` of a step. `isOld` marks a book that may be out of date.
   */
  show({ pair, value, changed }, content, choice, isOld, tokens, isWhole) {
    this.#node.hidden = false;
    this.#name(pair, tokens);
    this.#switch.parentElement.hidden = tokens.isEmpty;
    this.#switch.checked = !isWhole;
    setText(this.#units, unitsLine(pair, tokens, isWhole));
    this.#content.hidden = content === null;
    this.#node.classList.toggle("old", isOld);
    setText(this.#changed, changed && content ? `changed ${changed.toLocaleTimeString()}` : "");
    setText(this.#badge, content?.state ?? "");
    const isWarning = content?.state === "crossed" || content?.state === "locked";
    for (const node of [this.#badge, this.#sentence]) node.classList.toggle("warning", isWarning);
    if (content === null) return;
    this.#showSteps(steps(value), choice, content.units);
    setText(this.#sentence, content.sentence);
    part(".body").hidden = content.state === "empty";
    content.facts.forEach(([shown, exact], at) => {
      const fact = this.#facts[at];
      setText(fact.lastElementChild, shown);
      fact.lastElementChild.classList.toggle("none", exact === "");
      fact.title = exact;
    });
    const [base, quote] = [pair.base, pair.quote].map((id) => unitName(id, tokens, isWhole));
    this.#order.update(value, content.units, { base, quote });
    const key = `${pair.key} ${isWhole} ${choice}`;
    this.#ladder.update(content, key);
    try {
      this.#chart.update(content, key);
    } catch (error) {
      // An error in the chart must not stop the ladder or the next request.
      reportError(error);
    }
  }

  /** Offer these steps, the default, every digit, and the chosen one. They are prices of the API, and shown in the units. */
  #showSteps(offered, choice, units) {
    const others = choice && choice !== EVERY_DIGIT && !offered.includes(choice) ? [choice] : [];
    const options = [
      ["", "6 digits"],
      ...[...offered, ...others].map((step) => [step, fitting(units.price(decimal(step)))]),
      [EVERY_DIGIT, "every digit"],
    ];
    const key = options.join();
    if (this.#step.dataset.options !== key) {
      this.#step.dataset.options = key;
      this.#step.replaceChildren(...options.map(([value, name]) => element("option", { value }, name)));
    }
    this.#step.value = choice;
  }

  hide() {
    this.#node.hidden = true;
  }

  focus() {
    this.#title.focus({ preventScroll: true });
  }

  #name({ base, quote, key }, tokens) {
    const named = [base, quote].map((id) => tokens.nameParts(id));
    const title = pairName(...named.map(([name]) => name));
    // Without a registry, the identifiers below have the policies.
    if (!tokens.isEmpty) {
      named.forEach(([, policy], at) => policy && title[2 * at].append(element("small", {}, ` ${policy}`)));
    }
    replaceParts(this.#title, title);
    [base, quote].forEach((id, at) => setText(this.#identifiers[at], id));
    if (key === this.#key) return;
    this.#key = key;
    part("details").open = false;
    setText(this.#exact, "");
    part(".json").href = `trading-view/order-book?${new URLSearchParams({ base, quote })}`;
    part(".stream").href = `stream?${new URLSearchParams({ pairs: key })}`;
  }
}

/** Return the fragment of the page's address that selects a pair, and the step of its prices. */
export function fragment({ base, quote }, choice = "") {
  return `#base=${base}&quote=${quote}${choice && `&step=${choice}`}`;
}

/** Let a button copy an identifier. Only pages of a secure origin have a clipboard; elsewhere, one click selects it. */
function offerCopy(identifier, button) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(identifier.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), COPIED_MILLISECONDS);
  });
}
