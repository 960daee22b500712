// The list of pairs, with a search.

import { amount, compare, counted, decimal, percent, price, shifted, whole } from "./exact.js";
import { copyOf, pairName, setChildren, setText } from "./elements.js";
import { Units } from "./assets.js";
import { linkTo } from "./link.js";

const MAX_ROWS = 500;
const MIN_IDENTIFIER_LENGTH = 4;
const LOVELACE_PLACES = 6;
// TOK2 before TOK10.
const COLLATOR = new Intl.Collator("en", { numeric: true });

export class PairList {
  #search = document.getElementById("search");
  #count = document.getElementById("count");
  #list = document.getElementById("list");
  #more = document.getElementById("more");
  #sort = document.getElementById("sort");
  #of = [];
  #entries = new Map();
  #byName = [];
  #rows = new Map();
  #top = [];

  constructor(dispatch) {
    this.#search.addEventListener("input", () => dispatch("chosen", { search: this.#search.value }));
    this.#search.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) this.#list.querySelector("a")?.click();
    });
    this.#sort.addEventListener("change", () => dispatch("chosen", { sort: this.#sort.value }));
  }

  show({ rows, tokens, sort, search, pair, book }) {
    this.#sort.value = sort;
    const of = [rows, tokens, sort, search, pair?.key];
    if (of.some((one, at) => one !== this.#of[at])) {
      const isNamed = tokens === this.#of[1];
      this.#of = of;
      this.#read(rows ?? [], tokens, isNamed);
      this.#show(sort, search, pair?.key, rows !== null);
    }
    // The book is newer than the row of the service.
    const entry = this.#entries.get(book?.pair.key);
    if (!entry || !book.value || entry.value === book.value) return;
    const [spot, bid, ask] = [book.value.spot, book.value.bids[0], book.value.asks[0]];
    Object.assign(entry, { value: book.value }, withPrices(entry, ...[spot, bid, ask].map((one) => one?.value ?? null), entry.liquidity));
    this.#showPrices(entry);
  }

  /** The pair that is shown if none was selected; null without pairs. */
  get first() {
    return firstReadable([...this.#entries.values()]);
  }

  has(key) {
    return this.#entries.has(key);
  }

  #read(rows, tokens, isNamed) {
    const before = isNamed ? this.#entries : new Map();
    if (!isNamed) this.#rows.clear();
    this.#entries = new Map();
    for (const { base, quote, spot, best_bid: bid, best_ask: ask, liquidity } of rows) {
      const key = `${base}/${quote}`;
      const entry = before.get(key) ?? entryOf({ base, quote, key }, tokens);
      const prices = [spot, bid, ask].map((one) => one && decimal(one));
      this.#entries.set(key, withPrices(entry, ...prices, liquidity === null ? -1n : BigInt(liquidity)));
      entry.value = null;
    }
    if (this.#entries.size !== before.size || [...this.#entries.keys()].some((key) => !before.has(key))) {
      this.#byName = [...this.#entries.values()].sort(ORDERS.name);
    }
  }

  #show(sort, search, selected, isLoaded) {
    const found = matching(sort === "name" ? this.#byName : this.#byName.toSorted(ORDERS[sort]), search);
    const shown = found.slice(0, MAX_ROWS);
    this.#rows = new Map(shown.map((one) => [one.key, this.#rows.get(one.key) ?? row(one)]));
    setChildren(this.#list, [...this.#rows.values()]);
    for (const one of shown) {
      this.#showPrices(one);
      const link = this.#rows.get(one.key).firstElementChild;
      if (one.key === selected) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    if (`${sort} ${search}` !== this.#top) this.#list.scrollTop = 0;
    this.#top = `${sort} ${search}`;
    this.#showCount(found.length, search.trim() !== "", isLoaded);
  }

  #showPrices({ key, spot, bid, ask, spread, liquidity, units }) {
    const node = this.#rows.get(key);
    if (!node) return;
    const write = (selector, value, none, isUp) => {
      const cell = node.querySelector(selector);
      const shown = value && units.price(value);
      setText(cell, shown ? price(shown, 6, isUp) : none);
      cell.classList.toggle("none", !shown);
    };
    // As in the open book: a spot to the nearest number, bids down, asks up.
    write(".spot", spot, "no spot", null);
    write(".bid", bid, "no bid", false);
    write(".ask", ask, "no ask", true);
    const apart = spread === null ? "" : spread > 0n ? percent(spread, (bid + ask) / 2n) : spread ? "crossed" : "locked";
    setText(node.querySelector(".spread"), apart);
    const ada = liquidity < 0n ? "" : `±2 %: ₳ ${amount(shifted(whole(liquidity), -LOVELACE_PLACES))}`;
    setText(node.querySelector(".liquidity"), ada);
  }

  #showCount(found, isSearched, isLoaded) {
    const all = this.#entries.size;
    const pairs = `${counted(all)} ${all === 1 ? "pair" : "pairs"}`;
    const none = !isLoaded ? "" : all === 0 ? "No pair is tracked yet." : "No pair matches.";
    setText(this.#count, found === 0 ? none : isSearched ? `${counted(found)} of ${pairs}` : pairs);
    const hidden = Math.max(found - MAX_ROWS, 0);
    setText(this.#more, hidden ? `${counted(hidden)} more pairs are not shown: search for them.` : "");
  }
}

/** Return the entry of a pair, without prices. */
export function entryOf(pair, tokens) {
  const assets = [pair.base, pair.quote];
  const names = assets.map((id) => tokens.nameParts(id));
  const [base, quote] = assets.map((id) => tokens.texts(id).map((texts) => texts.map(plain)));
  return {
    ...pair,
    names,
    // Both names together, as in MIN-ADA.
    folded: [...base[0], ...quote[0], ...base[0].flatMap((one) => quote[0].map((other) => one + other))],
    identifiers: [...base[1], ...quote[1]].join(" "),
    hasAda: assets.includes("ADA"),
    isKnown: assets.every((id) => tokens.decimals(id) !== null),
    units: new Units(pair, tokens),
  };
}

/** Return a text as it is searched: without case, and without the marks between the parts of a name or an identifier. */
function plain(text) {
  return text.toLowerCase().replace(/[-_.:]/g, "");
}

/**
 * Return the entry that is shown first: its best bid is below its best ask, its decimals are known, it has a spot, and it is
 * the most liquid one, as far as there is such a pair; null without entries.
 */
export function firstReadable(entries) {
  const rank = ({ spread, isKnown, spot, liquidity }) => [spread > 0n, isKnown, spot !== null, liquidity];
  return entries.reduce((best, one) => {
    const [ranks, others] = [rank(one), best ? rank(best) : []];
    const at = ranks.findIndex((value, place) => value !== others[place]);
    return best === null || (at >= 0 && ranks[at] > others[at]) ? one : best;
  }, null);
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

/** The smallest part of the price first; crossed pairs and pairs without a spread last. Compared without a division. */
function bySpread(one, other) {
  const [isApart, isOtherApart] = [one, other].map(({ spread }) => spread !== null && spread >= 0n);
  if (!isApart || !isOtherApart) return isOtherApart - isApart;
  return compare(one.spread * (other.bid + other.ask), other.spread * (one.bid + one.ask));
}

export const ORDERS = { name: byName, liquidity: byLiquidity, spread: bySpread };

/**
 * Return the entries that match all terms of a search, the best match first: by rank, then pairs with ADA, then by
 * liquidity. Without terms all, in their order.
 */
export function matching(entries, search) {
  const terms = search.split(/[\s/]+/).map(plain).filter(Boolean);
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
  link.href = linkTo({ base, quote });
  link.dataset.key = key;
  link.append(...pairName(baseName, quoteName));
  setText(node.querySelector(".policies"), [basePolicy, quotePolicy].filter(Boolean).join(" / "));
  return node;
}
