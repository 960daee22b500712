// The page: the pairs, the book of the one that is looked at, and how the service is doing.

import { BookView, told } from "./book.js";
import { say } from "./elements.js";
import { Freshness, State } from "./freshness.js";
import { PairList } from "./list.js";
import { identifier, ticker } from "./names.js";
import { Absent, health, orderBook, pairList, Rounds, Trouble } from "./service.js";

const connection = document.getElementById("connection");
const age = document.getElementById("age");
const asOf = document.getElementById("as-of");
const trouble = document.getElementById("trouble");
const state = document.getElementById("state");
const welcome = document.getElementById("welcome");
const narrow = matchMedia("(max-width: 699px)");
const OLD = 15000;
const SECOND = 1000;

const pairs = pairList();
const list = new PairList(leaveBook);
const view = new BookView();
const rounds = new Rounds(round, failed);
const freshness = new Freshness();

/** The pair that is looked at: null for none; without `key` where the address of the page names none. */
let pair = null;
let book = null;
/** When everything was last answered: on the clock of the visitor, for people, and on that of the page. */
let answered = null;
let answeredAt = 0;
let problem = null;

/** Ask for what is shown: the pairs and, where it is tracked, the book; the book first where it was just chosen. */
async function round(signal) {
  const reported = askHealth(signal);
  const isNew = pair?.key && book.told === null && list.has(pair.key);
  if (isNew) await askBook(signal);
  try {
    if (await pairs.ask(signal)) list.update(pairs.value);
  } catch (error) {
    throw error instanceof Absent ? new Trouble("There is no service at this address.") : error;
  }
  // Whether the pair is tracked stands in the list: to ask for a book that is not there would be an error.
  if (!isNew && pair?.key && list.has(pair.key)) await askBook(signal);
  await reported;
  answered = new Date();
  answeredAt = performance.now();
  problem = null;
  show();
}

/** Ask how the feed of the service is doing. Never raises: the books are shown all the same. */
async function askHealth(signal) {
  const askedAt = performance.now();
  const answer = await health(signal);
  if (!signal.aborted) freshness.take(answer, askedAt, performance.now());
}

async function askBook(signal) {
  const asked = book;
  try {
    if (await asked.resource.ask(signal)) asked.told = told(asked.resource.value);
    if (asked === book) show();
  } catch (error) {
    // It went between the list and the book; the next list tells.
    if (!(error instanceof Absent)) throw error;
  }
}

function failed(error) {
  if (!(error instanceof Trouble)) reportError(error);
  const sentence = error instanceof Trouble ? error.message : "The page failed.";
  const since = answered ? ` No answer since ${answered.toLocaleTimeString()}: what is shown is as it was then.` : "";
  problem = `${sentence}${since} Trying again.`;
  freshness.forget();
  show();
}

function show() {
  const isTracked = pair?.key ? list.has(pair.key) : false;
  const isKnown = pairs.value !== null;
  document.body.dataset.view = pair === null ? "list" : "book";
  showFreshness();
  say(state, stateOf(isTracked, isKnown));
  state.classList.toggle("warning", pair !== null && !isTracked && isKnown);
  welcome.hidden = pair !== null || pairs.value?.length === 0;
  if (pair?.key) view.show(pair, book.told, book.resource, problem !== null || isOverdue() || !isTracked);
  else view.hide();
  document.title = titleOf();
}

/** Show how fresh the content is. Ages change by themselves: so they are no live region, which announces each change. */
function showFreshness() {
  const [{ name, label, warning }, reason] = freshnessNow();
  document.body.dataset.freshness = name;
  say(connection, label);
  say(age, reason);
  const reflected = (book?.told ? book.resource : pairs).asOf;
  asOf.hidden = reflected === null;
  say(asOf.querySelector("bdi"), reflected ?? "");
  say(trouble, problem ?? warning);
}

function freshnessNow() {
  if (problem !== null) return [State.LOST, ""];
  if (answered === null || isOverdue()) return [State.CONNECTING, ""];
  return freshness.at(performance.now());
}

/** Nobody looked for a while, and what was true then is about to be asked again. */
function isOverdue() {
  return answered !== null && performance.now() - answeredAt > OLD;
}

function stateOf(isTracked, isKnown) {
  if (pair && !pair.key) return "The address of this page names no pair. Choose one from the list.";
  if (!isKnown) return "";
  if (pair === null) {
    return pairs.value.length ? "" : "No pair is tracked yet. The first that is published will be shown here.";
  }
  if (!isTracked && book.told) return "This pair is no longer tracked. Its last order book is shown.";
  if (!isTracked) return "This pair is not tracked. Should it be published, its order book will be shown here.";
  return book.told || problem ? "" : "Reading the order book…";
}

function titleOf() {
  if (!pair?.key) return "Order books";
  const spot = book.told?.spot;
  return `${ticker(pair.base)}/${ticker(pair.quote)}${spot ? ` ${spot.text}` : ""} – Order books`;
}

/** Look at the pair that the address of the page names. */
function look() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const [base, quote] = [identifier(wanted.get("base")), identifier(wanted.get("quote"))];
  const before = pair;
  if (location.hash.length < 2) pair = null;
  else if (base === null || quote === null) pair = { key: null };
  else pair = { base, quote, key: `${base}/${quote}` };
  book = pair?.key ? { resource: orderBook(pair), told: null } : null;
  list.select(pair?.key ?? null);
  show();
  if (narrow.matches) {
    scrollTo(0, 0);
    if (pair?.key) view.focus();
    else if (before) list.focus();
  }
  rounds.now();
}

function leaveBook() {
  history.pushState(null, "", "#");
  look();
}

addEventListener("hashchange", look);
document.addEventListener("visibilitychange", show);
setInterval(() => document.hidden || showFreshness(), SECOND);
look();
