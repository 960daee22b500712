// Exact arithmetic for the numbers of the page.
//
// A number is a BigInt in units of 10^-64, so it is added, subtracted and compared as it is, and multiplied by an integer.
// No number of a book has more decimal places: a price has at most 28, and a registry moves the point by at most 19. The
// amounts of the API are integers; `whole` makes numbers of them. Only `position` returns a float: a length on the screen.
//
// Three functions write a number for people: `exactly`, `price` and `amount`. `typed` reads what people type.

const PLACES = 64;
const ONE = 10n ** BigInt(PLACES);
const DECIMAL = /^(\d{1,64})(?:\.(\d{1,64}))?$/;
const FRACTION_STEPS = 1n << 40n;
const MAX_COEFFICIENT = 1n << 96n;
const DIGITS = 6;
const MAX_LENGTH = 16;
const WORDS = { 6: "M", 9: "B", 12: "T" };
const POWERS = { K: 3, M: 6, B: 9, T: 12 };
const SPACED = /^[1-9]\d{0,2}(?:[ \u00a0\u202f]\d{3})+(?![\s\d])/u;
const GROUPED = /^[1-9]\d{0,2}(?:(?:,\d{3}){2,}|(?:,\d{3})+\.\d*)$/;
const NO_NUMBER = "The amount must be a number, such as 1500.5, 1,500.50 or 1.5 M.";

/** Return the number of a price's text. */
export function decimal(text) {
  const match = typeof text === "string" ? DECIMAL.exec(text) : null;
  if (!match) throw new SyntaxError(`a price must be a decimal number in a string, got ${text}`);
  const [, whole, places = ""] = match;
  return BigInt(whole + places) * 10n ** BigInt(PLACES - places.length);
}

/** Return the number of an integer. */
export function whole(integer) {
  return integer * ONE;
}

/** Return the integer of a number from 0, rounded down, or up with `isUp`. */
export function integer(value, isUp = false) {
  return multiple(value, ONE, isUp) / ONE;
}

/** Return -1, 0 or 1, for sorting. */
export function compare(one, other) {
  return one < other ? -1 : one > other ? 1 : 0;
}

export function product(one, other) {
  return (one * other) / ONE;
}

export function quotient(dividend, divisor) {
  return (dividend * ONE) / divisor;
}

/** Return a number times a power of ten. */
export function shifted(value, power) {
  return power < 0 ? value / 10n ** BigInt(-power) : value * 10n ** BigInt(power);
}

/** Return the text of a number as the API writes prices: fixed-point, no trailing zeros. */
export function text(value) {
  const digits = String(value < 0n ? -value : value).padStart(PLACES + 1, "0");
  const places = digits.slice(-PLACES).replace(/0+$/, "");
  return (value < 0n ? "-" : "") + digits.slice(0, -PLACES) + (places && `.${places}`);
}

/** Write a number with every digit, those before the point in groups of three. */
export function exactly(value) {
  const [digits, places] = text(value).split(".");
  return places === undefined ? inGroups(digits) : `${inGroups(digits)}.${places}`;
}

function inGroups(digits) {
  return digits.replace(/\B(?=(?:\d{3})+$)/g, ",");
}

/**
 * Write a price with so many significant digits: rounded half away from zero, or for a level down (bids) or up (asks), by
 * `isUp`. It is `n×10ᵏ` if it would be long and that is shorter.
 */
export function price(value, digits = DIGITS, isUp = null) {
  const step = lastDigit(value, digits);
  const rounded = isUp === null ? nearest(value, step) : multiple(value, step, isUp);
  const plain = exactly(rounded);
  if (plain.length <= MAX_LENGTH) return plain;
  const power = magnitude(rounded);
  const raised = String(power).replace(/./g, (one) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[one] ?? "⁻");
  const scientific = `${text(shifted(rounded, -power))}×10${raised}`;
  return scientific.length < plain.length ? scientific : plain;
}

/** Write an amount or a value with six significant digits, in words from a million on: `5 M`, `5 B`. */
export function amount(value) {
  const rounded = nearest(value, lastDigit(value));
  const power = wordPower(rounded);
  return power ? `${text(shifted(rounded, -power))} ${WORDS[power]}` : price(rounded);
}

/**
 * Return how the amounts of a column are written: all in the word of the median, and with as many decimal places as its six
 * digits have, or fewer if no amount needs them. So their decimal points are in one line.
 */
export function columnOf(values) {
  const median = values.toSorted(compare)[values.length >> 1] ?? 0n;
  const power = wordPower(median);
  const most = Math.max(DIGITS - 1 - magnitude(median) + power, 0);
  let places = 0;
  for (const value of values) while (places < most && value % 10n ** BigInt(PLACES + power - places)) places += 1;
  return { power, places };
}

/** Write an amount of a column; as `amount` if the column is not precise enough for it. */
export function inColumn(value, { power, places }) {
  const step = 10n ** BigInt(PLACES + power - places);
  const count = nearest(value, step) / step;
  if (count === 0n && value !== 0n) return amount(value);
  const digits = String(count).padStart(places + 1, "0");
  const point = digits.length - places;
  return `${inGroups(digits.slice(0, point))}${places ? `.${digits.slice(point)}` : ""}${power ? ` ${WORDS[power]}` : ""}`;
}

/** Write a part of a number in percent, with three significant digits. */
export function percent(part, all) {
  return `${price(quotient(100n * part, all), 3)} %`;
}

/** Write a count, which is an integer of JavaScript. */
export function counted(count) {
  return exactly(whole(BigInt(count)));
}

/**
 * Return the number of an amount that people type (decision 41): `1500.5`, `1,234,567`, `1,500.25`, `1 500`, `1,5`, `.5`,
 * `1.5 M`. Throws a SyntaxError, with a sentence for the visitor, if it is none or has two meanings.
 */
export function typed(text) {
  const [, entered, word] = /^\s*(.*?)\s*([KMBT]?)\s*$/su.exec(text);
  const isSpaced = SPACED.test(entered);
  const digits = isSpaced ? entered.replace(/\s/gu, "") : entered;
  if (isSpaced ? /,\d{3}$/.test(digits) : /^[1-9]\d{0,2},\d{3}$/.test(digits)) {
    const [one, other] = ["", "."].map((mark) => `${digits.replace(",", mark)} ${word}`.trim());
    throw new SyntaxError(`${text.trim()} has two meanings: type ${one} or ${other}.`);
  }
  const plain = !isSpaced && GROUPED.test(digits) ? digits.replaceAll(",", "") : digits.replace(",", ".");
  if (!/^(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})$/.test(plain)) throw new SyntaxError(NO_NUMBER);
  const [before, places] = plain.split(".");
  return shifted(decimal(`${before || "0"}.${places || "0"}`), POWERS[word] ?? 0);
}

/** Return one unit of the last significant digit of a number, by default of the sixth one. */
export function lastDigit(value, digits = DIGITS) {
  return 10n ** BigInt(Math.max(PLACES + magnitude(value) - digits + 1, 0));
}

/** Return the multiple of a step that is next to a number from 0: below, or above with `isUp`. */
export function multiple(value, step, isUp) {
  const rest = value % step;
  return value - rest + (isUp && rest ? step : 0n);
}

/** Whether a number is a price of the API: greater than 0, at most 28 decimal places, a coefficient below 2^96. */
export function isPrice(value) {
  const [digits, places = ""] = text(value).split(".");
  return value > 0n && places.length <= 28 && BigInt(digits + places) < MAX_COEFFICIENT;
}

/** Return the power of ten of the word of a number; 0 without one. */
function wordPower(value) {
  const power = Math.floor(magnitude(value) / 3) * 3;
  return power in WORDS ? power : 0;
}

/** Return the power of ten of the first digit. */
function magnitude(value) {
  return value === 0n ? 0 : String(value).replace("-", "").length - 1 - PLACES;
}

/** Return the multiple of a step that is nearest to a number, half away from zero. */
function nearest(value, step) {
  return ((value + (value < 0n ? -step : step) / 2n) / step) * step;
}

/** Return the approximate position of a number between two others as a float: 0 at `low`, 1 at `high`. */
export function position(value, low, high) {
  return high === low ? 0 : Number(((value - low) * FRACTION_STEPS) / (high - low)) / Number(FRACTION_STEPS);
}

/** Return at most `count + 1` round numbers from `low` to `high`: the multiples of 1, 2 or 5 times a power of 10. */
export function ticks(low, high, count) {
  const least = (high - low) / BigInt(count);
  const power = 10n ** BigInt(String(least).length - 1);
  const step = [1n, 2n, 5n, 10n].map((factor) => factor * power).find((one) => one * BigInt(count) >= high - low);
  const found = [];
  for (let tick = multiple(low, step, true); tick <= high; tick += step) found.push(tick);
  return found;
}
