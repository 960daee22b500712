// The page: it follows the service and shows the pairs, the selected order book, and how fresh they are.
//
// The fragment of the page's address has the pair, and the step of its prices. The selected book follows the stream of
// changes; `poll` requests all else every five seconds. `show` updates the page from the variables of this module alone.

import { BookView, firstReadable, fragment, summarize } from "./book.js";
import { element, pairName, replaceParts, setText } from "./elements.js";
import { Freshness, State } from "./freshness.js";
import { stepChoice } from "./grouping.js";
import { PairList } from "./list.js";
import { identifier, Tokens } from "./names.js";
import { Book, fetchHealth, loaded, orderBook, pairList, tokenRegistry } from "./service.js";
import { NotFound, POLL_MILLISECONDS, ServiceError } from "./service.js";
import { keepSetting, setting } from "./settings.js";
import { Units } from "./units.js";

const connection = document.getElementById("connection");
const age = document.getElementById("age");
const asOf = document.getElementById("as-of");
const alertNotice = document.getElementById("alert");
const state = document.getElementById("state");
const narrow = matchMedia("(max-width: 699px)");
const REFRESH_MILLISECONDS = 1000;
// Since browsers have rawJSON, they pass the source text of a number to the reviver of JSON.parse.
const hasExactNumbers = "rawJSON" in JSON;
const TOO_OLD = "This browser rounds large numbers. It must be Chrome 116, Firefox 135, Safari 18.4 or later.";

const pairs = pairList();
const registry = tokenRegistry();
const list = new PairList(showList);
const view = new BookView(switchUnits, switchStep);
const freshness = new Freshness();

/** Labels and decimals of tokens; without entries until they are loaded. */
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
let problem = null;
let running = new AbortController();
/** Ends the pause before the next requests. */
let wake = () => {};
let isDrawing = false;

/** Follow the service from now on while the page is visible: the stream of the selected book, and all else. */
async function follow() {
  running.abort();
  book?.close();
  if (document.hidden) return;
  const { signal } = (running = new AbortController());
  if (hasExactNumbers) book?.open();
  while (!signal.aborted) {
    try {
      await poll(signal);
      if (signal.aborted) return;
      problem = null;
      lastSuccess = new Date();
      isCurrent = true;
    } catch (error) {
      if (signal.aborted) return;
      handleFailure(error);
    }
    show();
    await new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, POLL_MILLISECONDS);
      signal.addEventListener("abort", resolve);
    });
  }
}

async function poll(signal) {
  if (!hasExactNumbers) throw new ServiceError(TOO_OLD);
  await Promise.all([refreshList(signal), refreshHealth(signal), refreshTokens(signal)]);
  await book?.check(signal, list.has(pair.key));
}

/** Request the health. Never throws: the books are shown without it. */
async function refreshHealth(signal) {
  const requestedAt = performance.now();
  const report = await fetchHealth(signal).catch(() => null);
  if (!signal.aborted) freshness.take(report, requestedAt, performance.now());
}

async function refreshTokens(signal) {
  if (!(await registry.refresh(signal))) return;
  tokens = registry.value;
  display();
}

async function refreshList(signal) {
  try {
    if (await pairs.refresh(signal)) list.update(pairs.value);
  } catch (error) {
    throw error instanceof NotFound ? new ServiceError("The API was not found at this address.") : error;
  }
  // Beside the list there is room for a book.
  if (pair !== null || narrow.matches) return;
  const first = await firstReadable(list.candidates, (one) => loaded(orderBook(one), signal));
  if (first === null || signal.aborted) return;
  history.replaceState(null, "", fragment(first));
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

/** Show an event of the stream in the next frame: several events are one change for the visitor. */
function draw() {
  // A service that has returned.
  if (problem !== null) wake();
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    show();
  });
}

/** Handle the end of the stream, with an error if it has sent an invalid event. Without one, requests show the cause. */
function handleStreamFailure(error) {
  if (error) handleFailure(error);
  else if (problem === null) wake();
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
  document.body.dataset.view = pair === null ? "list" : "book";
  showFreshness();
  showState();
  if (book === null) view.hide();
  else view.show(book, contentOf(book), choice, problem !== null || !isCurrent || !book.isTracked, tokens, isWhole());
  document.title = titleOf();
}

/** Return what is shown of a book, which is computed again only if something of it changed; null until it is loaded. */
function contentOf({ pair, value }) {
  if (value === null) return null;
  const of = [pair, value, tokens, isWhole(), choice];
  if (of.some((one, at) => one !== content.of[at])) {
    content = { of, value: summarize(value, new Units(pair, tokens, isWhole()), choice) };
  }
  return content.value;
}

/** Show how fresh the content is. Ages are not in a live region, which would announce them every second. */
function showFreshness() {
  const [{ name, label, warning }, reason] = currentState();
  document.body.dataset.freshness = name;
  setText(connection, label);
  setText(age, reason);
  const reflected = (book?.value ? book : pairs).asOf;
  asOf.hidden = reflected === null;
  setText(asOf.querySelector("bdi"), reflected ?? "");
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
  if (pair === null) return pairs.value?.length === 0 ? "No pair is tracked yet. Published pairs will appear here." : "";
  if (book.isTracked === false && book.value) return "This pair is no longer tracked. Its last order book is shown.";
  if (book.isTracked === false) return "This pair is not tracked. Its order book will appear here when it is published.";
  return book.value || problem ? "" : "Loading the order book…";
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
  book?.close();
  book = pair?.key ? new Book(pair, draw, handleStreamFailure) : null;
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

addEventListener("hashchange", selectLinkedPair);
narrow.addEventListener("change", selectLinkedPair);
document.addEventListener("visibilitychange", () => {
  isCurrent = false;
  follow();
  show();
});
setInterval(() => document.hidden || showFreshness(), REFRESH_MILLISECONDS);
selectLinkedPair();
