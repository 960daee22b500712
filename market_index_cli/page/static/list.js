// The list of pairs, and the search in it.

import { grouped } from "./exact.js";
import { element, pairName, place, say } from "./elements.js";
import { policy, ticker } from "./names.js";

const AT_ONCE = 200;
const LEAST_OF_IDENTIFIER = 4;

export class PairList {
  #search = document.getElementById("search");
  #count = document.getElementById("count");
  #list = document.getElementById("list");
  #more = document.getElementById("more");
  #entries = new Map();
  #rows = new Map();
  #shown = AT_ONCE;
  #selected = null;
  #entered = null;
  #leaveBook;

  /** `leaveBook()` shows the list where there is no room for it beside the book. */
  constructor(leaveBook) {
    this.#leaveBook = leaveBook;
    this.#search.addEventListener("input", () => {
      this.#shown = AT_ONCE;
      this.#list.scrollTop = 0;
      this.#entered = null;
      this.#show();
    });
    this.#more.querySelector("button").addEventListener("click", () => {
      const next = this.#list.childElementCount;
      this.#shown += AT_ONCE;
      this.#show();
      this.#enter(next);
    });
    this.#search.addEventListener("keydown", (event) => this.#keyInSearch(event));
    this.#list.addEventListener("keydown", (event) => this.#keyInList(event));
    this.#list.addEventListener("focusin", (event) => this.#stopAt(event.target.closest("a")));
    document.addEventListener("keydown", (event) => this.#keyAnywhere(event));
  }

  /** Show these pairs. */
  update(pairs) {
    const before = this.#entries;
    this.#entries = new Map(
      pairs.map((pair) => [pair.key, Object.assign(before.get(pair.key) ?? entry(pair), { spot: pair.spot })]),
    );
    this.#show();
  }

  /** Mark the pair that is looked at. */
  select(key) {
    this.#selected = key;
    this.#entered = null;
    this.#show();
  }

  has(key) {
    return this.#entries.has(key);
  }

  /** Put the focus where somebody who comes back to the list goes on. */
  focus() {
    const links = this.#links();
    (links.find((link) => link.tabIndex === 0) ?? this.#search).focus();
  }

  #show() {
    const terms = this.#search.value.toLowerCase().split(/[\s/]+/).filter(Boolean);
    const found = matching([...this.#entries.values()], terms);
    const shown = found.slice(0, this.#shown);
    const rows = new Map(shown.map((one) => [one.key, this.#rows.get(one.key) ?? row(one)]));
    this.#rows = rows;
    const hadFocus = this.#list.contains(document.activeElement);
    place(this.#list, [...rows.values()]);
    for (const one of shown) {
      const link = rows.get(one.key).firstElementChild;
      const spot = link.querySelector(".spot");
      say(spot, one.spot ?? "no spot");
      spot.classList.toggle("none", one.spot === null);
      if (one.key === this.#selected) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    const stop = rows.get(this.#entered) ?? rows.get(this.#selected) ?? this.#list.firstElementChild;
    this.#stopAt(stop?.firstElementChild ?? null);
    // The row that had the focus is gone.
    if (hadFocus && !this.#list.contains(document.activeElement)) this.focus();
    this.#tell(found.length, terms.length > 0);
  }

  #tell(found, searched) {
    const all = this.#entries.size;
    const pairs = `${grouped(BigInt(all))} ${all === 1 ? "pair" : "pairs"}`;
    const none = all === 0 ? "No pair is tracked yet." : "No pair matches.";
    say(this.#count, found === 0 ? none : searched ? `${grouped(BigInt(found))} of ${pairs}` : pairs);
    const hidden = found - this.#list.childElementCount;
    this.#more.hidden = hidden === 0;
    say(this.#more.firstElementChild, `${grouped(BigInt(hidden))} more: narrow the search.`);
  }

  #links() {
    return [...this.#list.querySelectorAll("a")];
  }

  /** Let the tabulator key stop at this row of the list, and at no other. */
  #stopAt(link) {
    for (const other of this.#links()) other.tabIndex = other === link ? 0 : -1;
    if (document.activeElement === link && link) this.#entered = link.dataset.key;
  }

  #enter(at) {
    const links = this.#links();
    links[Math.max(0, Math.min(at, links.length - 1))]?.focus();
  }

  #keyInSearch(event) {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") this.#enter(0);
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
    else if (event.key === "ArrowUp") this.#enter(at - 1);
    else if (event.key === "ArrowDown") this.#enter(at + 1);
    else if (event.key === "PageUp") this.#enter(at - 10);
    else if (event.key === "PageDown") this.#enter(at + 10);
    else if (event.key === "Home") this.#enter(0);
    else if (event.key === "End") this.#enter(links.length - 1);
    else return;
    event.preventDefault();
  }

  #keyAnywhere(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target === this.#search) return;
    if (event.key === "ArrowDown" && event.target === document.body && location.hash.length < 2) this.focus();
    if (event.key !== "/") return;
    if (this.#search.offsetParent === null) this.#leaveBook();
    this.#search.focus();
    this.#search.select();
    event.preventDefault();
  }
}

function entry({ base, quote, key }) {
  const names = [ticker(base), ticker(quote)];
  const folded = names.map((name) => name.toLowerCase());
  return { base, quote, key, names, folded, identifiers: [base, quote, unit(base), unit(quote)].join(" ").toLowerCase() };
}

/** Return an identifier as most explorers write it: policy id and asset name run together. */
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

/** Return how well a term matches: a name, its beginning, part of it, an identifier, or (4) not at all. */
function termRank({ folded, identifiers }, term) {
  if (folded.includes(term)) return 0;
  if (folded.some((name) => name.startsWith(term))) return 1;
  if (folded.some((name) => name.includes(term))) return 2;
  // A shorter one is in almost every identifier.
  return term.length >= LEAST_OF_IDENTIFIER && identifiers.includes(term) ? 3 : 4;
}

function row({ base, quote, key, names }) {
  const link = element(
    "a",
    { href: `#base=${base}&quote=${quote}`, "data-key": key, tabindex: "-1" },
    element("span", { class: "name" }, ...pairName(...names)),
    element("span", { class: "spot" }),
    element("span", { class: "policies" }, [policy(base), policy(quote)].filter(Boolean).join(" / ")),
  );
  return element("li", {}, link);
}
