// The view of one order book: its name, identifiers, key figures, ladder and depth chart.

import { add, compare, decimal, fitting, grouped, half, percent, readable, subtract, text } from "./exact.js";
import { copyButton, element, pairName, setText } from "./elements.js";
import { DepthChart } from "./chart.js";
import { EVERY_DIGIT, grouped as groupedBook, steps } from "./grouping.js";
import { Ladder } from "./ladder.js";
import { unitsLine } from "./units.js";

const FACTS = ["Spot", "Best bid", "Best ask", "Spread", "Mid"];
const LONG_LENGTH = 14;
const MAX_REQUESTED = 10;
const CROSSED =
  "Both orders could trade with each other. On an order-book exchange they stay until a transaction fills them, whose " +
  "costs may be higher than the gain. The book is shown as published.";
const ABOUT_NAMES = "The minter of a token chooses its name. Only the identifier is unique.";

/**
 * Return what is shown of a parsed book: its levels grouped by the choice of a step, spread, mid and state, the sentence
 * that explains the state, and the ladder's middle line. Prices are in the units. `write` returns the text of a number,
 * and `writePrice` that of a price.
 */
export function summarize(book, units, choice) {
  const [bid, ask] = [book.bids[0], book.asks[0]].map((level) => level && units.price(level.value));
  const both = bid && ask;
  const spread = both ? subtract(ask, bid) : null;
  const mid = both ? half(add(bid, ask)) : null;
  const write = choice === EVERY_DIGIT ? grouped : readable;
  const writePrice = choice === EVERY_DIGIT ? text : fitting;
  const levels = groupedBook(book, choice);
  const shown = (level) => ({ ...level, price: writePrice(units.price(level.value)), value: units.price(level.value) });
  const [bids, asks] = [levels.bids.map(shown), levels.asks.map(shown)];
  const spot = book.spot && units.price(book.spot.value);
  const state = stateOf(book);
  const sentence = {
    empty: "This order book is empty.",
    "no asks": "This order book has bids only.",
    "no bids": "This order book has asks only.",
    crossed: `The best bid, ${bids[0]?.price}, is above the best ask, ${asks[0]?.price}. ${CROSSED}`,
    locked: `The best bid and the best ask have the same price, ${bid && write(bid)}. ${CROSSED}`,
    "": "",
  }[state];
  const share = both && percent(spread, mid);
  const middle = both ? `spread ${write(spread)} (${share}) · mid ${write(mid)}` : "no spread";
  return { bid, ask, bids, asks, spot, spread, share, mid, state, sentence, middle, units, write };
}

function stateOf({ bids: [bid], asks: [ask] }) {
  if (bid && ask) return ["", "locked", "crossed"][compare(bid.value, ask.value) + 1];
  return bid ? "no asks" : ask ? "no bids" : "empty";
}

/**
 * Return the first pair whose book has both sides and is neither crossed nor locked, else the first pair; null without
 * pairs. `request(pair)` returns a book, or null if there is none. At most ten books are requested.
 */
export async function firstReadable(pairs, request) {
  for (const pair of pairs.slice(0, MAX_REQUESTED)) {
    const book = await request(pair);
    if (book !== null && stateOf(book) === "") return pair;
  }
  return pairs[0] ?? null;
}

export class BookView {
  #node = document.getElementById("book");
  #title = element("h2", { id: "title", tabindex: "-1" });
  #badge = element("span", { class: "badge" });
  #changed = element("p", { class: "changed-at" });
  #link = copyButton("Copy link", "Copy the link to this pair", () => this.#address(), () => {
    location.hash = fragment(this.#pair, this.#step.value);
    return "In the address";
  });
  #sentence = element("p", { class: "notice", role: "status" });
  #identifiers = { base: identifierLine("Base"), quote: identifierLine("Quote") };
  #details = element(
    "details",
    { class: "identifiers" },
    element("summary", {}, "Identifiers"),
    element("dl", {}, ...Object.values(this.#identifiers).map((line) => line.node)),
    element("p", { class: "remark" }, ABOUT_NAMES),
  );
  #facts = FACTS.map((name) => {
    const value = element("dd");
    return { name, value, node: element("div", {}, element("dt", {}, name), value) };
  });
  #units = element("span", { class: "units" });
  #switch = element("input", { type: "checkbox", id: "smallest" });
  #switchLabel = element("label", { class: "switch" }, this.#switch, " Smallest units");
  #step = element("select", { id: "step" });
  #ladder = new Ladder();
  #chart = new DepthChart();
  #body = element("div", { class: "body" }, this.#ladder.node, this.#chart.node);
  #content = element(
    "div",
    { class: "content" },
    this.#sentence,
    element("dl", { class: "facts" }, ...this.#facts.map((fact) => fact.node)),
    element(
      "p",
      { class: "remark" },
      this.#units,
      element("span", { class: "switch" }, element("label", { for: "step" }, "Step "), this.#step),
      this.#switchLabel,
    ),
    this.#body,
  );
  #pair = null;

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
        element("div", { class: "heading" }, this.#title, this.#badge, this.#link, this.#changed),
        this.#details,
      ),
      this.#content,
    );
  }

  /**
   * Show a pair and its parsed book, or the name alone without a book. `content` is what `summarize` returned of it for
   * the `choice` of a step. `isOld` marks a book that may be out of date.
   */
  show({ pair, value, changed, confirmed }, content, choice, isOld, tokens, isWhole) {
    this.#node.hidden = false;
    this.#name(pair, tokens);
    this.#switchLabel.hidden = tokens.isEmpty;
    this.#switch.checked = !isWhole;
    this.#showUnits(unitsLine(pair, tokens, isWhole));
    this.#content.hidden = content === null;
    this.#node.classList.toggle("old", isOld);
    const change = changed === null ? "" : `changed ${changed.toLocaleTimeString()}`;
    setText(this.#changed, content === null ? "" : isOld ? `last confirmed ${confirmed?.toLocaleTimeString()}` : change);
    setText(this.#badge, content?.state ?? "");
    this.#badge.className = `badge ${content?.state ?? ""}`;
    if (content === null) {
      this.#ladder.forget();
      return;
    }
    this.#showSteps(steps(value), choice, content.units);
    setText(this.#sentence, content.sentence);
    this.#sentence.classList.toggle("warning", content.state === "crossed" || content.state === "locked");
    this.#body.hidden = content.state === "empty";
    const { spot, bid, ask, bids, asks, spread, share, mid, write } = content;
    const exact = [spot, bid, ask, spread, mid];
    const values = exact.map((one) => one && write(one));
    if (bid) values[1] = bids[0].price;
    if (ask) values[2] = asks[0].price;
    if (spread) values[3] += ` (${share})`;
    this.#facts.forEach(({ name, value, node }, at) => {
      setText(value, values[at] ?? (name === "Spot" ? "none yet" : "none"));
      node.title = exact[at] ? text(exact[at]) : "";
      value.classList.toggle("none", !values[at]);
      value.classList.toggle("long", (values[at] ?? "").length > LONG_LENGTH);
    });
    this.#ladder.update(content, `${pair.key} ${isWhole} ${choice}`);
    try {
      this.#chart.update(content);
    } catch (error) {
      // An error in the chart must not stop the ladder or the next request.
      reportError(error);
    }
  }

  /** Offer these steps, the default, every digit, and the chosen one. They are prices of the API, and shown in the units. */
  #showSteps(offered, choice, units) {
    const written = (step) => fitting(units.price(decimal(step)));
    const others = choice && choice !== EVERY_DIGIT && !offered.includes(choice) ? [choice] : [];
    const options = [
      ["", "6 digits"],
      ...[...offered, ...others].map((step) => [step, written(step)]),
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
    this.#pair = null;
  }

  focus() {
    this.#title.focus({ preventScroll: true });
  }

  #name(pair, tokens) {
    const { base, quote } = pair;
    const named = [base, quote].map((id) => tokens.nameParts(id));
    const title = pairName(...named.map(([name]) => name));
    // Without a registry, the identifiers below have the policies.
    if (!tokens.isEmpty) {
      named.forEach(([, policy], at) => policy && title[2 * at].append(element("small", {}, ` ${policy}`)));
    }
    const text = title.map((node) => node.textContent).join("");
    if (pair.key === this.#pair?.key && this.#title.textContent === text) return;
    if (pair.key !== this.#pair?.key) this.#details.open = false;
    this.#pair = pair;
    this.#title.replaceChildren(...title);
    this.#identifiers.base.setText(base);
    this.#identifiers.quote.setText(quote);
  }

  #showUnits(parts) {
    const text = parts.map((part) => part.name ?? part).join("");
    if (this.#units.textContent === text) return;
    this.#units.replaceChildren(...parts.map((part) => (part.name === undefined ? part : element("bdi", {}, part.name))));
  }

  #address() {
    return `${location.href.split("#")[0]}${fragment(this.#pair, this.#step.value)}`;
  }
}

/** Return the fragment of the page's address that selects a pair, and the step of its prices. */
export function fragment({ base, quote }, choice = "") {
  return `#base=${base}&quote=${quote}${choice && `&step=${choice}`}`;
}

/** Return a line with an identifier and a button that copies it. */
function identifierLine(name) {
  const value = element("code");
  const label = `Copy the identifier of the ${name.toLowerCase()} asset`;
  const button = copyButton("Copy", label, () => value.textContent, () => {
    getSelection().selectAllChildren(value);
    return "Selected";
  });
  return {
    node: element("div", {}, element("dt", {}, name), element("dd", {}, value, button)),
    setText: (identifier) => setText(value, identifier),
  };
}
