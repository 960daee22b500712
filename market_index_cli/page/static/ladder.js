// The ladder: asks above bids, the best of each in the middle, with the amount and the value at each price, and the
// running total of the values.

import { counted, grouped, position, text } from "./exact.js";
import { copyOf, part, setChildren, setText } from "./elements.js";

const INITIAL_LEVELS = 50;
const MORE_LEVELS = 100;
const COLUMNS = ["amount", "value", "total"];
const CHANGED = [{ background: "var(--selected)", boxShadow: "inset 0 0 0 2px var(--accent)" }, {}];
const CHANGED_MILLISECONDS = 1200;

export class Ladder {
  #asks = new Side("ask", "asks above", () => this.#show());
  #bids = new Side("bid", "bids below", () => this.#show());
  #table = part(".ladder");
  #middle = part(".middle td");
  #book = null;
  #key = null;
  /** Scrolls the levels around the middle, which is in view until the visitor scrolls away. */
  #scroller = part(".levels");
  #centre = 0;

  constructor() {
    new ResizeObserver(() => this.#centred(() => {})).observe(this.#scroller);
  }

  /** Show a book. No row counts as changed if the last book had another key: that of another pair or of other units. */
  update(book, key) {
    const isOther = key !== this.#key;
    if (isOther) for (const side of [this.#asks, this.#bids]) side.reset();
    [this.#book, this.#key] = [book, key];
    this.#centred(() => this.#show(), isOther);
  }

  /** Update the rows, and keep the middle in the centre where it is there; with `isForced`, move it there. */
  #centred(update, isForced = false) {
    const isCentred = isForced || Math.abs(this.#scroller.scrollTop - this.#centre) < 2;
    update();
    if (!isCentred) return;
    const row = this.#middle.parentElement;
    const room = this.#scroller.clientHeight + this.#table.tHead.offsetHeight;
    this.#scroller.scrollTop = row.offsetTop + (row.offsetHeight - room) / 2;
    this.#centre = this.#scroller.scrollTop;
  }

  #show() {
    const { asks, bids, middle } = this.#book;
    const rows = [this.#asks.rows(asks, this.#book), this.#bids.rows(bids, this.#book)];
    const largest = rows.flat().reduce((most, { worth }) => (worth > most ? worth : most), 0n);
    const lengths = rows.flat().map((row) => decimalPlaces(row.priceText).length);
    this.#table.style.setProperty("--places", `${Math.max(0, ...lengths)}ch`);
    this.#asks.show(rows[0], largest, asks.length);
    this.#bids.show(rows[1], largest, bids.length);
    setText(this.#middle, middle);
  }
}

class Side {
  #rows = new Map();
  #levels = null;
  #shown = INITIAL_LEVELS;
  #name;
  #others;
  #body;
  #more;

  constructor(name, others, onMore) {
    this.#name = name;
    this.#others = others;
    this.#body = part(`tbody.${name}s`);
    this.#more = part(`.more.${name}s`);
    this.#more.addEventListener("click", () => {
      this.#shown += MORE_LEVELS;
      onMore();
    });
  }

  reset() {
    this.#shown = INITIAL_LEVELS;
    this.#levels = null;
    this.#rows.clear();
  }

  /**
   * Return the texts of each visible level, what it is worth, and whether it has changed: the last book had another
   * amount at its price, or no level.
   */
  rows(levels, { units, write }) {
    const before = new Map((this.#levels ?? levels).map((level) => [level.price, level.amount]));
    this.#levels = levels;
    return levels.slice(0, this.#shown).map(({ price, text: priceText, amount, worth, total, prices }) => ({
      price,
      priceText,
      worth,
      isChanged: before.get(price) !== amount,
      amount: write(units.amount(amount)),
      value: write(worth),
      total: write(total),
      tooltip: prices.map((one) => `${text(units.price(one.value))}: ${grouped(units.amount(one.amount))}`).join("\n"),
    }));
  }

  /** Show rows of `count` levels. `largest` is the value of the longest bar. */
  show(rows, largest, count) {
    const known = this.#rows;
    this.#rows = new Map(rows.map((row) => [row.price, known.get(row.price) ?? createRow(this.#name, row)]));
    const nodes = [...this.#rows.values()].map((row) => row.node);
    setChildren(this.#body, this.#name === "ask" ? nodes.reverse() : nodes);
    for (const shown of rows) {
      const row = this.#rows.get(shown.price);
      for (const name of COLUMNS) setText(row[name], shown[name]);
      row.node.title = shown.tooltip;
      row.bar.style.width = `${100 * position(shown.worth, 0n, largest)}%`;
      if (shown.isChanged) row.amount.animate(CHANGED, CHANGED_MILLISECONDS);
    }
    const hidden = count - rows.length;
    this.#more.hidden = hidden === 0;
    setText(this.#more, `${counted(hidden)} more ${this.#others}: show ${counted(Math.min(hidden, MORE_LEVELS))}`);
  }
}

function createRow(side, { price, priceText }) {
  const node = copyOf("level");
  const [row, places] = [{ node, bar: node.querySelector(".bar") }, decimalPlaces(priceText)];
  for (const name of COLUMNS) row[name] = node.querySelector(`.${name}`);
  node.dataset.price = price;
  node.querySelector(".side").prepend(side);
  node.querySelector(".price").prepend(priceText.slice(0, priceText.length - places.length));
  node.querySelector(".places").textContent = places;
  return row;
}

/** Return the text of a price from its point, or the sign of its power, on. */
function decimalPlaces(text) {
  return /[.×].*|$/.exec(text)[0];
}
