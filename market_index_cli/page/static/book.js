// The view of one order book: its name, identifiers, key figures, ladder and depth chart.

import { add, compare, half, subtract, text } from "./exact.js";
import { copyButton, element, pairName, setText } from "./elements.js";
import { DepthChart } from "./chart.js";
import { Ladder } from "./ladder.js";
import { unitsLine } from "./units.js";

const FACTS = ["Spot", "Best bid", "Best ask", "Spread", "Mid"];
const LONG_LENGTH = 14;
const MAX_REQUESTED = 10;
const AS_PUBLISHED = "The book is shown as published.";
const ABOUT_NAMES = "The minter of a token chooses its name. Only the identifier is unique.";

/**
 * Return a book with its spread, mid and state, the sentence that explains the state, and the ladder's middle line. Its
 * prices are in the units that it was converted to.
 */
export function summarize(book) {
  const [bid, ask] = [book.bids[0], book.asks[0]];
  const both = bid && ask;
  const spread = both ? subtract(ask.value, bid.value) : null;
  const mid = both ? half(add(bid.value, ask.value)) : null;
  const crossing = both && ["", "locked", "crossed"][compare(bid.value, ask.value) + 1];
  const state = both ? crossing : bid ? "no asks" : ask ? "no bids" : "empty";
  const sentence = {
    empty: "This order book is empty.",
    "no asks": "This order book has bids only.",
    "no bids": "This order book has asks only.",
    crossed: `The best bid, ${bid?.price}, is above the best ask, ${ask?.price}. ${AS_PUBLISHED}`,
    locked: `The best bid and the best ask have the same price, ${bid?.price}. ${AS_PUBLISHED}`,
    "": "",
  }[state];
  const middle = both ? `spread ${text(spread)} · mid ${text(mid)}` : "no spread";
  return { ...book, spread, mid, state, sentence, middle };
}

/**
 * Return the first pair whose book has both sides and is neither crossed nor locked, else the first pair; null without
 * pairs. `request(pair)` returns a book, or null if there is none. At most ten books are requested.
 */
export async function firstReadable(pairs, request) {
  for (const pair of pairs.slice(0, MAX_REQUESTED)) {
    const book = await request(pair);
    if (book !== null && summarize(book).state === "") return pair;
  }
  return pairs[0] ?? null;
}

export class BookView {
  #node = document.getElementById("book");
  #title = element("h2", { id: "title", tabindex: "-1" });
  #badge = element("span", { class: "badge" });
  #changed = element("p", { class: "changed-at" });
  #link = copyButton("Copy link", "Copy the link to this pair", () => this.#address(), () => {
    location.hash = fragment(this.#pair);
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
  #ladder = new Ladder();
  #chart = new DepthChart();
  #body = element("div", { class: "body" }, this.#ladder.node, this.#chart.node);
  #content = element(
    "div",
    { class: "content" },
    this.#sentence,
    element("dl", { class: "facts" }, ...this.#facts.map((fact) => fact.node)),
    element("p", { class: "remark" }, this.#units, " ", this.#switchLabel),
    this.#body,
  );
  #pair = null;

  /** `onUnits(isSmallest)` is called when the visitor switches between whole and smallest units. */
  constructor(onUnits) {
    this.#switch.addEventListener("change", () => onUnits(this.#switch.checked));
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

  /** Show a pair and its book, or the name alone without a book. `old` marks a book that may be out of date. */
  show(pair, book, { changed, confirmed }, old, tokens, isWhole) {
    this.#node.hidden = false;
    this.#name(pair, tokens);
    this.#switchLabel.hidden = tokens.isEmpty;
    this.#switch.checked = !isWhole;
    this.#showUnits(unitsLine(pair, tokens, isWhole));
    this.#content.hidden = book === null;
    this.#node.classList.toggle("old", old);
    const change = changed === null ? "" : `changed ${changed.toLocaleTimeString()}`;
    setText(this.#changed, book === null ? "" : old ? `last confirmed ${confirmed?.toLocaleTimeString()}` : change);
    setText(this.#badge, book?.state ?? "");
    this.#badge.className = `badge ${book?.state ?? ""}`;
    if (book === null) {
      this.#ladder.forget();
      return;
    }
    setText(this.#sentence, book.sentence);
    this.#sentence.classList.toggle("warning", book.state === "crossed" || book.state === "locked");
    this.#body.hidden = book.state === "empty";
    const { spot, bids, asks, spread, mid } = book;
    const values = [spot?.price, bids[0]?.price, asks[0]?.price, spread && text(spread), mid && text(mid)];
    this.#facts.forEach(({ name, value }, at) => {
      setText(value, values[at] ?? (name === "Spot" ? "none yet" : "none"));
      value.classList.toggle("none", !values[at]);
      value.classList.toggle("long", (values[at] ?? "").length > LONG_LENGTH);
    });
    this.#ladder.update(book, `${pair.key} ${isWhole}`);
    try {
      this.#chart.update(book);
    } catch (error) {
      // An error in the chart must not stop the ladder or the next request.
      reportError(error);
    }
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
    return `${location.href.split("#")[0]}${fragment(this.#pair)}`;
  }
}

/** Return the fragment of the page's address that selects a pair. */
export function fragment({ base, quote }) {
  return `#base=${base}&quote=${quote}`;
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
