// Exact arithmetic for the numbers of the API. Amounts are BigInt, prices are decimals of any length, and every number
// on the page is made from these. Only `share` and `position` return floats, which are lengths on the screen.

const DECIMAL = /^(\d{1,64})(?:\.(\d{1,64}))?$/;
const FRACTION_STEPS = 1n << 40n;
const MAX_COEFFICIENT = 1n << 96n;
const DIGITS = 6;
const MAX_DIGITS = 9;
const MAX_LENGTH = 16;
const WORDS = { 6: "M", 9: "B", 12: "T" };

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

export const ZERO = whole(0n);

function aligned(one, other) {
  const places = Math.max(one.places, other.places);
  return [scaled(one, places), scaled(other, places), places];
}

function scaled(value, places) {
  return value.coefficient * 10n ** BigInt(places - value.places);
}

/** Return -1, 0 or 1, for sorting. */
export function compare(one, other) {
  const [left, right] = aligned(one, other);
  return left < right ? -1 : left > right ? 1 : 0;
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

/** Return the quotient of two decimals above 0 with so many decimal places, rounded down, or up with `isUp`. */
export function quotient(dividend, divisor, places, isUp) {
  const [part, unit] = aligned(dividend, divisor);
  const scaledPart = part * 10n ** BigInt(places);
  return { coefficient: scaledPart / unit + (isUp && scaledPart % unit ? 1n : 0n), places };
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

/** Return the exact text of a number, in words from a million on: `5 M`, `5 B`. */
export function words(value) {
  const power = Math.floor(magnitude(value) / 3) * 3;
  return power in WORDS ? `${text(shifted(value, -power))} ${WORDS[power]}` : fitting(value);
}

/** Return the text of an amount or a value that people read: six significant digits, in words from a million on. */
export function readable(value) {
  return words(rounded(value, lastDigit(value)));
}

/**
 * Return the text of a price that people read, rounded to the digit of an exponent, by default its sixth significant
 * one. A number below that digit keeps its first digit, because it is not zero.
 */
export function readablePrice(value, exponent = lastDigit(value)) {
  const first = magnitude(value);
  return fitting(rounded(value, Math.max(Math.min(exponent, first), first - MAX_DIGITS + 1)));
}

/** Return the decimal of an amount that people type, such as `1,234.5`; null if it is none. */
export function typed(text) {
  const plain = text.replace(/[,\s_]/g, "");
  return DECIMAL.test(plain) ? decimal(plain) : null;
}

/** Return the text of a level's price: bids down, asks up. Far from the best price, it may have very many digits. */
export function levelPrice(value, isUp) {
  return fitting(multiple(value, powerOfTen(magnitude(value) - MAX_DIGITS + 1), isUp));
}

/** Return a part of a number in percent, with three significant digits. */
export function percent(part, all) {
  const value = shifted(quotient(part, all, 32, false), 2);
  return `${fitting(rounded(value, magnitude(value) - 2))} %`;
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

/** Return a decimal rounded to the digit of an exponent, half away from zero. */
function rounded(value, exponent) {
  const [part, unit, places] = aligned(value, powerOfTen(exponent));
  const half = part < 0n ? -unit : unit;
  return { coefficient: ((2n * part + half) / (2n * unit)) * unit, places };
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

/** Return the approximate position of a decimal between two others as a float: 0 at `low`, 1 at `high`. */
export function position(value, low, high) {
  const [part, all] = aligned(subtract(value, low), subtract(high, low));
  return all === 0n ? 0 : Number((part * FRACTION_STEPS) / all) / Number(FRACTION_STEPS);
}

/** Return at most `count + 1` round decimals from `low` to `high`: the multiples of 1, 2 or 5 times a power of 10. */
export function ticks(low, high, count) {
  const places = Math.max(low.places, high.places) + 3;
  const [from, to] = [scaled(low, places), scaled(high, places)];
  const wanted = BigInt(count);
  let step = 10n ** BigInt(Math.max(String((to - from) / wanted).length - 1, 0));
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
