// The page: it follows the service and shows the pairs, the selected order book, and how fresh they are.
//
// The fragment of the page's address selects the pair. `follow` requests everything that is shown, then one request waits
// for a change of the list, and one for a change of the book. `show` updates the page from these variables alone.

import { BookView, firstReadable, summarize } from "./book.js";
import { setText } from "./elements.js";
import { Freshness, State } from "./freshness.js";
import { PairList } from "./list.js";
import { identifier, Tokens } from "./names.js";
import {
  fetchHealth,
  Follower,
  NotFound,
  orderBook,
  pairList,
  POLL_MILLISECONDS,
  ServiceError,
  sleep,
  TimedOut,
  tokenRegistry,
  WAIT_SECONDS,
} from "./service.js";
import { keepSetting, setting } from "./settings.js";
import { Units } from "./units.js";

const connection = document.getElementById("connection");
const age = document.getElementById("age");
const asOf = document.getElementById("as-of");
const alertNotice = document.getElementById("alert");
const state = document.getElementById("state");
const welcome = document.getElementById("welcome");
const narrow = matchMedia("(max-width: 699px)");
const HEALTH_MILLISECONDS = 10000;
// One interval of the health, and the timeouts of a response of it and of the requests that follow if there is none.
const MAX_AGE_MILLISECONDS = 30000;
const WITHOUT_WAITS_MILLISECONDS = 300000;
const REFRESH_MILLISECONDS = 1000;
const TOO_OLD = "This browser rounds large numbers. It must be Chrome 116, Firefox 135, Safari 18.4 or later.";

const pairs = pairList();
const registry = tokenRegistry();
const list = new PairList(showList);
const view = new BookView(switchUnits);
const follower = new Follower(follow, handleFailure);
const freshness = new Freshness();

/** Labels and decimals of tokens; without entries until they are loaded. */
let tokens = new Tokens();
let prefersSmallest = setting("units") === "smallest";
/** The selected pair: null if none is selected; without `key` if the page's address has an invalid one. */
let pair = null;
/** The pair that is shown on a wide screen if the page's address has none. */
let first = null;
/** The resource of the selected book, and its content; null until it is loaded. */
let book = null;
/** When the content was last known to be current: wall clock, to be shown. */
let lastSuccess = null;
/** The same time on the monotonic clock, in milliseconds. */
let lastSuccessAt = 0;
/** Whether a value has changed since the health was requested. */
let hasChanged = false;
/** The time from which on requests may wait, on the same clock. */
let waitsFrom = 0;
let problem = null;

/** Request all that is shown without a wait; then wait for changes. A newly selected book comes first. */
async function follow(signal) {
  // Browsers have it since they pass the source text of a number to the reviver of JSON.parse.
  if (!("rawJSON" in JSON)) throw new ServiceError(TOO_OLD);
  const others = Promise.all([refreshHealth(signal), refreshTokens(signal)]);
  const isNew = isTracked() && book.content === null;
  if (isNew) await refreshBook(signal);
  await refreshList(signal);
  if (!isNew && isTracked()) await refreshBook(signal);
  await others;
  signal.throwIfAborted();
  problem = null;
  follower.succeed();
  confirm();
  show();
  // A page that was opened in the background.
  if (document.hidden) return;
  await Promise.all([followList(signal), followBook(signal), followHealth(signal)]);
}

async function followList(signal) {
  const wasTracked = isTracked();
  for (;;) {
    await refreshList(signal, waitSeconds());
    confirm();
    show();
    if (isTracked() !== wasTracked) return follower.restart();
    await sleep(pairs.pause, signal);
  }
}

/** Follow the selected book. The list shows whether it is tracked: to request an untracked book would be an error. */
async function followBook(signal) {
  while (isTracked()) {
    const isFound = await refreshBook(signal, waitSeconds());
    if (isFound) confirm();
    await sleep(isFound ? book.resource.pause : POLL_MILLISECONDS, signal);
  }
}

/** Follow the health: every ten seconds, and two seconds after a change, which is a publication. */
async function followHealth(signal) {
  for (;;) {
    hasChanged = false;
    const since = performance.now();
    do await sleep(POLL_MILLISECONDS, signal);
    while (!hasChanged && performance.now() - since < HEALTH_MILLISECONDS);
    const error = await refreshHealth(signal);
    signal.throwIfAborted();
    // The other requests may wait for a service that has disappeared.
    if (error !== null) return follower.restart();
    confirm();
    showFreshness();
  }
}

/** Request the health. Return the error if there is no response. Never throws: the books are shown without it. */
async function refreshHealth(signal) {
  const requestedAt = performance.now();
  try {
    const response = await fetchHealth(signal);
    freshness.take(response, requestedAt, performance.now());
    return null;
  } catch (error) {
    if (error instanceof TimedOut) stopWaiting();
    // While a response is late, the ages of the last one increase.
    else if (!signal.aborted) freshness.take(null, requestedAt, performance.now());
    return error;
  }
}

/** Request the token registry. Never throws: the books are shown without it, in smallest units. */
async function refreshTokens(signal) {
  try {
    if (!(await registry.refresh(signal))) return;
  } catch (error) {
    if (!(error instanceof ServiceError || error instanceof NotFound || signal.aborted)) reportError(error);
    return;
  }
  tokens = registry.value;
  display();
}

async function refreshList(signal, waitSeconds = 0) {
  try {
    if (await pairs.refresh(signal, waitSeconds)) {
      list.update(pairs.value);
      hasChanged = true;
    }
  } catch (error) {
    throw error instanceof NotFound ? new ServiceError("The API was not found at this address.") : error;
  }
  // Beside the list there is room for a book.
  if (pair === null && !narrow.matches) {
    first = await firstReadable(list.candidates, (one) => requestBook(one, signal));
    if (first !== null) selectLinkedPair();
  }
}

/** Return the book of a pair; null if it was retracted. */
async function requestBook(pair, signal) {
  const resource = orderBook(pair);
  try {
    await resource.refresh(signal);
    return resource.value;
  } catch (error) {
    if (error instanceof NotFound) return null;
    throw error;
  }
}

/** Request the selected book. Return whether it was found: if not, it was retracted, as the next list will show. */
async function refreshBook(signal, waitSeconds = 0) {
  const requested = book;
  try {
    if (await requested.resource.refresh(signal, waitSeconds)) {
      requested.content = contentOf(requested);
      hasChanged = true;
    }
    if (requested === book) show();
    return true;
  } catch (error) {
    if (error instanceof NotFound) return false;
    throw error;
  }
}

/** Return what is shown of a loaded book. */
function contentOf({ resource, pair: { base, quote } }) {
  return summarize(new Units({ base, quote }, tokens, isWhole()).book(resource.value));
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

function display() {
  list.display(tokens, isWhole());
  if (book?.content) book.content = contentOf(book);
  show();
}

function isTracked() {
  return pair?.key ? list.has(pair.key) : false;
}

/** Record that the content is current: its requests were answered, or wait at a service that responds. */
function confirm() {
  lastSuccess = new Date();
  lastSuccessAt = performance.now();
}

function waitSeconds() {
  return performance.now() < waitsFrom ? 0 : WAIT_SECONDS;
}

/** Only poll for five minutes. Requests that wait in several windows may use all connections of the browser. */
function stopWaiting() {
  waitsFrom = performance.now() + WITHOUT_WAITS_MILLISECONDS;
}

function handleFailure(error) {
  if (error instanceof TimedOut) stopWaiting();
  if (!(error instanceof ServiceError)) reportError(error);
  const sentence = error instanceof ServiceError ? error.message : "Unexpected error in the page.";
  const since = lastSuccess ? ` No response since ${lastSuccess.toLocaleTimeString()}; the data shown is from then.` : "";
  problem = `${sentence}${since} Retrying.`;
  freshness.forget();
  show();
}

function show() {
  const isKnown = pairs.value !== null;
  document.body.dataset.view = pair === null ? "list" : "book";
  showFreshness();
  setText(state, stateOf(isKnown));
  state.classList.toggle("warning", pair !== null && !isTracked() && isKnown);
  welcome.hidden = pair !== null || pairs.value?.length === 0;
  const isOld = problem !== null || isOverdue() || !isTracked();
  if (pair?.key) view.show(pair, book.content, book.resource, isOld, tokens, isWhole());
  else view.hide();
  document.title = titleOf();
}

/** Show how fresh the content is. Ages are not in a live region, which would announce them every second. */
function showFreshness() {
  const [{ name, label, warning }, reason] = currentState();
  document.body.dataset.freshness = name;
  setText(connection, label);
  setText(age, reason);
  const reflected = (book?.content ? book.resource : pairs).asOf;
  asOf.hidden = reflected === null;
  setText(asOf.querySelector("bdi"), reflected ?? "");
  setText(alertNotice, problem ?? warning);
}

function currentState() {
  if (problem !== null) return [State.LOST, ""];
  if (lastSuccess === null || isOverdue()) return [State.CONNECTING, ""];
  return freshness.at(performance.now());
}

/** Whether the content was not confirmed for too long, because the page was hidden. */
function isOverdue() {
  return lastSuccess !== null && performance.now() - lastSuccessAt > MAX_AGE_MILLISECONDS;
}

function stateOf(isKnown) {
  if (pair && !pair.key) return "The address of this page does not contain a valid pair. Select one from the list.";
  if (!isKnown) return "";
  if (pair === null) return pairs.value.length ? "" : "No pair is tracked yet. Published pairs will appear here.";
  if (!isTracked() && book.content) return "This pair is no longer tracked. Its last order book is shown.";
  if (!isTracked()) return "This pair is not tracked. Its order book will appear here when it is published.";
  return book.content || problem ? "" : "Loading the order book…";
}

function titleOf() {
  if (!pair?.key) return "Order books";
  const spot = book.content?.spot;
  return `${tokens.nameOf(pair.base)}/${tokens.nameOf(pair.quote)}${spot ? ` ${spot.price}` : ""} – Order books`;
}

/** Select the pair in the fragment of the page's address; without one, `first` if there is room beside the list. */
function selectLinkedPair() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const [base, quote] = [identifier(fields.get("base")), identifier(fields.get("quote"))];
  const before = pair;
  if (location.hash.length < 2) pair = !narrow.matches && first && list.has(first.key) ? first : null;
  else if (base === null || quote === null) pair = { key: null };
  else pair = { base, quote, key: `${base}/${quote}` };
  book = pair?.key ? { pair, resource: orderBook(pair), content: null } : null;
  list.select(pair?.key ?? null);
  show();
  if (narrow.matches) {
    scrollTo(0, 0);
    if (pair?.key) view.focus();
    else if (before) list.focus();
  }
  follower.restart();
}

function showList() {
  history.pushState(null, "", "#");
  selectLinkedPair();
}

addEventListener("hashchange", selectLinkedPair);
narrow.addEventListener("change", selectLinkedPair);
document.addEventListener("visibilitychange", show);
setInterval(() => document.hidden || showFreshness(), REFRESH_MILLISECONDS);
selectLinkedPair();
