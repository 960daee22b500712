// The page: it follows the service and shows the pairs, the selected order book, and how fresh they are.
//
// The fragment of the page's address has the pair, and the step of its prices. The selected book follows the stream of
// changes, and each version also dates the status. `poll` requests the list after a version, at most once a second, and
// the health every five seconds. `show` updates the page from the variables of this module alone.

import { BookView, fragment, summarize } from "./book.js";
import { Client, ServiceError, pause } from "./client.js";
import { element, pairName, replaceParts, setText } from "./elements.js";
import { Freshness, State } from "./freshness.js";
import { stepChoice } from "./grouping.js";
import { PairList } from "./list.js";
import { identifier, Tokens } from "./names.js";
import { SelectedBook } from "./selected.js";
import { keepSetting, setting } from "./settings.js";
import { Units } from "./units.js";

const connection = document.getElementById("connection");
const age = document.getElementById("age");
const asOf = document.getElementById("as-of");
const transport = document.getElementById("transport");
const alertNotice = document.getElementById("alert");
const state = document.getElementById("state");
const narrow = matchMedia("(max-width: 699px)");
const POLL_MILLISECONDS = 5000;
const MIN_POLL_MILLISECONDS = 1000;
// A list that takes long, as over a slow line, is requested less often.
const POLL_FACTOR = 10;
const REOPEN_MILLISECONDS = 30_000;
const REFRESH_MILLISECONDS = 1000;
const INVALID = "The service sent an invalid response.";
const TOO_OLD = "This browser is too old for this page. It must be Chrome 116, Firefox 124, Safari 17.4 or later.";

const client = new Client(new URL(".", document.baseURI));
const list = new PairList(showList);
const view = new BookView(switchUnits, switchStep);
const freshness = new Freshness();

/** Names and decimals of tokens; without entries until they are loaded. */
let tokens = new Tokens();
let prefersSmallest = setting("units") === "smallest";
/** The selected pair: null if none is selected; without `key` if the page's address has an invalid one. */
let pair = null;
/** The selected book, and the choice of the step of its prices; null without a pair. */
let book = null;
let choice = "";
/** What was computed of the book, and from what. */
let content = { of: [], value: null };
/** When the content was last known to be current: wall clock, to be shown. */
let lastSuccess = null;
/** Whether all was requested since the page became visible. */
let isCurrent = false;
/** Whether the list and the names were requested once: until then, a book would be shown in other names and units. */
let hasPolled = false;
let problem = null;
let running = new AbortController();
let healthRequestedAt = -Infinity;
/** Ends the pause before the next requests. */
let wake = new AbortController();
let isDrawing = false;

/** Follow the service from now on while the page is visible: the stream of the selected book, and all else. */
async function follow() {
  running.abort();
  if (book) book.isStreamed = false;
  if (document.hidden) return;
  const { signal } = (running = new AbortController());
  if (book) followBook(book, signal);
  while (!signal.aborted) {
    const startedAt = performance.now();
    wake = new AbortController();
    try {
      await poll(signal);
      if (signal.aborted) return;
      succeed();
      isCurrent = true;
    } catch (error) {
      if (signal.aborted) return;
      handleFailure(error);
    }
    hasPolled = true;
    show();
    const took = performance.now() - startedAt;
    const least = Math.min(Math.max(MIN_POLL_MILLISECONDS, POLL_FACTOR * took), POLL_MILLISECONDS);
    await pause(least, signal);
    await pause(POLL_MILLISECONDS - least, AbortSignal.any([signal, wake.signal]));
  }
}

/** Follow the stream of a book, and open it again some time after the service has rejected it. */
async function followBook(followed, signal) {
  const onVersion = ({ books, isFirst, asOf }) => {
    followed.take(books.get(followed.pair.key));
    [followed.isStreamed, followed.asOf] = [true, asOf];
    if (isFirst) healthRequestedAt = -Infinity;
    else freshness.published(performance.now());
    succeed();
    wake.abort();
    draw();
  };
  const onSilence = () => {
    followed.isStreamed = false;
    wake.abort(); // The next requests show the cause.
  };
  while (!signal.aborted) {
    try {
      await client.follow([followed.pair.key], { onVersion, onSilence, signal });
    } catch (error) {
      onSilence();
      if (!(error instanceof ServiceError)) handleFailure(error);
    }
    await pause(REOPEN_MILLISECONDS, signal);
  }
}

function succeed() {
  problem = null;
  lastSuccess = new Date();
}

async function poll(signal) {
  await Promise.all([refreshList(signal), refreshHealth(signal)]);
  const polled = book;
  if (polled === null || polled.isStreamed) return;
  // To request a book that the list does not have would be an error.
  const found = list.has(polled.pair.key) ? await client.orderBook(polled.pair.base, polled.pair.quote, { signal }) : null;
  // A version that arrived in the meantime is newer.
  if (!signal.aborted && !polled.isStreamed) polled.take(found);
}

/** Request the health every five seconds. Never throws: the books are shown without it. */
async function refreshHealth(signal) {
  const requestedAt = performance.now();
  if (requestedAt - healthRequestedAt < POLL_MILLISECONDS) return;
  healthRequestedAt = requestedAt;
  const report = await client.get("healthz", { signal, expected: [503] }).catch(() => null);
  if (!signal.aborted) freshness.take(report, requestedAt, performance.now());
}

async function refreshList(signal) {
  const rows = await client.get("pairs.json", { signal });
  // The same rows as before are the same object.
  if (rows !== list.source) {
    if (rows.some(([base, quote]) => !tokens.has(base) || !tokens.has(quote))) {
      tokens = new Tokens(await client.get("tokens.json", { signal }));
    }
    list.update(rows, tokens, isWhole());
  }
  // Beside the list there is room for a book.
  if (pair !== null || narrow.matches || list.firstReadable === null || signal.aborted) return;
  history.replaceState(null, "", fragment(list.firstReadable));
  selectLinkedPair();
}

/** Whether numbers are in whole units. Without a token registry all are in smallest units, as in the API. */
function isWhole() {
  return !tokens.isEmpty && !prefersSmallest;
}

/** Show whole units or smallest units, from now on. */
function switchUnits(isSmallest) {
  prefersSmallest = isSmallest;
  keepSetting("units", isSmallest ? "smallest" : "whole");
  display();
}

/** Show the prices of the selected pair by another step. */
function switchStep(step) {
  choice = step;
  history.replaceState(null, "", fragment(pair, choice));
  show();
}

function display() {
  list.display(tokens, isWhole());
  show();
}

/** Show a version in the next frame: several versions are one change for the visitor. */
function draw() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    show();
  });
}

function handleFailure(error) {
  // While the stream is open, the service is there: the list is requested again.
  if (error instanceof ServiceError && book?.isStreamed) return;
  const isInvalid = error instanceof SyntaxError; // a price or an amount
  if (!(error instanceof ServiceError || isInvalid)) reportError(error);
  const sentence = isInvalid ? INVALID : error instanceof ServiceError ? error.message : "Unexpected error in the page.";
  const since = lastSuccess ? ` No response since ${lastSuccess.toLocaleTimeString()}; the data shown is from then.` : "";
  problem = `${sentence}${since} Retrying.`;
  freshness.forget();
  show();
}

function show() {
  document.body.dataset.view = pair === null ? "list" : "book";
  showFreshness();
  showState();
  if (book === null || !hasPolled) view.hide();
  else {
    if (book.value) list.take(pair.key, book.value);
    view.show(book, contentOf(book), choice, problem !== null || !isCurrent || !book.isTracked, tokens, isWhole());
  }
  document.title = titleOf();
}

/** Return what is shown of a book, which is computed again only if something of it changed; null until it is loaded. */
function contentOf({ pair, value }) {
  if (value === null || !hasPolled) return null;
  const of = [pair, value, tokens, isWhole(), choice];
  if (of.some((one, at) => one !== content.of[at])) {
    content = { of, value: summarize(value, new Units(pair, tokens, isWhole()), choice) };
  }
  return content.value;
}

/** Show how fresh the content is. Ages are not in a live region, which would announce them every second. */
function showFreshness() {
  const [[name, label, warning], reason] = currentState();
  document.body.dataset.freshness = name;
  setText(connection, label);
  setText(age, reason);
  const reflected = book?.isStreamed ? book.asOf : freshness.asOf;
  asOf.hidden = reflected === null;
  setText(asOf.querySelector("bdi"), reflected ?? "");
  const isShown = problem === null && isCurrent && book !== null;
  setText(transport, isShown ? (book.isStreamed ? "stream: each change as it happens" : "no stream: polled every 5 s") : "");
  setText(alertNotice, problem ?? warning);
}

function currentState() {
  if (problem !== null) return [State.LOST, ""];
  if (!isCurrent) return [State.CONNECTING, ""];
  return freshness.at(performance.now(), book?.isTracked);
}

function showState() {
  const other = pair?.key && { base: pair.quote, quote: pair.base };
  const isReversed = book?.isTracked === false && list.has(`${other.base}/${other.quote}`);
  const parts = [stateText()];
  if (isReversed) {
    const name = pairName(tokens.nameOf(other.base), tokens.nameOf(other.quote));
    parts.push(" Its reverse is tracked: ", element("a", { href: fragment(other) }, ...name));
  }
  replaceParts(state, parts);
  state.classList.toggle("warning", book?.isTracked === false);
}

function stateText() {
  if (pair && !pair.key) return "The address of this page does not contain a valid pair. Select one from the list.";
  if (pair === null) return list.isEmpty ? "No pair is tracked yet. Published pairs will appear here." : "";
  if (book.isTracked === false && book.value) return "This pair is no longer tracked. Its last order book is shown.";
  if (book.isTracked === false) return "This pair is not tracked. Its order book will appear here when it is published.";
  return (book.value && hasPolled) || problem ? "" : "Loading the order book…";
}

function titleOf() {
  if (book === null) return "Order books";
  const shown = contentOf(book);
  const spot = shown?.spot ? ` ${shown.spotText}` : "";
  return `${tokens.nameOf(pair.base)}/${tokens.nameOf(pair.quote)}${spot} – Order books`;
}

/** Select the pair in the fragment of the page's address. */
function selectLinkedPair() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const [base, quote] = [identifier(fields.get("base")), identifier(fields.get("quote"))];
  if (location.hash.length < 2) pair = null;
  else if (base === null || quote === null) pair = { key: null };
  else pair = { base, quote, key: `${base}/${quote}` };
  choice = stepChoice(fields.get("step"));
  // Of the same pair, as on a screen that was turned, the book stays.
  if (!pair?.key) book = null;
  else if (pair.key !== book?.pair.key) book = new SelectedBook(pair);
  list.select(pair?.key ?? null);
  show();
  if (narrow.matches) {
    scrollTo(0, 0);
    if (pair?.key) view.focus();
  }
  follow();
}

function showList() {
  history.pushState(null, "", "#");
  selectLinkedPair();
}

if ("any" in AbortSignal) start();
else setText(alertNotice, TOO_OLD);

function start() {
  addEventListener("hashchange", selectLinkedPair);
  narrow.addEventListener("change", selectLinkedPair);
  document.addEventListener("visibilitychange", () => {
    isCurrent = false;
    follow();
    show();
  });
  setInterval(() => document.hidden || showFreshness(), REFRESH_MILLISECONDS);
  selectLinkedPair();
}
