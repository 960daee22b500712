// The page: it polls the service and shows the pairs, the selected order book, and how fresh they are.
//
// The fragment of the page's address selects the pair. `poll` requests everything that is shown; `show` updates the page
// from these variables alone.

import { BookView, summarize } from "./book.js";
import { setText } from "./elements.js";
import { Freshness, State } from "./freshness.js";
import { PairList } from "./list.js";
import { identifier, ticker } from "./names.js";
import { fetchHealth, NotFound, orderBook, pairList, Poller, ServiceError } from "./service.js";

const connection = document.getElementById("connection");
const age = document.getElementById("age");
const asOf = document.getElementById("as-of");
const alertNotice = document.getElementById("alert");
const state = document.getElementById("state");
const welcome = document.getElementById("welcome");
const narrow = matchMedia("(max-width: 699px)");
const MAX_AGE_MILLISECONDS = 15000;
const REFRESH_MILLISECONDS = 1000;
const TOO_OLD = "This browser rounds large numbers. It must be Chrome 116, Firefox 135, Safari 18.4 or later.";

const pairs = pairList();
const list = new PairList(showList);
const view = new BookView();
const poller = new Poller(poll, handleFailure);
const freshness = new Freshness();

/** The selected pair: null if none is selected; without `key` if the page's address has an invalid one. */
let pair = null;
/** The resource of the selected book, and its content; null until it is loaded. */
let book = null;
/** The time of the last successful poll: wall clock, to be shown. */
let lastSuccess = null;
/** The same time on the monotonic clock, in milliseconds. */
let lastSuccessAt = 0;
let problem = null;

/** Request all that is shown: the health, the pairs, and the book if it is tracked. A newly selected book comes first. */
async function poll(signal) {
  // Browsers have it since they pass the source text of a number to the reviver of JSON.parse.
  if (!("rawJSON" in JSON)) throw new ServiceError(TOO_OLD);
  const health = refreshHealth(signal);
  const isNew = pair?.key && book.content === null && list.has(pair.key);
  if (isNew) await refreshBook(signal);
  try {
    if (await pairs.refresh(signal)) list.update(pairs.value);
  } catch (error) {
    throw error instanceof NotFound ? new ServiceError("The API was not found at this address.") : error;
  }
  // The list shows whether the pair is tracked. To request the book of an untracked pair would be an error.
  if (!isNew && pair?.key && list.has(pair.key)) await refreshBook(signal);
  await health;
  lastSuccess = new Date();
  lastSuccessAt = performance.now();
  problem = null;
  show();
}

/** Request the health of the service. Never throws: the books are shown without it. */
async function refreshHealth(signal) {
  const requestedAt = performance.now();
  const response = await fetchHealth(signal);
  if (!signal.aborted) freshness.take(response, requestedAt, performance.now());
}

async function refreshBook(signal) {
  const requested = book;
  try {
    if (await requested.resource.refresh(signal)) requested.content = summarize(requested.resource.value);
    if (requested === book) show();
  } catch (error) {
    // The pair was retracted after the list was read; the next list will show that.
    if (!(error instanceof NotFound)) throw error;
  }
}

function handleFailure(error) {
  if (!(error instanceof ServiceError)) reportError(error);
  const sentence = error instanceof ServiceError ? error.message : "Unexpected error in the page.";
  const since = lastSuccess ? ` No response since ${lastSuccess.toLocaleTimeString()}; the data shown is from then.` : "";
  problem = `${sentence}${since} Retrying.`;
  freshness.forget();
  show();
}

function show() {
  const isTracked = pair?.key ? list.has(pair.key) : false;
  const isKnown = pairs.value !== null;
  document.body.dataset.view = pair === null ? "list" : "book";
  showFreshness();
  setText(state, stateOf(isTracked, isKnown));
  state.classList.toggle("warning", pair !== null && !isTracked && isKnown);
  welcome.hidden = pair !== null || pairs.value?.length === 0;
  if (pair?.key) view.show(pair, book.content, book.resource, problem !== null || isOverdue() || !isTracked);
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

/** Whether the last successful poll is too long ago, because the page was hidden. */
function isOverdue() {
  return lastSuccess !== null && performance.now() - lastSuccessAt > MAX_AGE_MILLISECONDS;
}

function stateOf(isTracked, isKnown) {
  if (pair && !pair.key) return "The address of this page does not contain a valid pair. Select one from the list.";
  if (!isKnown) return "";
  if (pair === null) return pairs.value.length ? "" : "No pair is tracked yet. Published pairs will appear here.";
  if (!isTracked && book.content) return "This pair is no longer tracked. Its last order book is shown.";
  if (!isTracked) return "This pair is not tracked. Its order book will appear here when it is published.";
  return book.content || problem ? "" : "Loading the order book…";
}

function titleOf() {
  if (!pair?.key) return "Order books";
  const spot = book.content?.spot;
  return `${ticker(pair.base)}/${ticker(pair.quote)}${spot ? ` ${spot.text}` : ""} – Order books`;
}

/** Select the pair in the fragment of the page's address. */
function selectLinkedPair() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const [base, quote] = [identifier(fields.get("base")), identifier(fields.get("quote"))];
  const before = pair;
  if (location.hash.length < 2) pair = null;
  else if (base === null || quote === null) pair = { key: null };
  else pair = { base, quote, key: `${base}/${quote}` };
  book = pair?.key ? { resource: orderBook(pair), content: null } : null;
  list.select(pair?.key ?? null);
  show();
  if (narrow.matches) {
    scrollTo(0, 0);
    if (pair?.key) view.focus();
    else if (before) list.focus();
  }
  poller.now();
}

function showList() {
  history.pushState(null, "", "#");
  selectLinkedPair();
}

addEventListener("hashchange", selectLinkedPair);
document.addEventListener("visibilitychange", show);
setInterval(() => document.hidden || showFreshness(), REFRESH_MILLISECONDS);
selectLinkedPair();
