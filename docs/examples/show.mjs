import { Reader } from "./market-index.mjs";

const reader = new Reader(process.argv[2]);
const { pairs } = await reader.pairList();
for (const { base, quote } of pairs) {
  const book = await reader.orderBook(base, quote);
  if (book === null) continue; // retracted after the list was read
  const { bids, asks } = book;
  const total = [...bids, ...asks].reduce((sum, level) => sum + level.accumulated_liquidity, 0n);
  console.log(`${base}/${quote}: ${bids.length} bids, ${asks.length} asks, ${total} in total`);
}
