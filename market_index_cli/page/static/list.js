// The list of pairs, with search and keyboard navigation.

import { decimal, grouped, readable, text } from "./exact.js";
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
  #tokens = new Tokens();
  #isWhole = true;
  #entries = new Map();
  #rows = new Map();
  #shown = PAGE_SIZE;
  #selected = null;
  #showList;

  /** `showList()` leaves the book where the screen has no room for the list beside it. */
  constructor(showList) {
    this.#showList = showList;
    this.#search.addEventListener("input", () => {
      this.#shown = PAGE_SIZE;
      this.#list.scrollTop = 0;
      this.#show();
    });
    this.#order.value = setting("order") === "ledger" ? "ledger" : "name";
    this.#order.addEventListener("change", () => {
      keepSetting("order", this.#order.value);
      this.#list.scrollTop = 0;
      this.#show();
    });
    this.#more.querySelector("button").addEventListener("click", () => {
      const next = this.#list.childElementCount;
      this.#shown += PAGE_SIZE;
      this.#show();
      this.#focusRow(next);
    });
    this.#search.addEventListener("keydown", (event) => this.#keyInSearch(event));
    this.#list.addEventListener("keydown", (event) => this.#keyInList(event));
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
    this.#show();
  }

  has(key) {
    return this.#entries.has(key);
  }

  /** Focus the current row of the list; the search field if there is none. */
  focus() {
    (this.#list.querySelector("[aria-current]") ?? this.#list.querySelector("a") ?? this.#search).focus();
  }

  #show() {
    const terms = this.#search.value.toLowerCase().split(/[\s/]+/).filter(Boolean);
    const all = [...this.#entries.values()];
    const found = matching(this.#sorted(all), terms);
    const shown = found.slice(0, this.#shown);
    const rows = new Map(shown.map((one) => [one.key, this.#rows.get(one.key) ?? row(one)]));
    this.#rows = rows;
    const hadFocus = this.#list.contains(document.activeElement);
    setChildren(this.#list, [...rows.values()]);
    for (const one of shown) {
      const link = rows.get(one.key).firstElementChild;
      const spot = link.querySelector(".spot");
      const price = one.spot === null ? null : one.units.price(decimal(one.spot));
      setText(spot, price === null ? "no spot" : readable(price));
      spot.title = price === null ? "" : text(price);
      spot.classList.toggle("none", one.spot === null);
      if (one.key === this.#selected) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    // The focused row was removed.
    if (hadFocus && !this.#list.contains(document.activeElement)) this.focus();
    this.#showCount(found.length, terms.length > 0);
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
    return this.#order.value === "ledger" ? entries : entries.sort(byName);
  }

  #entry({ base, quote, key }) {
    const names = [base, quote].map((id) => this.#tokens.nameParts(id));
    const folded = [...names.map(([name]) => name), ...[base, quote].flatMap((id) => this.#tokens.others(id))].map((name) =>
      name.toLowerCase(),
    );
    const identifiers = [base, quote, unit(base), unit(quote)].join(" ").toLowerCase();
    const units = new Units({ base, quote }, this.#tokens, this.#isWhole);
    return { base, quote, key, names, folded, identifiers, units };
  }

  #focusRow(at) {
    const links = this.#list.querySelectorAll("a");
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
    const at = [...this.#list.querySelectorAll("a")].indexOf(event.target);
    if (event.key === "ArrowUp" && at === 0) this.#search.focus();
    else if (event.key === "ArrowUp") this.#focusRow(at - 1);
    else if (event.key === "ArrowDown") this.#focusRow(at + 1);
    else return;
    event.preventDefault();
  }

  #keyAnywhere(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target === this.#search) return;
    if (event.key !== "/") return;
    if (this.#search.offsetParent === null) this.#showList();
    this.#search.focus();
    this.#search.select();
    event.preventDefault();
  }
}

function byName(one, other) {
  const [[base, quote], [otherBase, otherQuote]] = [one.folded, other.folded];
  return base < otherBase ? -1 : base > otherBase ? 1 : quote < otherQuote ? -1 : quote > otherQuote ? 1 : 0;
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
    { href: fragment({ base, quote }), "data-key": key },
    element("span", { class: "name" }, ...pairName(baseName, quoteName)),
    element("span", { class: "spot" }),
    element("span", { class: "policies" }, [basePolicy, quotePolicy].filter(Boolean).join(" / ")),
  );
  return element("li", {}, link);
}
