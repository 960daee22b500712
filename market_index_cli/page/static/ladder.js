// The ladder: asks above bids, the best of each in the middle, with the amount at each price and the running total.

import { ascending, grouped, share, totals } from "./exact.js";
import { decimalPlaces, element, places, setChildren, setText, setNumber } from "./elements.js";

const INITIAL_LEVELS = 15;
const MORE_LEVELS = 100;
const MAX_ALIGNED_LENGTH = 14;
const LONG_AMOUNT_LENGTH = 19;
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
  #key = null;
  node = element("section", { class: "panel", "aria-label": "Ladder" }, this.#asks.more, this.#table, this.#bids.more);

  constructor() {
    for (const side of [this.#asks, this.#bids]) side.onMore = () => this.update(this.#book, this.#key);
  }

  /** Forget the last book: no row counts as changed in the next one. */
  forget() {
    this.#key = null;
  }

  /** Show a book. No row counts as changed if the last book had another key: that of another pair or of other units. */
  update(book, key) {
    this.#book = book;
    if (key !== this.#key) for (const side of [this.#asks, this.#bids]) side.reset();
    this.#key = key;
    const [asks, bids] = [this.#asks.rows(book.asks, book.units), this.#bids.rows(book.bids, book.units)];
    const room = (name) => {
      const longest = Math.max(0, ...[...asks, ...bids].map((row) => decimalPlaces(row[name]).length));
      return longest > MAX_ALIGNED_LENGTH ? 0 : longest;
    };
    const rooms = { price: room("price"), amount: room("amount"), total: room("total") };
    const isLong = [...asks, ...bids].some(
      (row) => decimalPlaces(row.price).length > MAX_ALIGNED_LENGTH || row.amount.length >= LONG_AMOUNT_LENGTH,
    );
    this.#table.classList.toggle("long", isLong);
    const [, depth] = [asks, bids].map((rows) => rows.at(-1)?.sum ?? 0n).sort(ascending);
    this.#asks.show(asks, rooms, depth, book.asks.length);
    this.#bids.show(bids, rooms, depth, book.bids.length);
    setText(this.#middle, book.middle);
  }
}

class Side {
  #rows = new Map();
  #levels = null;
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
    this.#levels = null;
    this.#rows.clear();
    this.body.replaceChildren();
  }

  /**
   * Return the price, the amount and the running total of each visible level, as texts and as `size` and `sum`, and
   * whether it has changed: the last book had another amount at its price, or no level.
   */
  rows(levels, units) {
    const best = levels.slice(0, this.shown);
    const sums = totals(best.map((level) => level.amount));
    const before = new Map((this.#levels ?? levels).map((level) => [level.price, level.amount]));
    this.#levels = levels;
    return best.map(({ price, amount }, at) => ({
      price,
      isChanged: before.get(price) !== amount,
      amount: grouped(units.amount(amount)),
      total: grouped(units.amount(sums[at])),
      size: amount,
      sum: sums[at],
    }));
  }

  /** Show rows. `rooms` are the widths of decimal places in characters, `depth` the longest bar's amount. */
  show(rows, rooms, depth, count) {
    const known = this.#rows;
    const changed = [];
    this.#rows = new Map();
    for (const { price, amount, total, size, sum, isChanged } of rows) {
      const row = known.get(price) ?? createRow(this.#one, price);
      if (isChanged) changed.push(row.node);
      setNumber(row.amount, amount, rooms.amount);
      setNumber(row.total, total, rooms.total);
      row.places.style.minWidth = `${rooms.price}ch`;
      row.bar.style.width = `${100 * share(size, depth)}%`;
      row.depth.style.width = `${100 * share(sum, depth)}%`;
      this.#rows.set(price, row);
    }
    const nodes = [...this.#rows.values()].map((row) => row.node);
    setChildren(this.body, this.#upward ? nodes.reverse() : nodes);
    flash(changed);
    const hidden = count - rows.length;
    this.more.hidden = hidden === 0;
    const next = grouped(BigInt(Math.min(hidden, MORE_LEVELS)));
    setText(this.more, `${grouped(BigInt(hidden))} more ${this.#many}: show ${next}`);
  }
}

function createRow(side, price) {
  const row = {
    places: places(price),
    amount: element("span"),
    total: element("span"),
    bar: element("span", { class: "bar" }),
    depth: element("span", { class: "bar depth" }),
  };
  row.node = element(
    "tr",
    { "data-price": price },
    element("th", { scope: "row", class: "side" }, side),
    element("td", { class: `number price${price.length > MAX_ALIGNED_LENGTH ? " long" : ""}` }, price.split(".")[0], row.places),
    element("td", { class: "number amount" }, row.amount),
    element("td", { class: "number total" }, row.total, row.depth, row.bar),
  );
  // An animation would run again when the ladder is shown again.
  for (const end of ["animationend", "animationcancel"]) {
    row.node.addEventListener(end, () => row.node.classList.remove("changed"));
  }
  return row;
}

/** Highlight rows for a moment. An animation that still runs starts again. */
function flash(rows) {
  if (rows.length === 0) return;
  for (const row of rows) row.classList.remove("changed");
  void document.body.offsetWidth; // forces a reflow, which restarts the animation
  for (const row of rows) row.classList.add("changed");
}
