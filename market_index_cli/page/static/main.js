// The page: it follows the service, and shows the pairs and the selected order book.
//
// There is one `state`. `dispatch` replaces it by `reduce`, starts the requests that the new state needs, and draws the
// views, at most once a frame. The selected book follows the stream of changes. Without a stream, as behind a proxy that
// blocks it, it is requested together with the list.

import { BookView } from "./book.js";
import { Client, ServiceError, pause } from "./client.js";
import { PairList } from "./list.js";
import { Tokens } from "./assets.js";
import { linkTo, readLink } from "./link.js";
import { INITIAL, reduce } from "./state.js";
import { showStatus } from "./status.js";

const narrow = matchMedia("(max-width: 699px)");
/** The shortest and the longest pause between two requests. News end it after the shortest one. */
const HEALTH_MILLISECONDS = [2000, 2000];
const CONTENT_MILLISECONDS = [1000, 5000];
// A response that takes long, as over a slow line, is requested less often.
const PAUSE_FACTOR = 10;
const REOPEN_MILLISECONDS = 30_000;
const TICK_MILLISECONDS = 500;
const FRAME_MILLISECONDS = 16;

const client = new Client(new URL(".", document.baseURI));
const list = new PairList(dispatch);
const view = new BookView(dispatch, (step) => replaceLink(state.pair, step));

let state = INITIAL;
let isDrawing = false;
let drawnAt = -Infinity;
/** Ends the requests of the page when it is hidden, and those of a book when another one is selected. */
let visible = new AbortController();
let selected = new AbortController();
/** Ends the pause before the next requests. */
let wake = new AbortController();
/** Where the visitor was in the list, on a screen without room for it beside the book. */
let listPlace = 0;

function dispatch(type, details) {
  const before = state;
  state = reduce(before, { type, at: performance.now(), ...details });
  if (state.pair?.key !== before.pair?.key || state.isVisible !== before.isVisible) followBook();
  // A choice at once, because Enter opens the first pair that was found. But several versions in one frame are one change.
  if (type === "chosen" || performance.now() - drawnAt > FRAME_MILLISECONDS) return draw();
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(draw);
}

function draw() {
  isDrawing = false;
  drawnAt = performance.now();
  showStatus(state);
  list.show(state);
  view.show(state);
}

/** Repeat requests while the page is visible. */
async function repeat(name, request, [shortest, longest]) {
  const { signal } = visible;
  while (!signal.aborted) {
    const startedAt = performance.now();
    const error = await request(signal).then(() => null, sentence);
    if (signal.aborted) return;
    dispatch("answered", { name, error });
    const least = Math.min(Math.max(shortest, PAUSE_FACTOR * (performance.now() - startedAt)), longest);
    await pause(least, signal);
    await pause(longest - least, AbortSignal.any([signal, wake.signal]));
  }
}

/** Return what is shown of an error. */
function sentence(error) {
  if (error instanceof ServiceError) return error.message;
  if (error instanceof SyntaxError) return "The service sent an invalid response."; // a price or an amount
  reportError(error);
  return "Unexpected error in the page.";
}

/** The operator's policy. A proxy may hide it: the books are shown without it. */
async function requestHealth(signal) {
  const requestedAt = performance.now();
  const report = await client.get("healthz", { signal, expected: [503] }).catch((error) => {
    if (!error.status) throw error;
    return null;
  });
  dispatch("reported", { report: report && "quiet_seconds" in report ? report : null, requestedAt });
}

/** The list after a version, and the book if it has no stream. */
async function requestContent(signal) {
  const { pairs: rows } = await client.get("summary", { signal });
  let { tokens } = state;
  if (rows.some(({ base, quote }) => !tokens.has(base) || !tokens.has(quote))) {
    tokens = new Tokens(await client.get("tokens", { signal }));
  }
  dispatch("listed", { rows, tokens });
  list.show(state);
  // Beside the list there is room for a book.
  if (state.pair === null && !narrow.matches && list.first) replaceLink(list.first);
  const { book } = state;
  if (book === null || book.isStreamed) return;
  // To request a book that the list does not have would be an error.
  const source = list.has(book.pair.key) ? await client.orderBook(book.pair.base, book.pair.quote, { signal }) : null;
  dispatch("received", { key: book.pair.key, source, isStreamed: false });
}

/** Follow the stream of the selected book, and open it again some time after the service has rejected it. */
async function followBook() {
  selected.abort();
  selected = new AbortController();
  wakeUp();
  if (!state.book || !state.isVisible) return;
  const { signal } = selected;
  const { key } = state.book.pair;
  const onVersion = ({ books, isFirst, asOf }) => {
    dispatch("received", { key, source: books.get(key), isStreamed: true, isFirst, asOf });
    wakeUp();
  };
  const onSilence = () => {
    dispatch("lost");
    wakeUp();
  };
  while (!signal.aborted) {
    await client.follow([key], { onVersion, onSilence, signal }).catch((error) => {
      onSilence();
      if (!(error instanceof ServiceError)) dispatch("answered", { name: "content", error: sentence(error) });
    });
    await pause(REOPEN_MILLISECONDS, signal);
  }
}

/** End the pauses: the next requests show the news, or the cause of a failure. */
function wakeUp() {
  wake.abort();
  wake = new AbortController();
}

function replaceLink(pair, step) {
  history.replaceState(null, "", linkTo(pair, step));
  dispatch("linked", readLink(location.hash));
}

/** The visitor has selected a pair, or has gone back to the list. */
function navigate() {
  const isList = state.pair === null;
  if (narrow.matches && isList) listPlace = scrollY;
  dispatch("linked", readLink(location.hash));
  draw();
  if (narrow.matches) scrollTo(0, state.pair === null ? listPlace : 0);
  if (state.book) view.focus();
}

function follow() {
  visible.abort();
  visible = new AbortController();
  dispatch("shown", { isVisible: !document.hidden });
  if (document.hidden) return;
  repeat("health", requestHealth, HEALTH_MILLISECONDS);
  repeat("content", requestContent, CONTENT_MILLISECONDS);
}

history.scrollRestoration = "manual";
addEventListener("hashchange", navigate);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  view.focus();
});
narrow.addEventListener("change", () => dispatch("linked", readLink(location.hash)));
document.addEventListener("visibilitychange", follow);
setInterval(() => document.hidden || dispatch("ticked"), TICK_MILLISECONDS);
dispatch("linked", readLink(location.hash));
follow();
