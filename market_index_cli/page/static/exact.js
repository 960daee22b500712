// Numbers as the API gives them. Amounts are BigInt, prices are decimals of any length, and what is shown is made of
// these alone. A float comes out of `share` and `place`, which say where on the screen something stands.

// A mark, a string, an integer or a word, after any blanks.
const TOKEN =
  /[ \t\n\r]*(?:([{}[\],:])|("(?:[^"\\\u0000-\u001f]|\\.)*")|(-?(?:0|[1-9]\d*))(?![\d.eE])|(true|false|null))/y;
const WORDS = { true: true, false: false, null: null };
const DECIMAL = /^(\d{1,64})(?:\.(\d{1,64}))?$/;
const FINE = 1n << 40n;
const LONGEST_LABEL = 10;

/** Read a JSON text whose numbers are integers: each becomes a BigInt. JSON.parse would round those above 2^53. */
export function readJson(text) {
  const token = new RegExp(TOKEN);
  let mark, string, integer, word;

  function next() {
    const place = token.lastIndex;
    const found = token.exec(text);
    if (!found) throw new SyntaxError(`not JSON at character ${place}`);
    [, mark, string, integer, word] = found;
  }

  function value() {
    if (string !== undefined) return JSON.parse(string);
    if (integer !== undefined) return BigInt(integer);
    if (word !== undefined) return WORDS[word];
    if (mark === "[") return array();
    if (mark === "{") return object();
    throw new SyntaxError(`not JSON before character ${token.lastIndex}`);
  }

  function array() {
    const values = [];
    next();
    if (mark === "]") return values;
    for (;;) {
      values.push(value());
      if (!goesOn("]")) return values;
    }
  }

  function object() {
    const fields = Object.create(null);
    next();
    if (mark === "}") return fields;
    for (;;) {
      if (string === undefined) throw new SyntaxError(`not JSON before character ${token.lastIndex}`);
      const name = JSON.parse(string);
      next();
      if (mark !== ":") throw new SyntaxError(`not JSON before character ${token.lastIndex}`);
      next();
      fields[name] = value();
      if (!goesOn("}")) return fields;
    }
  }

  function goesOn(end) {
    next();
    if (mark === end) return false;
    if (mark !== ",") throw new SyntaxError(`not JSON before character ${token.lastIndex}`);
    next();
    return true;
  }

  next();
  const read = value();
  if (/[^ \t\n\r]/.test(text.slice(token.lastIndex))) throw new SyntaxError(`not JSON at character ${token.lastIndex}`);
  return read;
}

/** Return the decimal of a price's text: a coefficient and how many places it has. */
export function decimal(text) {
  const match = typeof text === "string" ? DECIMAL.exec(text) : null;
  if (!match) throw new SyntaxError("not a price");
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

/** Return half of a decimal, which has one place more. */
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

/** Return the text of a whole number, its digits in groups of three. */
export function grouped(number) {
  return String(number).replace(/\B(?=(?:\d{3})+$)/g, ",");
}

/** Return the texts of round decimals, all as `n×10ᵏ` where plain ones would be long: exact as well. */
export function labels(values) {
  const plain = values.map((value) => (value.places === 0 ? grouped(value.coefficient) : text(value)));
  const powers = values.filter((value) => value.coefficient !== 0n).map(tenth);
  if (powers.length === 0) return plain;
  const power = Math.min(...powers);
  const raised = String(power).replace(/./g, (one) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[one] ?? "⁻");
  const scientific = values.map((value) => {
    const factor = power < -value.places ? 0n : value.coefficient / 10n ** BigInt(power + value.places);
    return factor === 0n ? "0" : `${factor}×10${raised}`;
  });
  const [long, longer] = [scientific, plain].map((texts) => Math.max(0, ...texts.map((one) => one.length)));
  return longer > LONGEST_LABEL && long < longer ? scientific : plain;
}

/** Return the greatest power of ten that divides a decimal. */
function tenth({ coefficient, places }) {
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

/** Return about which part of a whole something is, as a float: for lengths on the screen. */
export function share(part, all) {
  return all === 0n ? 0 : Number((part * FINE) / all) / Number(FINE);
}

/** Return about where between two decimals one stands, 0 at `low` and 1 at `high`, as a float: for the screen. */
export function place(value, low, high) {
  const [part, all] = aligned(subtract(value, low), subtract(high, low));
  return share(part, all);
}

/**
 * Return the round decimals from `low` to `high`, at most so many and one: multiples of 1, 2 or 5 times a power of 10.
 * They have no more places than `finest`.
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
