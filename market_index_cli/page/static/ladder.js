// The ladder: asks above bids, the best of each in the middle, with the amount and the value at each price, and the
// running total of the values.

import { columnOf, counted, inColumn, position, price } from "./exact.js";
import { copyOf, part, setChildren, setText } from "./elements.js";

const INITIAL_LEVELS = 50;
const MORE_LEVELS = 100;
/** Amount, value and total. */
const COLUMNS = [0, 1, 2];
const CHANGED_MILLISECONDS = 1200;
/** The rows of both sides, by their elements. */
const rows = new WeakMap();

export class Ladder {
  #table = part(".ladder");
  #units = [...this.#table.querySelectorAll("thead small")];
  #middle = part(".middle td");
  #asks = new Side("ask", "asks above", () => this.#centred(() => this.#show()));
  #bids = new Side("bid", "bids below", () => this.#centred(() => this.#show()));
  #content = null;
  #key = null;
  #formats = COLUMNS.map(() => ({}));
  #widths = [];
  /** Scrolls the levels around the middle, which is in view until the visitor scrolls away. */
  #scroller = part(".levels");
  #centre = 0;

  /** `onLevel(level)` is called when the visitor selects a level. */
  constructor(onLevel) {
    new ResizeObserver(() => this.#centred(() => {})).observe(this.#scroller);
    this.#table.addEventListener("click", ({ target }) => {
      const row = rows.get(target.closest("tr"));
      if (row) onLevel(row.level);
    });
  }

  /** Show a book. No row counts as changed if the last book had another key: that of another pair or of other units. */
  show(content, key) {
    const isOther = key !== this.#key;
    // Only rows above the middle can move it. To read its place costs a layout.
    const isMoved = isOther || content.asks.length !== this.#content.asks.length;
    if (isOther) for (const side of [this.#asks, this.#bids]) side.reset();
    [this.#content, this.#key] = [content, key];
    const { quoteName, baseName } = content.units;
    [quoteName, baseName, quoteName, quoteName].forEach((name, at) => setText(this.#units[at], name));
    if (isMoved) this.#centred(() => this.#show(), isOther);
    else this.#show();
  }

  /** End the marks of changes. Each draw does it, so that they need no frames of their own. */
  unmark(now) {
    for (const { dataset } of this.#table.querySelectorAll("[data-change]")) {
      if (now - dataset.changedAt > CHANGED_MILLISECONDS) delete dataset.change;
    }
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
    const { asks, bids, middle, units } = this.#content;
    const shown = [...this.#asks.take(asks, units), ...this.#bids.take(bids, units)];
    const largest = shown.reduce((most, { level: { worth } }) => (worth > most ? worth : most), 0n);
    this.#formats = this.#formats.map((before, at) => {
      const format = columnOf(shown.map(({ values }) => values[at]));
      return format.power === before.power && format.places === before.places ? before : format;
    });
    const places = shown.reduce((most, row) => Math.max(most, row.places), 0);
    for (const row of shown) row.show(this.#formats, places, largest);
    // Each row has its own layout, so that a change costs one row: the columns are as wide as their longest texts.
    const widths = [0, 1, 2, 3].map((at) => shown.reduce((most, { lengths }) => Math.max(most, lengths[at]), 8));
    if (String(widths) !== String(this.#widths)) {
      this.#widths = widths;
      const { style } = this.#table;
      widths.forEach((width, at) => style.setProperty(`--column-${at}`, `minmax(${width + 1}ch, ${width}fr)`));
      style.setProperty("--width", `calc(${widths.reduce((sum, width) => sum + width + 1)}ch + 70px)`);
    }
    setText(this.#middle, middle);
  }
}

class Side {
  #rows = new Map();
  #shown = INITIAL_LEVELS;
  #isFirst = true;
  #name;
  #others;
  #body;
  #more;
  #heading;

  constructor(name, others, onMore) {
    this.#name = name;
    this.#others = others;
    this.#body = part(`tbody.${name}s`);
    this.#heading = this.#body.querySelector("tr");
    this.#more = part(`.more.${name}s`);
    this.#more.addEventListener("click", () => {
      this.#shown += MORE_LEVELS;
      this.#isFirst = true;
      onMore();
    });
  }

  reset() {
    this.#shown = INITIAL_LEVELS;
    this.#isFirst = true;
    this.#rows.clear();
  }

  /** Take the levels, and return the rows of those that are visible. */
  take(levels, units) {
    const known = this.#rows;
    const shown = levels.slice(0, this.#shown);
    this.#rows = new Map(shown.map((level) => [level.value, known.get(level.value) ?? new Row()]));
    const rows = [...this.#rows.values()];
    rows.forEach((row, at) => row.take(shown[at], units, this.#isFirst));
    this.#isFirst = false;
    const nodes = rows.map(({ node }) => node);
    setChildren(this.#body, [this.#heading, ...(this.#name === "ask" ? nodes.reverse() : nodes)]);
    const hidden = levels.length - rows.length;
    this.#more.hidden = hidden === 0;
    setText(this.#more, `${counted(hidden)} more ${this.#others}: show ${counted(Math.min(hidden, MORE_LEVELS))}`);
    return rows;
  }
}

/** A row of the ladder: it writes only what has changed. */
class Row {
  node = copyOf("level");
  level = { amount: 0n };
  /** The text of the price, and how many characters of it are from its point, or from the sign of its power, on. */
  price = "";
  places = 0;
  values = COLUMNS.map(() => 0n);
  lengths = [0, 0, 0, 0];
  #cells = [...this.node.children];
  /** What is shown: the values, how they are written, and the largest worth. */
  #shown = COLUMNS.map(() => []);
  #bar = [];

  constructor() {
    rows.set(this.node, this);
  }

  take(level, units, isFirst) {
    const before = this.level;
    this.level = level;
    if (level.shown !== before.shown) {
      this.price = price(level.shown, 9, level.isAsk);
      this.places = /[.×].*|$/.exec(this.price)[0].length;
    }
    this.values = [units.amount(level.amount), level.worth, level.total];
    if (level.amount === before.amount || isFirst) return;
    this.node.dataset.change = level.amount > before.amount ? "up" : "down";
    this.node.dataset.changedAt = performance.now();
  }

  /** Write the cells: amounts in the formats of their columns, and the decimals of the price padded to so many places. */
  show(formats, places, largest) {
    this.#write(0, this.price + "\u2007".repeat(places - this.places));
    formats.forEach((format, at) => {
      const [value, before] = this.#shown[at];
      if (value === this.values[at] && format === before) return;
      this.#shown[at] = [this.values[at], format];
      this.#write(at + 1, inColumn(this.values[at], format));
    });
    const { worth } = this.level;
    if (worth === this.#bar[0] && largest === this.#bar[1]) return;
    this.#bar = [worth, largest];
    this.node.style.setProperty("--worth", `${(100 * position(worth, 0n, largest)).toFixed(1)}%`);
  }

  #write(at, text) {
    this.lengths[at] = text.length;
    setText(this.#cells[at], text);
  }
}
