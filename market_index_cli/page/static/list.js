// The list of pairs, with a search.

import { decimal, grouped, readablePrice, text } from "./exact.js";
import { element, pairName, setChildren, setText } from "./elements.js";
import { fragment } from "./book.js";
import { Tokens } from "./names.js";
import { keepSetting, setting } from "./settings.js";
import { Units } from "./units.js";

const MAX_ROWS = 500;
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
  #selected = null;

  /** `showList()` leaves the book where the screen has no room for the list beside it. */
  constructor(showList) {
    this.#search.addEventListener("input", () => this.#showTop());
    this.#search.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) this.#list.querySelector("a")?.click();
    });
    this.#order.value = setting("order") === "ledger" ? "ledger" : "name";
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
    if (tokens !== this.#tokens) this.#rows.clear();
    [this.#tokens, this.#isWhole] = [tokens, isWhole];
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

  #showTop() {
    this.#list.scrollTop = 0;
    this.#show();
  }

  #show() {
    const terms = this.#search.value.toLowerCase().split(/[\s/]+/).filter(Boolean);
    const found = matching(this.#sorted([...this.#entries.values()]), terms);
    const shown = found.slice(0, MAX_ROWS);
    this.#rows = new Map(shown.map((one) => [one.key, this.#rows.get(one.key) ?? row(one)]));
    setChildren(this.#list, [...this.#rows.values()]);
    for (const { key, spot, units } of shown) {
      const link = this.#rows.get(key).firstElementChild;
      const cell = link.querySelector(".spot");
      const price = spot && units.price(decimal(spot));
      setText(cell, price ? readablePrice(price) : "no spot");
      cell.title = price ? text(price) : "";
      cell.classList.toggle("none", !price);
      if (key === this.#selected) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    this.#showCount(found.length, terms.length > 0);
  }

  #showCount(found, isSearched) {
    const all = this.#entries.size;
    const pairs = `${grouped(BigInt(all))} ${all === 1 ? "pair" : "pairs"}`;
    const none = all === 0 ? "No pair is tracked yet." : "No pair matches.";
    setText(this.#count, found === 0 ? none : isSearched ? `${grouped(BigInt(found))} of ${pairs}` : pairs);
    const hidden = Math.max(found - MAX_ROWS, 0);
    setText(this.#more, hidden ? `${grouped(BigInt(hidden))} more pairs are not shown: search for them.` : "");
  }

  #sorted(entries) {
    return this.#order.value === "ledger" ? entries : entries.sort(byName);
  }

  #entry({ base, quote, key }) {
    const assets = [base, quote];
    const names = assets.map((id) => this.#tokens.nameParts(id));
    const texts = [...names.map(([name]) => name), ...assets.flatMap((id) => this.#tokens.others(id))];
    return {
      base,
      quote,
      key,
      names,
      folded: texts.map((name) => name.toLowerCase()),
      // Most explorers write policy id and asset name without a separator.
      identifiers: assets.flatMap((id) => [id, id.replace(":", "")]).join(" ").toLowerCase(),
      units: new Units({ base, quote }, this.#tokens, this.#isWhole),
    };
  }
}

function byName(one, other) {
  const [[base, quote], [otherBase, otherQuote]] = [one.folded, other.folded];
  return base < otherBase ? -1 : base > otherBase ? 1 : quote < otherQuote ? -1 : quote > otherQuote ? 1 : 0;
}

/** Return the entries that match all terms, those with the best rank first. */
function matching(entries, terms) {
  const ranks = [[], [], [], []];
  for (const one of entries) ranks[Math.max(0, ...terms.map((term) => termRank(one, term)))]?.push(one);
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
