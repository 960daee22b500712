// The view of the status: how fresh the content is, what is wrong, and the title of the window.

import { Units } from "./assets.js";
import { element, pairName, replaceParts, setText } from "./elements.js";
import { price } from "./exact.js";
import { linkTo } from "./link.js";
import { freshness } from "./state.js";

const [connection, age, asOf, transport, alertNotice, notice] =
  ["connection", "age", "as-of", "transport", "alert", "state"].map((id) => document.getElementById(id));

export function showStatus(state) {
  const { pair, book, report, isCurrent } = state;
  const { name, label, reason, warning, isOld } = freshness(state);
  const { dataset } = document.body;
  for (const [key, value] of [["view", pair === null ? "list" : "book"], ["freshness", name]]) {
    if (dataset[key] !== value) dataset[key] = value;
  }
  document.body.classList.toggle("old", isOld && name !== "untracked");
  setText(connection, label);
  setText(age, reason);
  const reflected = (book?.isStreamed ? book.asOf : report?.as_of) ?? null;
  asOf.hidden = reflected === null;
  setText(asOf.querySelector("bdi"), reflected ?? "");
  const isShown = isCurrent && name !== "lost" && book !== null;
  setText(transport, isShown ? (book.isStreamed ? "stream: each change as it happens" : "no stream: polled") : "");
  setText(alertNotice, warning);
  showNotice(state);
  const title = titleOf(state, isOld);
  if (document.title !== title) document.title = title;
}

function showNotice({ pair, book, rows, tokens, failures }) {
  const parts = [noticeText(pair, book, rows, failures)];
  const other = pair?.key && { base: pair.quote, quote: pair.base };
  if (book?.isTracked === false && rows?.some(({ base, quote }) => base === other.base && quote === other.quote)) {
    const name = pairName(tokens.nameOf(other.base), tokens.nameOf(other.quote));
    parts.push(" Its reverse is tracked: ", element("a", { href: linkTo(other) }, ...name));
  }
  replaceParts(notice, parts);
  notice.classList.toggle("warning", book?.isTracked === false);
}

function noticeText(pair, book, rows, failures) {
  if (pair === null) return rows?.length === 0 ? "No pair is tracked yet. Published pairs will appear here." : "";
  if (book === null) return "The address of this page does not contain a valid pair. Select one from the list.";
  if (book.isTracked === false && book.value) return "This pair is no longer tracked. Its last order book is shown.";
  if (book.isTracked === false) return "This pair is not tracked. Its order book will appear here when it is published.";
  return (book.value && rows) || failures.content ? "" : "Loading the order book…";
}

/** An old price is no price: the title of a window that nobody looks at has it only while it is current. */
function titleOf({ book, tokens }, isOld) {
  if (book === null) return "Order books";
  const spot = book.value?.spot?.value;
  const shown = isOld ? " (old)" : spot ? ` ${price(new Units(book.pair, tokens).price(spot))}` : "";
  return `${tokens.nameOf(book.pair.base)}/${tokens.nameOf(book.pair.quote)}${shown} – Order books`;
}
