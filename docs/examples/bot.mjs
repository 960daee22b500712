import { Client } from "./client.mjs";

const [url, ...pairs] = process.argv.slice(2);
const client = new Client(url);
const stopping = new AbortController();
process.once("SIGINT", () => stopping.abort());

let books = new Map();

/** Use the books of one version: they belong together. */
function onVersion(version) {
  books = version.books;
  for (const pair of version.changed) {
    const book = books.get(pair);
    if (book) console.log(`${pair}: ${book.bids[0]?.price ?? "no bid"} / ${book.asks[0]?.price ?? "no ask"}`);
    else console.log(`${pair}: not tracked`);
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
