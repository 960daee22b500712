// The ladder: asks above bids, the best of each in the middle, with the amount at each price and the running total.

import { ascending, grouped, share, totals } from "./exact.js";
import { element, setChildren, setText, setNumber } from "./elements.js";

const INITIAL_LEVELS = 15;
const MORE_LEVELS = 100;
const MAX_ALIGNED_LENGTH = 14;
const LONG_AMOUNT = 10n ** 14n;
const SIDES = [
  { name: "asks", one: "ask", many: "asks above" },
  { name: "bids", one: "bid", many: "bids below" },
];

export class Ladder {
  #asks = new Side("asks");
  #bids = new Side("bids");
  #middle = element("td", { colspan: "4" });
  #table = element(
    "table",
    { class: "ladder" },
    element("caption", { class: "visually-hidden" }, "Order book: asks above bids, the best of each in the middle"),
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        element("th", { scope: "col" }, "Side"),
        element("th", { scope: "col", class: "number" }, "Price"),
        element("th", { scope: "col", class: "number" }, "Amount"),
        element("th", { scope: "col", class: "number" }, "Total"),
      ),
    ),
    this.#asks.body,
    element("tbody", { class: "middle" }, element("tr", {}, this.#middle)),
    this.#bids.body,
  );
  #book = null;
  node = element("section", { class: "panel", "aria-label": "Ladder" }, this.#asks.more, this.#table, this.#bids.more);

  constructor() {
    for (const side of [this.#asks, this.#bids]) side.onMore = () => this.update(this.#book);
  }

  /** Show a book. `isNew` means that another pair was selected, so no row counts as changed. */
  update(book, isNew = false) {
    this.#book = book;
    if (isNew) for (const side of [this.#asks, this.#bids]) side.reset();
    const shown = [...book.asks.slice(0, this.#asks.shown), ...book.bids.slice(0, this.#bids.shown)];
    const places = Math.max(0, ...shown.map((level) => level.value.places));
    const isLong = places > MAX_ALIGNED_LENGTH || shown.some((level) => level.amount >= LONG_AMOUNT);
    this.#table.classList.toggle("long", isLong);
    const least = places > MAX_ALIGNED_LENGTH ? 0 : places && places + 1;
    const [, depth] = [this.#asks.depth(book.asks), this.#bids.depth(book.bids)].sort(ascending);
    this.#asks.show(book.asks, least, depth);
    this.#bids.show(book.bids, least, depth);
    setText(this.#middle, book.middle);
  }
}

class Side {
  #rows = new Map();
  #upward;
  #one;
  #many;
  shown = INITIAL_LEVELS;
  onMore = () => {};
  body = element("tbody");
  more = element("button", { type: "button", class: "more" });

  constructor(name) {
    const side = SIDES.find((one) => one.name === name);
    this.#one = side.one;
    this.#many = side.many;
    this.#upward = name === "asks";
    this.body.className = name;
    this.more.addEventListener("click", () => {
      this.shown += MORE_LEVELS;
      this.onMore();
    });
  }

  reset() {
    this.shown = INITIAL_LEVELS;
    this.#rows.clear();
    this.body.replaceChildren();
  }

  /** Return the total amount of the visible levels. */
  depth(levels) {
    return levels.slice(0, this.shown).reduce((total, level) => total + level.amount, 0n);
  }

  /** Show the best levels. `room` is the width of the decimal places in characters, `depth` the longest bar's amount. */
  show(levels, room, depth) {
    const best = levels.slice(0, this.shown);
    const sums = totals(best.map((level) => level.amount));
    const known = this.#rows;
    const changed = [];
    this.#rows = new Map();
    best.forEach((level, at) => {
      const row = known.get(level.price) ?? createRow(this.#one, level.price);
      const amount = grouped(level.amount);
      if (known.size > 0 && row.amount.textContent !== amount) changed.push(row.node);
      setNumber(row.amount, amount);
      setNumber(row.total, grouped(sums[at]));
      row.places.style.minWidth = `${room}ch`;
      row.bar.style.width = `${100 * share(level.amount, depth)}%`;
      row.depth.style.width = `${100 * share(sums[at], depth)}%`;
      this.#rows.set(level.price, row);
    });
    const nodes = [...this.#rows.values()].map((row) => row.node);
    setChildren(this.body, this.#upward ? nodes.reverse() : nodes);
    flash(changed);
    const hidden = levels.length - best.length;
    this.more.hidden = hidden === 0;
    const next = grouped(BigInt(Math.min(hidden, MORE_LEVELS)));
    setText(this.more, `${grouped(BigInt(hidden))} more ${this.#many}: show ${next}`);
  }
}

function createRow(side, price) {
  const [whole, places] = price.split(".");
  const row = {
    places: element("span", { class: "places" }, places === undefined ? "" : `.${places}`),
    amount: element("span"),
    total: element("span"),
    bar: element("span", { class: "bar" }),
    depth: element("span", { class: "bar depth" }),
  };
  row.node = element(
    "tr",
    { "data-price": price },
    element("th", { scope: "row", class: "side" }, side),
    element("td", { class: `number price${price.length > MAX_ALIGNED_LENGTH ? " long" : ""}` }, whole, row.places),
    element("td", { class: "number amount" }, row.amount),
    element("td", { class: "number total" }, row.total, row.depth, row.bar),
  );
  return row;
}

/** Highlight rows for a moment. An animation that still runs starts again. */
function flash(rows) {
  if (rows.length === 0) return;
  for (const row of rows) row.classList.remove("changed");
  void document.body.offsetWidth; // forces a reflow, which restarts the animation
  for (const row of rows) row.classList.add("changed");
}
