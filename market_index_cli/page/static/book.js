// The view of one order book: its name, identifiers, key figures, ladder and depth chart.

import { compare, decimal, fitting, grouped, levelPrice, percent, readable, readablePrice, text } from "./exact.js";
import { element, pairName, replaceParts, setText } from "./elements.js";
import { DepthChart } from "./chart.js";
import { EVERY_DIGIT, grouped as groupedBook, steps } from "./grouping.js";
import { Ladder } from "./ladder.js";
import { MarketOrder } from "./order.js";
import { unitName, unitsLine } from "./units.js";

const FACTS = ["Spot", "Best bid", "Best ask", "Spread", "Mid"];
const COPIED_MILLISECONDS = 2000;
const CROSSED =
  "Both orders could trade with each other. On an order-book exchange they stay until a transaction fills them, whose " +
  "costs may be higher than the gain. The book is shown as published.";
const ABOUT_NAMES = "The minter of a token chooses its name. Only the identifier is unique.";

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
  const shown = (level, isUp) => {
    const value = units.price(level.value);
    return { ...level, value, text: isExact ? grouped(value) : levelPrice(value, isUp) };
  };
  const bids = levels.bids.map((level) => shown(level, false));
  const asks = levels.asks.map((level) => shown(level, true));
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

function stateOf({ bids: [bid], asks: [ask] }) {
  if (bid && ask) return ["", "locked", "crossed"][compare(bid.value, ask.value) + 1];
  return bid ? "no asks" : ask ? "no bids" : "empty";
}

export class BookView {
  #node = document.getElementById("book");
  #title = element("h2", { id: "title", tabindex: "-1" });
  #badge = element("span", { class: "badge" });
  #changed = element("p", { class: "changed-at" });
  #sentence = element("p", { class: "notice", role: "status" });
  #identifiers = { base: element("code"), quote: element("code") };
  #details = element(
    "details",
    { class: "identifiers" },
    element("summary", {}, "Identifiers"),
    element("dl", {}, ...Object.entries(this.#identifiers).map(([name, value]) => identifierLine(name, value))),
    element("p", { class: "remark" }, ABOUT_NAMES),
  );
  #facts = FACTS.map((name) => {
    const value = element("dd");
    return { value, node: element("div", {}, element("dt", {}, name), value) };
  });
  #units = element("span");
  #switch = element("input", { type: "checkbox", id: "smallest" });
  #switchLabel = element("label", { class: "switch" }, this.#switch, " Smallest units");
  #step = element("select", { id: "step" });
  #order = new MarketOrder();
  #links = element("p", { class: "remark links" });
  #exact = element("p", { class: "exact", role: "status" });
  #ladder = new Ladder();
  #chart = new DepthChart();
  #body = element("div", { class: "body" }, this.#ladder.node, this.#chart.node);
  #content = element(
    "div",
    { class: "content" },
    this.#sentence,
    element("dl", { class: "facts" }, ...this.#facts.map((fact) => fact.node)),
    element(
      "div",
      { class: "remark units" },
      this.#units,
      element("label", { class: "switch" }, "Price step ", this.#step),
      this.#switchLabel,
    ),
    this.#order.node,
    this.#body,
  );
  #key = null;

  /**
   * `onUnits(isSmallest)` is called when the visitor switches between whole and smallest units, `onStep(choice)` when
   * the visitor chooses a step.
   */
  constructor(onUnits, onStep) {
    this.#switch.addEventListener("change", () => onUnits(this.#switch.checked));
    this.#step.addEventListener("change", () => onStep(this.#step.value));
    this.#node.append(
      element(
        "header",
        {},
        element("a", { class: "back", href: "#" }, "‹ All pairs"),
        element("div", { class: "heading" }, this.#title, this.#badge, this.#changed),
        this.#details,
      ),
      this.#content,
      this.#links,
      this.#exact,
    );
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
    this.#switchLabel.hidden = tokens.isEmpty;
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
    this.#body.hidden = content.state === "empty";
    content.facts.forEach(([shown, exact], at) => {
      const { value, node } = this.#facts[at];
      setText(value, shown);
      value.classList.toggle("none", exact === "");
      node.title = exact;
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
    setText(this.#identifiers.base, base);
    setText(this.#identifiers.quote, quote);
    if (key === this.#key) return;
    this.#key = key;
    this.#details.open = false;
    setText(this.#exact, "");
    const query = new URLSearchParams({ base, quote });
    this.#links.replaceChildren(
      element("a", { href: `trading-view/order-book?${query}` }, "This book as JSON"),
      element("a", { href: `stream?${new URLSearchParams({ pairs: key })}` }, "Its stream of changes"),
      element("a", { href: "trading-view/pair-list" }, "The list as JSON"),
      element("a", { href: "openapi.json" }, "Description of the API"),
    );
  }
}

/** Return the fragment of the page's address that selects a pair, and the step of its prices. */
export function fragment({ base, quote }, choice = "") {
  return `#base=${base}&quote=${quote}${choice && `&step=${choice}`}`;
}

/** Return a line with an identifier and a button that copies it. */
function identifierLine(name, value) {
  const button = element("button", { type: "button", "aria-label": `Copy the identifier of the ${name} asset` }, "Copy");
  // Only pages of a secure origin have a clipboard. Elsewhere, one click selects an identifier.
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(value.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), COPIED_MILLISECONDS);
  });
  return element("div", {}, element("dt", {}, name), element("dd", {}, value, button));
}
