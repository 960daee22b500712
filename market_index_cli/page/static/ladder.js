// The ladder: asks above bids, the best of each in the middle, with the amount and the value at each price, and the
// running total of the values.

import { add, compare, grouped, position, text, whole } from "./exact.js";
import { decimalPlaces, element, setChildren, setText } from "./elements.js";

const INITIAL_LEVELS = 15;
const MORE_LEVELS = 100;
const MAX_ALIGNED_LENGTH = 14;
const COLUMNS = ["amount", "value", "total"];
const ZERO = whole(0n);

export class Ladder {
  #asks = new Side("asks", "ask", "asks above");
  #bids = new Side("bids", "bid", "bids below");
  #middle = element("td", { colspan: "5" });
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
        ...["Price", "Amount", "Value", "Total"].map((name) => element("th", { scope: "col", class: "number" }, name)),
      ),
    ),
    this.#asks.body,
    element("tbody", { class: "middle" }, element("tr", {}, this.#middle)),
    this.#bids.body,
  );
  #book = null;
  #key = null;
  node = element(
    "section",
    { class: "panel", "aria-label": "Ladder" },
    this.#asks.more,
    this.#table,
    this.#bids.more,
    element("p", { class: "remark legend" }, "Bar: the value of the level. Total: the values from the best price on."),
  );

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
    const [asks, bids] = [this.#asks.rows(book.asks, book), this.#bids.rows(book.bids, book)];
    const rows = [...asks, ...bids];
    const longest = Math.max(0, ...rows.map((row) => decimalPlaces(row.price).length));
    const room = longest > MAX_ALIGNED_LENGTH ? 0 : longest;
    this.#table.classList.toggle("long", room < longest);
    const largest = [ZERO, ...rows.map((row) => row.worth)].sort(compare).at(-1);
    this.#asks.show(asks, room, largest, book.asks.length);
    this.#bids.show(bids, room, largest, book.bids.length);
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

  constructor(name, one, many) {
    this.#one = one;
    this.#many = many;
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
   * Return the texts of each visible level, what it is worth, and whether it has changed: the last book had another
   * amount at its price, or no level.
   */
  rows(levels, { units, write }) {
    const before = new Map((this.#levels ?? levels).map((level) => [level.price, level.amount]));
    this.#levels = levels;
    let total = ZERO;
    return levels.slice(0, this.shown).map((level) => {
      const { price, amount, prices } = level;
      const worth = units.worth(level);
      total = add(total, worth);
      return {
        price,
        worth,
        isChanged: before.get(price) !== amount,
        amount: write(units.amount(amount)),
        value: write(worth),
        total: write(total),
        tooltip: prices.map((one) => `${text(units.price(one.value))}: ${grouped(units.amount(one.amount))}`).join("\n"),
      };
    });
  }

  /** Show rows. `room` is the width of the decimal places of prices in characters, `largest` the value of the longest bar. */
  show(rows, room, largest, count) {
    const known = this.#rows;
    const changed = [];
    this.#rows = new Map();
    for (const shown of rows) {
      const row = known.get(shown.price) ?? createRow(this.#one, shown.price);
      if (shown.isChanged) changed.push(row.node);
      for (const name of COLUMNS) setText(row[name], shown[name]);
      row.node.title = shown.tooltip;
      row.places.style.minWidth = `${room}ch`;
      row.bar.style.width = `${100 * position(shown.worth, ZERO, largest)}%`;
      this.#rows.set(shown.price, row);
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
    places: element("span", { class: "places" }, decimalPlaces(price)),
    amount: element("span"),
    value: element("span"),
    total: element("span"),
    bar: element("span", { class: "bar" }),
  };
  row.node = element(
    "tr",
    { "data-price": price },
    element("th", { scope: "row", class: "side" }, side),
    element("td", { class: `number price${price.length > MAX_ALIGNED_LENGTH ? " long" : ""}` }, price.split(".")[0], row.places),
    element("td", { class: "number amount" }, row.amount),
    element("td", { class: "number value" }, row.value),
    element("td", { class: "number total" }, row.total, row.bar),
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
