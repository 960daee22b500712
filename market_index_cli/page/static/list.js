// The list of pairs, with a search.

import { compare, counted, decimal, fitting, lastDigit, multiple, percent, readable, readablePrice, text } from "./exact.js";
import { shifted, whole } from "./exact.js";
import { copyOf, pairName, setChildren, setText } from "./elements.js";
import { fragment } from "./book.js";
import { Tokens } from "./names.js";
import { keepSetting, setting } from "./settings.js";
import { Units } from "./units.js";

const MAX_ROWS = 500;
const MIN_IDENTIFIER_LENGTH = 4;
const LOVELACE_PLACES = 6;
// TOK2 before TOK10.
const COLLATOR = new Intl.Collator("en", { numeric: true });

export class PairList {
  #nav = document.getElementById("pairs");
  #search = document.getElementById("search");
  #count = document.getElementById("count");
  #list = document.getElementById("list");
  #more = document.getElementById("more");
  #order = document.getElementById("order");
  #tokens = new Tokens();
  #isWhole = true;
  #entries = new Map();
  #byName = [];
  #rows = new Map();
  #selected = null;
  /** The rows of the service that are shown. */
  source = null;

  /** `showList()` leaves the book where the screen has no room for the list beside it. */
  constructor(showList) {
    this.#search.addEventListener("input", () => this.#showTop());
    this.#search.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) this.#list.querySelector("a")?.click();
    });
    this.#nav.addEventListener("keydown", (event) => this.#move(event));
    this.#order.value = setting("order");
    if (this.#order.selectedIndex < 0) this.#order.value = "name";
    this.#order.addEventListener("change", () => {
      keepSetting("order", this.#order.value);
      this.#showTop();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.altKey || event.ctrlKey || event.metaKey || event.target === this.#search) return;
      event.preventDefault();
      if (this.#search.offsetParent === null) showList();
      this.#search.focus();
      this.#search.select();
    });
  }

  /** Show these rows of the service, by the names of tokens, in whole units or in smallest units. */
  update(source, tokens, isWhole) {
    const before = tokens === this.#tokens && isWhole === this.#isWhole ? this.#entries : new Map();
    if (tokens !== this.#tokens) this.#rows.clear();
    [this.source, this.#tokens, this.#isWhole] = [source, tokens, isWhole];
    this.#entries = new Map();
    for (const [base, quote, spot, bid, ask, liquidity] of source) {
      const key = `${base}/${quote}`;
      const entry = before.get(key) ?? this.#entry(base, quote, key);
      const prices = [spot, bid, ask].map((price) => price && decimal(price));
      this.#entries.set(key, withPrices(entry, ...prices, liquidity === null ? -1n : BigInt(liquidity)));
    }
    if (this.#entries.size !== before.size || [...this.#entries.keys()].some((key) => !before.has(key))) {
      this.#byName = [...this.#entries.values()].sort(ORDERS.name);
    }
    this.#show();
  }

  /** Show the names and units from now on. */
  display(tokens, isWhole) {
    if (this.source !== null) this.update(this.source, tokens, isWhole);
  }

  /** Show the prices of a book, which is newer than the row of the service. */
  take(key, { spot, bids, asks }) {
    const entry = this.#entries.get(key);
    if (!entry) return;
    withPrices(entry, spot?.value ?? null, bids[0]?.value ?? null, asks[0]?.value ?? null, entry.liquidity);
    this.#showPrices(entry);
  }

  /** The pair that is shown if none was selected; null without pairs. */
  get firstReadable() {
    return firstReadable(this.#sorted());
  }

  get isEmpty() {
    return this.source?.length === 0;
  }

  /** Mark the selected pair. */
  select(key) {
    this.#selected = key;
    this.#show();
  }

  has(key) {
    return this.#entries.has(key);
  }

  #showTop() {
    this.#list.scrollTop = 0;
    this.#show();
  }

  /** Move between the search and the links with the arrow keys. */
  #move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const stops = [this.#search, ...this.#list.querySelectorAll("a")];
    const at = stops.indexOf(document.activeElement);
    if (!step || at < 0 || event.isComposing) return;
    event.preventDefault();
    stops[Math.min(Math.max(at + step, 0), stops.length - 1)].focus();
  }

  #show() {
    const terms = this.#search.value.toLowerCase().split(/[\s/]+/).filter(Boolean);
    const found = matching(this.#sorted(), terms);
    const shown = found.slice(0, MAX_ROWS);
    this.#rows = new Map(shown.map((one) => [one.key, this.#rows.get(one.key) ?? row(one)]));
    setChildren(this.#list, [...this.#rows.values()]);
    for (const one of shown) {
      this.#showPrices(one);
      const link = this.#rows.get(one.key).firstElementChild;
      if (one.key === this.#selected) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    this.#showCount(found.length, terms.length > 0);
  }

  #showPrices({ key, spot, bid, ask, spread, liquidity, units }) {
    const link = this.#rows.get(key)?.firstElementChild;
    if (!link) return;
    const write = (selector, price, none, rounded) => {
      const cell = link.querySelector(selector);
      const value = price && units.price(price);
      setText(cell, value ? rounded(value) : none);
      cell.title = value ? text(value) : "";
      cell.classList.toggle("none", !value);
    };
    // As in the open book: a spot to the nearest number, bids down, asks up.
    write(".spot", spot, "no spot", readablePrice);
    write(".bid", bid, "no bid", (price) => stepped(price, false));
    write(".ask", ask, "no ask", (price) => stepped(price, true));
    setText(link.querySelector(".spread"), spread === null ? "" : percent(spread, (bid + ask) / 2n));
    const ada = liquidity < 0n ? "" : `±2 %: ₳ ${readable(shifted(whole(liquidity), -LOVELACE_PLACES))}`;
    setText(link.querySelector(".liquidity"), ada);
  }

  #showCount(found, isSearched) {
    const all = this.#entries.size;
    const pairs = `${counted(all)} ${all === 1 ? "pair" : "pairs"}`;
    const none = all === 0 ? "No pair is tracked yet." : "No pair matches.";
    setText(this.#count, found === 0 ? none : isSearched ? `${counted(found)} of ${pairs}` : pairs);
    const hidden = Math.max(found - MAX_ROWS, 0);
    setText(this.#more, hidden ? `${counted(hidden)} more pairs are not shown: search for them.` : "");
  }

  #sorted() {
    const order = this.#order.value;
    if (order === "ledger") return [...this.#entries.values()];
    return order === "name" ? this.#byName : this.#byName.toSorted(ORDERS[order]);
  }

  #entry(base, quote, key) {
    const assets = [base, quote];
    const names = assets.map((id) => this.#tokens.nameParts(id));
    const texts = assets.map((id, at) => [names[at][0], ...this.#tokens.others(id)].map((name) => name.toLowerCase()));
    return {
      base,
      quote,
      key,
      names,
      folded: texts.flat(),
      hasAda: assets.includes("ADA"),
      // Most explorers write policy id and asset name without a separator.
      identifiers: assets.flatMap((id) => [id, id.replace(":", "")]).join(" ").toLowerCase(),
      units: new Units({ base, quote }, this.#tokens, this.#isWhole),
    };
  }
}

/** Return the text of a best price at its sixth significant digit: bids down, asks up. */
function stepped(price, isUp) {
  return fitting(multiple(price, lastDigit(price), isUp));
}

/** Return the first entry whose best bid is below its best ask, and with a spot price if there is one; null without entries. */
export function firstReadable(entries) {
  const readable = entries.filter(({ spread }) => spread > 0n);
  const best = readable.length > 0 ? readable : entries;
  return best.find(({ spot }) => spot) ?? best[0] ?? null;
}

/** Return an entry with its prices and its spread. */
export function withPrices(entry, spot, bid, ask, liquidity) {
  return Object.assign(entry, { spot, bid, ask, liquidity, spread: bid && ask ? ask - bid : null });
}

function byName({ names: [[base], [quote]] }, { names: [[otherBase], [otherQuote]] }) {
  return COLLATOR.compare(base, otherBase) || COLLATOR.compare(quote, otherQuote);
}

function byLiquidity(one, other) {
  return one.liquidity > other.liquidity ? -1 : one.liquidity < other.liquidity ? 1 : 0;
}

/** The smallest part of the price first; pairs without a spread last. The parts are compared without a division. */
function bySpread(one, other) {
  if (one.spread === null || other.spread === null) return (one.spread === null) - (other.spread === null);
  return compare(one.spread * (other.bid + other.ask), other.spread * (one.bid + one.ask));
}

export const ORDERS = { name: byName, liquidity: byLiquidity, spread: bySpread };

/**
 * Return the entries that match all terms, the best match first: by rank, then pairs with
 * ADA, then by liquidity. Without terms all, in their order.
 */
export function matching(entries, terms) {
  if (terms.length === 0) return entries;
  const ranked = entries.map((one) => ({ one, rank: Math.max(...terms.map((term) => termRank(one, term))) }));
  return ranked
    .filter(({ rank }) => rank < 4)
    .sort((a, b) => a.rank - b.rank || b.one.hasAda - a.one.hasAda || byLiquidity(a.one, b.one))
    .map(({ one }) => one);
}

/** Return the rank of a term: 0 equals a name, 1 starts a name, 2 is in a name, 3 is in an identifier, 4 no match. */
function termRank({ folded, identifiers }, term) {
  if (folded.includes(term)) return 0;
  if (folded.some((name) => name.startsWith(term))) return 1;
  if (folded.some((name) => name.includes(term))) return 2;
  // A shorter term is in almost every identifier.
  return term.length >= MIN_IDENTIFIER_LENGTH && identifiers.includes(term) ? 3 : 4;
}

function row({ base, quote, key, names: [[baseName, basePolicy], [quoteName, quotePolicy]] }) {
  const node = copyOf("pair");
  const link = node.firstElementChild;
  link.href = fragment({ base, quote });
  link.dataset.key = key;
  link.querySelector(".name").append(...pairName(baseName, quoteName));
  setText(link.querySelector(".policies"), [basePolicy, quotePolicy].filter(Boolean).join(" / "));
  return node;
}
