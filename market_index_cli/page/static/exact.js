// Exact arithmetic for the numbers of the page.
//
// A number is a BigInt in units of 10^-64, so it is added, subtracted and compared as it is, and multiplied by an integer.
// No number of a book has more decimal places: a price has at most 28, and a registry moves the point by at most 19. The
// amounts of the API are integers; `whole` makes numbers of them. Only `position` returns a float: a length on the screen.

const PLACES = 64;
const ONE = 10n ** BigInt(PLACES);
const DECIMAL = /^(\d{1,64})(?:\.(\d{1,64}))?$/;
const FRACTION_STEPS = 1n << 40n;
const MAX_COEFFICIENT = 1n << 96n;
const DIGITS = 6;
const LEVEL_DIGITS = 9;
const PERCENT_DIGITS = 3;
const MAX_LENGTH = 16;
const WORDS = { 6: "M", 9: "B", 12: "T" };

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

/** Return the integer of a number, rounded down. */
export function floor(value) {
  return value / ONE;
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

/** Return the text of a number with its digits before the point in groups of three. */
export function grouped(value) {
  const [digits, places] = text(value).split(".");
  const groups = digits.replace(/\B(?=(?:\d{3})+$)/g, ",");
  return places === undefined ? groups : `${groups}.${places}`;
}

/** Return the text of a count, which is an integer of JavaScript. */
export function counted(count) {
  return grouped(whole(BigInt(count)));
}

/** Return the exact text of a number, in words from a million on: `5 M`, `5 B`. */
export function words(value) {
  const power = Math.floor(magnitude(value) / 3) * 3;
  return power in WORDS ? `${text(shifted(value, -power))} ${WORDS[power]}` : fitting(value);
}

/** Return the text of an amount or a value that people read: six significant digits, in words from a million on. */
export function readable(value) {
  return words(rounded(value, DIGITS));
}

/** Return the text of a price that people read: six significant digits. */
export function readablePrice(value) {
  return fitting(rounded(value, DIGITS));
}

/** Return the text of a level's price: bids down, asks up. Far from the best price, it may have very many digits. */
export function levelPrice(value, isUp) {
  return fitting(multiple(value, lastDigit(value, LEVEL_DIGITS), isUp));
}

/** Return a part of a number in percent, with three significant digits. */
export function percent(part, all) {
  return `${fitting(rounded(quotient(100n * part, all), PERCENT_DIGITS))} %`;
}

/** Return the number of an amount that people type, such as `1,234.5`; null if it is none. */
export function typed(text) {
  const plain = text.replace(/[,\s_]/g, "");
  return DECIMAL.test(plain) ? decimal(plain) : null;
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

/** Return the power of ten of the first digit. */
function magnitude(value) {
  return value === 0n ? 0 : String(value).replace("-", "").length - 1 - PLACES;
}

/** Return a number with so many significant digits, rounded half away from zero. */
function rounded(value, digits) {
  const step = lastDigit(value, digits);
  return ((value + (value < 0n ? -step : step) / 2n) / step) * step;
}

/** Return the text of a number with its digits in groups; as `n×10ᵏ` if it would be long and that is shorter. */
export function fitting(value) {
  const plain = grouped(value);
  if (plain.length <= MAX_LENGTH) return plain;
  const power = magnitude(value);
  const raised = String(power).replace(/./g, (one) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[one] ?? "⁻");
  const scientific = `${text(shifted(value, -power))}×10${raised}`;
  return scientific.length < plain.length ? scientific : plain;
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
