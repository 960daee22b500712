// The list of pairs, with search and keyboard navigation.

import { compare, decimal, grouped, text } from "./exact.js";
import { element, pairName, setChildren, setText } from "./elements.js";
import { fragment } from "./book.js";
import { Tokens } from "./names.js";
import { keepSetting, setting } from "./settings.js";
import { Units } from "./units.js";

const PAGE_SIZE = 200;
const MIN_IDENTIFIER_LENGTH = 4;

export class PairList {
  #search = document.getElementById("search");
  #count = document.getElementById("count");
  #list = document.getElementById("list");
  #more = document.getElementById("more");
  #order = document.getElementById("order");
  #priced = document.getElementById("priced");
  #tokens = new Tokens();
  #isWhole = true;
  #entries = new Map();
  #rows = new Map();
  #shown = PAGE_SIZE;
  #selected = null;
  #focusedKey = null;
  #showList;

  /** `showList()` leaves the book where the screen has no room for the list beside it. */
  constructor(showList) {
    this.#showList = showList;
    this.#search.addEventListener("input", () => {
      this.#shown = PAGE_SIZE;
      this.#list.scrollTop = 0;
      this.#focusedKey = null;
      this.#show();
    });
    this.#order.value = setting("order");
    // It has no option of that name.
    if (this.#order.value === "") this.#order.value = "ledger";
    this.#priced.checked = setting("priced") === "true";
    for (const control of [this.#order, this.#priced]) {
      control.addEventListener("change", () => {
        keepSetting("order", this.#order.value);
        keepSetting("priced", String(this.#priced.checked));
        this.#list.scrollTop = 0;
        this.#show();
      });
    }
    this.#more.querySelector("button").addEventListener("click", () => {
      const next = this.#list.childElementCount;
      this.#shown += PAGE_SIZE;
      this.#show();
      this.#focusRow(next);
    });
    this.#search.addEventListener("keydown", (event) => this.#keyInSearch(event));
    this.#list.addEventListener("keydown", (event) => this.#keyInList(event));
    this.#list.addEventListener("focusin", (event) => this.#setTabStop(event.target.closest("a")));
    document.addEventListener("keydown", (event) => this.#keyAnywhere(event));
  }

  /** Show these pairs. */
  update(pairs) {
    const before = this.#entries;
    this.#entries = new Map(
      pairs.map((pair) => [pair.key, Object.assign(before.get(pair.key) ?? this.#entry(pair), { spot: pair.spot })]),
    );
    this.#show();
  }

  /** Show names and spot prices by a token registry, in whole units or in smallest units. */
  display(tokens, isWhole) {
    const pairs = [...this.#entries.values()];
    if (tokens !== this.#tokens) {
      this.#tokens = tokens;
      this.#rows.clear();
    }
    this.#isWhole = isWhole;
    this.#entries.clear();
    if (pairs.length > 0) this.update(pairs);
  }

  /** The pairs that may be shown if none was selected: first those with a spot price. */
  get candidates() {
    const pairs = this.#sorted([...this.#entries.values()]);
    return [...pairs.filter((one) => one.spot !== null), ...pairs.filter((one) => one.spot === null)];
  }

  /** Mark the selected pair. */
  select(key) {
    this.#selected = key;
    this.#focusedKey = null;
    this.#show();
  }

  has(key) {
    return this.#entries.has(key);
  }

  /** Focus the current row of the list; the search field if there is none. */
  focus() {
    const links = this.#links();
    (links.find((link) => link.tabIndex === 0) ?? this.#search).focus();
  }

  #show() {
    const terms = this.#search.value.toLowerCase().split(/[\s/]+/).filter(Boolean);
    const all = [...this.#entries.values()];
    const wanted = this.#priced.checked ? all.filter((one) => one.spot !== null) : all;
    const found = matching(this.#sorted(wanted), terms);
    const shown = found.slice(0, this.#shown);
    const rows = new Map(shown.map((one) => [one.key, this.#rows.get(one.key) ?? row(one)]));
    this.#rows = rows;
    const hadFocus = this.#list.contains(document.activeElement);
    setChildren(this.#list, [...rows.values()]);
    for (const one of shown) {
      const link = rows.get(one.key).firstElementChild;
      const spot = link.querySelector(".spot");
      setText(spot, one.spot === null ? "no spot" : text(spotOf(one)));
      spot.classList.toggle("none", one.spot === null);
      if (one.key === this.#selected) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    const stop = rows.get(this.#focusedKey) ?? rows.get(this.#selected) ?? this.#list.firstElementChild;
    this.#setTabStop(stop?.firstElementChild ?? null);
    // The focused row was removed.
    if (hadFocus && !this.#list.contains(document.activeElement)) this.focus();
    this.#showCount(found.length, wanted.length < all.length || terms.length > 0);
  }

  #showCount(found, searched) {
    const all = this.#entries.size;
    const pairs = `${grouped(BigInt(all))} ${all === 1 ? "pair" : "pairs"}`;
    const none = all === 0 ? "No pair is tracked yet." : "No pair matches.";
    setText(this.#count, found === 0 ? none : searched ? `${grouped(BigInt(found))} of ${pairs}` : pairs);
    const hidden = found - this.#list.childElementCount;
    this.#more.hidden = hidden === 0;
    setText(this.#more.firstElementChild, `${grouped(BigInt(hidden))} more pairs. Narrow the search.`);
  }

  #sorted(entries) {
    const order = ORDERS[this.#order.value];
    return order === null ? entries : entries.sort(order);
  }

  #entry({ base, quote, key }) {
    const names = [base, quote].map((id) => this.#tokens.nameParts(id));
    const folded = names.map(([name]) => name.toLowerCase());
    const identifiers = [base, quote, unit(base), unit(quote)].join(" ").toLowerCase();
    const units = new Units({ base, quote }, this.#tokens, this.#isWhole);
    return { base, quote, key, names, folded, identifiers, units };
  }

  #links() {
    return [...this.#list.querySelectorAll("a")];
  }

  /** Make this row the only tab stop of the list. */
  #setTabStop(link) {
    for (const other of this.#links()) other.tabIndex = other === link ? 0 : -1;
    if (document.activeElement === link && link) this.#focusedKey = link.dataset.key;
  }

  #focusRow(at) {
    const links = this.#links();
    links[Math.max(0, Math.min(at, links.length - 1))]?.focus();
  }

  #keyInSearch(event) {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") this.#focusRow(0);
    else if (event.key === "Enter") this.#list.querySelector("a")?.click();
    else if (event.key === "Escape") {
      this.#search.value = "";
      this.#search.dispatchEvent(new Event("input"));
      this.#search.blur();
      this.focus();
    } else return;
    event.preventDefault();
  }

  #keyInList(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const links = this.#links();
    const at = links.indexOf(event.target);
    if (event.key === "ArrowUp" && at === 0) this.#search.focus();
    else if (event.key === "ArrowUp") this.#focusRow(at - 1);
    else if (event.key === "ArrowDown") this.#focusRow(at + 1);
    else if (event.key === "PageUp") this.#focusRow(at - 10);
    else if (event.key === "PageDown") this.#focusRow(at + 10);
    else if (event.key === "Home") this.#focusRow(0);
    else if (event.key === "End") this.#focusRow(links.length - 1);
    else return;
    event.preventDefault();
  }

  #keyAnywhere(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target === this.#search) return;
    if (event.key === "ArrowDown" && event.target === document.body && location.hash.length < 2) this.focus();
    if (event.key !== "/") return;
    if (this.#search.offsetParent === null) this.#showList();
    this.#search.focus();
    this.#search.select();
    event.preventDefault();
  }
}

/** How the list can be ordered; null as the service lists the pairs, which is ledger order. */
const ORDERS = { ledger: null, name: byName, spot: bySpot };

function byName(one, other) {
  const [[base, quote], [otherBase, otherQuote]] = [one.folded, other.folded];
  return base < otherBase ? -1 : base > otherBase ? 1 : quote < otherQuote ? -1 : quote > otherQuote ? 1 : 0;
}

/** Order by spot price, the highest first; pairs without one come last. */
function bySpot(one, other) {
  if (one.spot === null || other.spot === null) return (one.spot === null) - (other.spot === null);
  return compare(spotOf(other), spotOf(one));
}

/** Return the spot price in the units of the list. It is computed once per price, because sorting needs it often. */
function spotOf(one) {
  if (one.computed?.spot !== one.spot) {
    one.computed = { spot: one.spot, value: one.units.price(decimal(one.spot)) };
  }
  return one.computed.value;
}

/** Return the unit of an asset: policy id and asset name without a separator, as most explorers write it. */
function unit(id) {
  return id.replace(":", "");
}

function matching(entries, terms) {
  if (terms.length === 0) return entries;
  const ranks = [[], [], [], []];
  for (const one of entries) {
    const rank = Math.max(...terms.map((term) => termRank(one, term)));
    ranks[rank]?.push(one);
  }
  return ranks.flat();
}

/** Return the rank of a term: 0 equals a name, 1 starts a name, 2 is in a name, 3 is in an identifier, 4 no match. */
function termRank({ folded, identifiers }, term) {
  if (folded.includes(term)) return 0;
  if (folded.some((name) => name.startsWith(term))) return 1;
  if (folded.some((name) => name.includes(term))) return 2;
  // A shorter term is in almost every identifier.
  return term.length >= MIN_IDENTIFIER_LENGTH && identifiers.includes(term) ? 3 : 4;
}

function row({ base, quote, key, names }) {
  const [[baseName, basePolicy], [quoteName, quotePolicy]] = names;
  const link = element(
    "a",
    { href: fragment({ base, quote }), "data-key": key, tabindex: "-1" },
    element("span", { class: "name" }, ...pairName(baseName, quoteName)),
    element("span", { class: "spot" }),
    element("span", { class: "policies" }, [basePolicy, quotePolicy].filter(Boolean).join(" / ")),
  );
  return element("li", {}, link);
}
