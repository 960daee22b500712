import { Client, shifted } from "./client.mjs";

const [url, ...pairs] = process.argv.slice(2);
const client = new Client(url);
const stopping = new AbortController();
process.once("SIGINT", () => stopping.abort());

let books = new Map();
// Names and decimals, which only `serve` has.
const tokens = await client.tokens().catch(() => new Map());
const name = (id) => (tokens.has(id) ? `${tokens.get(id).name} ${tokens.get(id).policy}`.trim() : id);

/** Return the price of a level in whole units. */
function price({ base, quote }, level, none) {
  const [ofBase, ofQuote] = [base, quote].map((id) => tokens.get(id)?.decimals ?? 0);
  return level ? shifted(level.price, ofBase - ofQuote) : none;
}

/** Use the books of one version: they belong together. */
function onVersion(version) {
  books = version.books;
  for (const pair of version.changed) {
    const book = books.get(pair);
    const label = pair.split("/").map(name).join("/");
    if (!book) console.log(`${label}: not tracked`);
    else console.log(`${label}: ${price(book, book.bids[0], "no bid")} / ${price(book, book.asks[0], "no ask")}`);
  }
}

/** The books are old until the next version: a bot would cancel its orders. */
function onSilence(reason, milliseconds) {
  console.error(`${reason.message} ${milliseconds === null ? "" : `Next attempt in ${Math.round(milliseconds)} ms.`}`);
}

await client.follow(pairs, { onVersion, onSilence, signal: stopping.signal });

for (const [pair, book] of books) {
  const served = await client.orderBook(book.base, book.quote);
  console.log(`${pair}: ${JSON.stringify(served) === JSON.stringify(book) ? "equal" : "different"}`);
}
