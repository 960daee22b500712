// Exact arithmetic for the numbers of the API. Amounts are BigInt, prices are decimals of any length, and every number
// on the page is made from these. Only `share` and `position` return floats, which are lengths on the screen.

const DECIMAL = /^(\d{1,64})(?:\.(\d{1,64}))?$/;
const FRACTION_STEPS = 1n << 40n;
const MAX_COEFFICIENT = 1n << 96n;
const DIGITS = 6;
const MAX_LENGTH = 16;
const WORDS = { 6: "M", 9: "B", 12: "T" };

/** Parse a JSON text whose numbers are integers: each becomes a BigInt. JSON.parse alone rounds those above 2^53. */
export function parseExact(text) {
  return JSON.parse(text, (_, value, context) => (typeof value === "number" ? BigInt(context.source) : value));
}

/** Return the decimal of a price's text: a coefficient and its number of decimal places. */
export function decimal(text) {
  const match = typeof text === "string" ? DECIMAL.exec(text) : null;
  if (!match) throw new SyntaxError(`a price must be a decimal number in a string, got ${text}`);
  const [, whole, places = ""] = match;
  return { coefficient: BigInt(whole + places), places: places.length };
}

/** Return the decimal of a whole number. */
export function whole(coefficient) {
  return { coefficient, places: 0 };
}

function aligned(one, other) {
  const places = Math.max(one.places, other.places);
  return [scaled(one, places), scaled(other, places), places];
}

function scaled(value, places) {
  return value.coefficient * 10n ** BigInt(places - value.places);
}

export function compare(one, other) {
  const [left, right] = aligned(one, other);
  return ascending(left, right);
}

export function add(one, other) {
  const [left, right, places] = aligned(one, other);
  return { coefficient: left + right, places };
}

export function subtract(one, other) {
  const [left, right, places] = aligned(one, other);
  return { coefficient: left - right, places };
}

export function times(value, factor) {
  return { coefficient: value.coefficient * factor, places: value.places };
}

export function product(one, other) {
  return { coefficient: one.coefficient * other.coefficient, places: one.places + other.places };
}

/** Return a decimal times a power of ten. */
export function shifted(value, power) {
  const places = value.places - power;
  return places < 0 ? whole(value.coefficient * 10n ** BigInt(-places)) : { coefficient: value.coefficient, places };
}

/** Return half of a decimal, with one more decimal place. */
export function half(value) {
  return { coefficient: value.coefficient * 5n, places: value.places + 1 };
}

/** Return the text of a decimal as the API writes prices: fixed-point, no trailing zeros. */
export function text(value) {
  const negative = value.coefficient < 0n;
  const digits = String(negative ? -value.coefficient : value.coefficient).padStart(value.places + 1, "0");
  const point = digits.length - value.places;
  const places = digits.slice(point).replace(/0+$/, "");
  return (negative ? "-" : "") + digits.slice(0, point) + (places && `.${places}`);
}

/** Return the text of an integer, or of a decimal, with its digits before the point in groups of three. */
export function grouped(number) {
  const [digits, places] = (typeof number === "bigint" ? String(number) : text(number)).split(".");
  const groups = digits.replace(/\B(?=(?:\d{3})+$)/g, ",");
  return places === undefined ? groups : `${groups}.${places}`;
}

/** Return the exact text of a number in a chart, in words from a million on: `5 M`, `5 B`. */
export function label(value) {
  return worded(value, 6) ?? fitting(value);
}

/**
 * Return the text of a number that people read: six significant digits, but every digit before the point; rounded
 * toward zero. From a billion on it is in words.
 */
export function readable(value) {
  const isLarge = magnitude(value) >= 9;
  const rounded = truncated(value, isLarge ? lastDigit(value) : Math.min(lastDigit(value), 0));
  return worded(rounded, 9) ?? fitting(rounded);
}

/** Return a part of a number in percent: its first three digits. */
export function percent(part, all) {
  const [dividend, divisor] = aligned(part, all);
  const value = { coefficient: (dividend * 10n ** 32n) / divisor, places: 30 };
  return `${fitting(truncated(value, magnitude(value) - 2))} %`;
}

/** Return the exponent of the last digit that is shown by default: the sixth significant one. */
export function lastDigit(value) {
  return magnitude(value) - DIGITS + 1;
}

/** Return a decimal power of ten. */
export function powerOfTen(exponent) {
  return shifted(whole(1n), exponent);
}

/** Return the multiple of a positive step that is next to a decimal: toward zero, or above a positive one with `isUp`. */
export function multiple(value, step, isUp) {
  const [part, unit, places] = aligned(value, step);
  const count = part / unit + (isUp && part % unit ? 1n : 0n);
  return { coefficient: count * unit, places };
}

/** Whether a decimal is a price of the API: greater than 0, at most 28 decimal places, a coefficient below 2^96. */
export function isPrice(value) {
  const [digits, places = ""] = text(value).split(".");
  return value.coefficient > 0n && places.length <= 28 && BigInt(digits + places) < MAX_COEFFICIENT;
}

function magnitude({ coefficient, places }) {
  return String(coefficient).replace("-", "").length - 1 - places;
}

/** Return a decimal with digits down to that of an exponent. */
function truncated(value, exponent) {
  return multiple(value, powerOfTen(exponent), false);
}

/** Return a decimal in words if its magnitude is at least `least` and has a word; else null. */
function worded(value, least) {
  const power = Math.floor(magnitude(value) / 3) * 3;
  if (magnitude(value) < least || !(power in WORDS)) return null;
  return `${text(shifted(value, -power))} ${WORDS[power]}`;
}

/** Return the text of a decimal with its digits in groups; as `n×10ᵏ` if it would be long and that is shorter. */
export function fitting(value) {
  const plain = grouped(value);
  if (plain.length <= MAX_LENGTH || value.coefficient === 0n) return plain;
  const power = magnitude(value);
  const raised = String(power).replace(/./g, (one) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[one] ?? "⁻");
  const scientific = `${text(shifted(value, -power))}×10${raised}`;
  return scientific.length < plain.length ? scientific : plain;
}

/** Order whole numbers, for sorting. */
export function ascending(one, other) {
  return one < other ? -1 : one > other ? 1 : 0;
}

/** Return the approximate ratio of two amounts as a float, for lengths on the screen. */
export function share(part, all) {
  return all === 0n ? 0 : Number((part * FRACTION_STEPS) / all) / Number(FRACTION_STEPS);
}

/** Return the approximate position of a decimal between two others as a float: 0 at `low`, 1 at `high`. */
export function position(value, low, high) {
  const [part, all] = aligned(subtract(value, low), subtract(high, low));
  return share(part, all);
}

/**
 * Return at most `count + 1` round decimals from `low` to `high`: the multiples of 1, 2 or 5 times a power of 10.
 * They have at most `finest` decimal places.
 */
export function ticks(low, high, count, finest = Infinity) {
  const fine = Math.min(Math.max(low.places, high.places) + 3, finest);
  const places = Math.max(fine, low.places, high.places);
  const [from, to] = [scaled(low, places), scaled(high, places)];
  const least = 10n ** BigInt(places - fine);
  const wanted = BigInt(count);
  let step = 10n ** BigInt(Math.max(String((to - from) / wanted).length - 1, 0));
  if (step < least) step = least;
  for (const factor of [1n, 2n, 5n, 10n]) {
    if (step * factor * wanted >= to - from) {
      step *= factor;
      break;
    }
  }
  const found = [];
  for (let tick = ((from + step - 1n) / step) * step; tick <= to; tick += step) {
    found.push({ coefficient: tick, places });
  }
  return found;
}
