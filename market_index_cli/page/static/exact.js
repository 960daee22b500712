// Exact arithmetic for the numbers of the API. Amounts are BigInt, prices are decimals of any length, and every number
// on the page is made from these. Only `share` and `position` return floats, which are lengths on the screen.

const DECIMAL = /^(\d{1,64})(?:\.(\d{1,64}))?$/;
const FRACTION_STEPS = 1n << 40n;
const MAX_LABEL_LENGTH = 10;

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

/** Return the exact texts of round decimals. If plain texts would be long, all are written as `n×10ᵏ`. */
export function labels(values) {
  const plain = values.map(grouped);
  const powers = values.filter((value) => value.coefficient !== 0n).map(powerOfTen);
  if (powers.length === 0) return plain;
  const power = Math.min(...powers);
  const raised = String(power).replace(/./g, (one) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[one] ?? "⁻");
  const scientific = values.map((value) => {
    const factor = power < -value.places ? 0n : value.coefficient / 10n ** BigInt(power + value.places);
    return factor === 0n ? "0" : `${factor}×10${raised}`;
  });
  const [long, longer] = [scientific, plain].map((texts) => Math.max(0, ...texts.map((one) => one.length)));
  return longer > MAX_LABEL_LENGTH && long < longer ? scientific : plain;
}

/** Return the greatest power of ten that divides a decimal. */
function powerOfTen({ coefficient, places }) {
  let power = -places;
  for (let rest = coefficient; rest % 10n === 0n; rest /= 10n) power += 1;
  return power;
}

/** Order whole numbers, for sorting. */
export function ascending(one, other) {
  return one < other ? -1 : one > other ? 1 : 0;
}

/** Return the running totals of amounts. */
export function totals(amounts) {
  let total = 0n;
  return amounts.map((amount) => (total += amount));
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
