// The state of the page: one object, which only `reduce` replaces. The views read it. `freshness` says how old it is.
//
// Times (`at`, `…At`) are milliseconds of the page's monotonic clock. No wall clock is used, which may be wrong.

import { Tokens } from "./assets.js";
import { decimal } from "./exact.js";

/** The service sends something every two seconds. After this silence it does not answer. */
const SILENCE_MILLISECONDS = 5000;
const UNITS = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];
const NO_ORDER = { isPurchase: true, text: "", isQuote: false, isLeft: false };
const parsedLevels = new WeakMap();

/** The state before anything was received. */
export const INITIAL = {
  /** The order of the list. */
  sort: "name",
  /** What the address selects: see `readLink`. */
  pair: null,
  step: "",
  search: "",
  /** The rows of the list; null until they are received, with the names of their assets. */
  rows: null,
  tokens: new Tokens(),
  /** The selected book; null without a pair. */
  book: null,
  order: NO_ORDER,
  /** The last report of /healthz, and when it was requested; null if the service has none. */
  report: null,
  reportedAt: 0,
  /** When the stream last brought a version after its first one. */
  publishedAt: -Infinity,
  /** When the service last answered, and the error of each kind of request that failed since. */
  heardAt: 0,
  failures: {},
  /** When all was last received: wall clock, to be shown. */
  answeredAt: null,
  /** Whether all was received since the page became visible. */
  isCurrent: false,
  isVisible: true,
  now: 0,
};

const CHANGES = {
  /** The address selects a pair. The book of the same pair stays, as on a screen that was turned. */
  linked({ book, order, pair: before }, { pair, step }) {
    if (pair?.key && pair.key === book?.pair.key) return { pair, step };
    // An amount of one token is none of another.
    return { pair, step, book: pair?.key ? unread(pair) : null, order: pair?.key === before?.key ? order : NO_ORDER };
  },
  /** The visitor searches or sorts the list. */
  chosen: (_, { at, ...choice }) => choice,
  ordered: ({ order }, { at, ...changes }) => ({ order: { ...order, ...changes } }),
  listed: (_, { rows, tokens, at }) => ({ rows, tokens, heardAt: at }),
  /** A book of a pair arrives: null or undefined if the pair is not tracked. */
  received({ book, publishedAt }, { key, source, isStreamed, isFirst = true, asOf = null, at }) {
    // A version of the stream is newer than a response.
    if (key !== book?.pair.key || (book.isStreamed && !isStreamed)) return {};
    return { book: next(book, source, isStreamed, asOf), heardAt: at, publishedAt: isFirst ? publishedAt : at };
  },
  /** The stream is lost. The next requests show the cause. */
  lost: ({ book }) => ({ book: book && { ...book, isStreamed: false } }),
  reported: (_, { report, requestedAt, at }) => ({ report, reportedAt: requestedAt, heardAt: at }),
  /** A kind of request has succeeded (`error` is null) or failed. */
  answered({ failures, isCurrent, answeredAt }, { name, error }) {
    const isAll = error === null && name === "content";
    return {
      failures: { ...failures, [name]: error },
      isCurrent: isCurrent || isAll,
      answeredAt: isAll ? new Date() : answeredAt,
      // A restarted service has loaded its feed again.
      ...(error === null ? {} : { publishedAt: -Infinity }),
    };
  },
  shown: ({ book }, { isVisible, at }) => (
    { isVisible, isCurrent: false, heardAt: at, failures: {}, book: book && { ...book, isStreamed: false } }
  ),
  ticked: () => ({}),
};

/** Return the next state: `type` is the name of a change, and `at` its time. */
export function reduce(state, { type, ...action }) {
  return { ...state, now: action.at, ...CHANGES[type](state, action) };
}

function unread(pair) {
  return { pair, source: null, value: null, isTracked: null, isStreamed: false, asOf: null, changedAt: null, move: 0 };
}

function next(book, source, isStreamed, asOf) {
  const common = { ...book, isStreamed, asOf, isTracked: Boolean(source) };
  // The book stays after the pair was retracted.
  if (!source || source === book.source) return common;
  const value = parsed(source);
  // Each connection begins with the whole book.
  if (book.value && isEqual(value, book.value)) return { ...common, source };
  const [spot, before] = [value.spot?.value, book.value?.spot?.value];
  const move = spot && before && spot !== before ? (spot > before ? 1 : -1) : book.move;
  return { ...common, source, value, move, changedAt: book.value === null ? null : new Date() };
}

/** Return a book with its prices also as numbers. Throws SyntaxError if one is not a price. */
export function parsed({ spot, bids, asks }) {
  return { spot: spot === null ? null : { price: spot, value: decimal(spot) }, bids: bids.map(level), asks: asks.map(level) };
}

function isEqual(one, other) {
  const isSame = (side) => one[side].length === other[side].length &&
    one[side].every(({ value, amount }, at) => value === other[side][at].value && amount === other[side][at].amount);
  return one.spot?.value === other.spot?.value && isSame("bids") && isSame("asks");
}

/** Return a parsed level. The client keeps the levels that a change does not have: they are parsed once. */
function level(source) {
  let found = parsedLevels.get(source);
  if (!found) {
    found = { price: source.price, value: decimal(source.price), amount: source.accumulated_liquidity };
    parsedLevels.set(source, found);
  }
  return found;
}

/** Return the pair, its units and the step as one key: numbers of another key are not comparable. */
export function unitsKey({ pair, tokens, step }) {
  return `${pair?.key} ${tokens.hasRegistry} ${step}`;
}

/**
 * Return how fresh the content is: a name, its label, the reason, and a warning. `isOld` marks content that may be out of
 * date. The service decides: its /healthz is the operator's policy. Only its silence is noticed here.
 */
export function freshness(state) {
  const { now, heardAt, failures, answeredAt, isCurrent, report, book } = state;
  const failure = failures.health ?? failures.content;
  // The client notices the silence of a stream.
  if (!book?.isStreamed && (failure || now - heardAt > SILENCE_MILLISECONDS)) {
    const since = answeredAt ? ` No response since ${answeredAt.toLocaleTimeString()}; the data shown is from then.` : "";
    const warning = `${failure ?? "The service is silent."}${since} Retrying.`;
    return { name: "lost", label: "No answer", reason: "", warning, isOld: true };
  }
  if (!isCurrent) return { name: "connecting", label: "Connecting…", reason: "", warning: "", isOld: true };
  if (report?.error !== undefined) {
    const warning = "The service reports that its books are not current.";
    return { name: "stale", label: "Stale", reason: report.error, warning, isOld: true };
  }
  if (book?.isTracked === false) return { name: "untracked", label: "Not tracked", reason: "", warning: "", isOld: true };
  const [name, label] = report === null ? ["unknown", "Age not known"] : ["live", "Live"];
  return { name, label, reason: reasonOf(state), warning: "", isOld: false };
}

function reasonOf({ now, report, reportedAt, publishedAt }) {
  if (report === null) return "the service does not report it";
  // The time of the request counts, so an age is never too low. Books without a time of publication may have any age.
  const reported = report.published_at === null ? -Infinity : reportedAt - report.quiet_seconds * 1000;
  const published = Math.max(reported, publishedAt);
  const age = published === -Infinity ? "time of publication not known" : `last publication ${duration(now - published)} ago`;
  return report.problem === null ? age : `${age}; ${report.problem}`;
}

/** Return a duration in the largest unit of which it has at least one (two for days), rounded down; never below 0 s. */
export function duration(milliseconds) {
  const seconds = Math.max(Math.floor(milliseconds / 1000), 0);
  const [name, length] = UNITS.find(([unit, length]) => seconds >= length * (unit === "d" ? 2 : 1)) ?? UNITS.at(-1);
  return `${Math.floor(seconds / length)} ${name}`;
}
