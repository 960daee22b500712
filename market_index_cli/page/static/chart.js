// The depth chart: the cumulative value of each side up to each price, which is the ladder's total.

import * as exact from "./exact.js";
import { part, setText, svgElement } from "./elements.js";

const HEIGHT = 320;
const TOP = 24;
const BOTTOM = 26;
const RIGHT = 14;
const DIGIT_WIDTH = 6.9;
const REACH_FACTOR = 3n;
const MAX_LEVELS = 3000;
/** A label is the exact text of a round number. */
const ALL_DIGITS = 64;

export class DepthChart {
  #panel = part(".depth-panel");
  #drawing = part(".chart");
  #outside = part(".outside");
  #book = null;
  #width = 0;

  constructor() {
    new ResizeObserver(([{ contentRect }]) => {
      if (Math.round(contentRect.width) === this.#width) return;
      this.#width = Math.round(contentRect.width);
      this.#draw();
    }).observe(this.#drawing);
    this.#drawing.setAttribute("height", HEIGHT);
  }

  show(book) {
    this.#book = book;
    this.#draw();
  }

  #draw() {
    const book = this.#book;
    this.#panel.hidden = !book || book.bids.length + book.asks.length === 0;
    if (this.#panel.hidden || this.#width === 0) return this.#drawing.replaceChildren();
    this.#drawing.setAttribute("viewBox", `0 0 ${this.#width} ${HEIGHT}`);
    const shown = visibleLevels(book);
    this.#drawing.replaceChildren(...content(shown, this.#width));
    const isCut = shown.bids.length + shown.asks.length < book.bids.length + book.asks.length;
    setText(this.#outside, isCut ? "Levels far from the middle are outside the chart." : "");
  }
}

/** Return the elements of a chart. */
function content({ low, high, bids, asks }, fullWidth) {
  const [bidTotal, askTotal] = [bids, asks].map((side) => side.at(-1)?.total ?? 0n);
  const most = bidTotal > askTotal ? bidTotal : askTotal;
  const values = exact.ticks(0n, most, 4).map((tick) => [tick, exact.amount(tick)]);
  const left = 10 + Math.max(...values.map(([, label]) => label.length)) * DIGIT_WIDTH;
  const width = fullWidth - left - RIGHT;
  const floor = HEIGHT - BOTTOM;
  const x = (price) => left + width * Math.min(Math.max(exact.position(price, low, high), 0), 1);
  const y = (total) => floor - (floor - TOP) * exact.position(total, 0n, most);
  const [ofBids, ofAsks] = [shape(bids, "bids", x, y, floor, left), shape(asks, "asks", x, y, floor, left + width)];
  return [
    ...values.flatMap(([tick, label]) => {
      const at = y(tick).toFixed(1);
      return ticked({ x1: left, x2: left + width, y1: at, y2: at }, { x: left - 6, y: at, dy: "0.35em", "text-anchor": "end" }, label);
    }),
    ...priceLabels(low, high, width).flatMap(([tick, label]) => {
      const at = x(tick).toFixed(1);
      const middle = Math.min(x(tick), fullWidth - 2 - (label.length * DIGIT_WIDTH) / 2).toFixed(1);
      return ticked({ x1: at, x2: at, y1: floor, y2: floor + 5 }, { x: middle, y: floor + 18, "text-anchor": "middle" }, label);
    }),
    // In a crossed book the areas overlap: no line is below one.
    ...ofBids.areas, ...ofAsks.areas, ...ofBids.lines, ...ofAsks.lines,
  ];
}

/**
 * Return the levels that the chart shows, with running totals, and the price range of the chart. Levels three times as
 * far from the middle as the median are left out, because they would compress the others.
 */
export function visibleLevels(book) {
  const middle = book.mid ?? (book.bids[0] ?? book.asks[0]).shown;
  const distance = ({ shown }) => (shown > middle ? shown - middle : middle - shown);
  // The best levels of a crossed book may be too far away to draw. The totals include them.
  const best = [book.bids, book.asks].map((side) => side.slice(0, MAX_LEVELS));
  const distances = best.flat().map(distance).sort(exact.compare);
  const reach = distances[Math.floor((distances.length - 1) / 2)] * REACH_FACTOR;
  const isNear = (level) => reach === 0n || distance(level) <= reach;
  const [bids, asks] = best.map((side) => side.filter(isNear));
  const prices = [...bids, ...asks].map((level) => level.shown).sort(exact.compare);
  const [low, high] = [prices[0], prices.at(-1)];
  // The margin at each end is 5 % of the range; around a single price, half of that price.
  const margin = high === low ? high / 2n : (high - low) / 20n;
  return { low: low > margin ? low - margin : 0n, high: high + margin, bids, asks };
}

function ticked(line, place, label) {
  return [svgElement("line", { class: "grid", ...line }), svgElement("text", { class: "tick", ...place }, label)];
}

/** Return as many round prices as fit below the chart, each with its label. */
function priceLabels(low, high, width) {
  for (let count = Math.floor(width / 60); count > 1; count -= 1) {
    const found = exact.ticks(low, high, count);
    const written = found.map((one) => exact.price(one, ALL_DIGITS));
    const longest = Math.max(...written.map((one) => one.length));
    if (found.length * (longest * DIGIT_WIDTH + 14) <= width) return found.map((tick, number) => [tick, written[number]]);
  }
  return [];
}

/** Return the area of one side, and the step line above it with its name. */
function shape(levels, side, x, y, floor, end) {
  if (levels.length === 0) return { areas: [], lines: [] };
  let line = `M${x(levels[0].shown).toFixed(1)} ${floor}`;
  for (const level of levels) line += `H${x(level.shown).toFixed(1)}V${y(level.total).toFixed(1)}`;
  line += `H${end.toFixed(1)}`;
  const [anchor, name] = side === "bids" ? ["start", "Bids"] : ["end", "Asks"];
  return {
    areas: [svgElement("path", { class: `area ${side}`, d: `${line}V${floor}Z` })],
    lines: [
      svgElement("path", { class: `line ${side}`, d: line }),
      svgElement("text", { class: `side-name ${side}`, x: end, y: 12, "text-anchor": anchor }, name),
    ],
  };
}
