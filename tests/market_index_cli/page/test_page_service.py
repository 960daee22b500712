"""The JavaScript module service.js of the page, run by node against a real service."""

from __future__ import annotations

from pathlib import Path

from tests.market_index_cli.page import node
from tests.page import sample
from tests.service import Service

IMPORTS = """
import { Book, pairList } from "./service.mjs";
const [base] = process.argv.slice(2);
const send = fetch;
const sent = [];
globalThis.fetch = (path, options) => {
  sent.push([path.split("?")[0], "If-None-Match" in options.headers]);
  return send(base + path, options);
};
const { signal } = new AbortController();
const print = (value) => console.log(JSON.stringify(value));
"""

# An EventSource without a service: the program sends the events.
SOURCE = """
const opened = [];
globalThis.EventSource = class extends EventTarget {
  static CLOSED = 2;
  readyState = 1;
  constructor(address) {
    super();
    opened.push([this, address]);
  }
  close() {
    this.readyState = 2;
  }
};
const emit = (name, data) => {
  opened.at(-1)[0].dispatchEvent(Object.assign(new Event(name), { data: JSON.stringify(data) }));
};
let now = 0;
performance.now = () => now;
let failures = 0;
let changes = 0;
const [{ base: one, quote: other }] = (await (await send(base + "trading-view/pair-list")).json()).pairs;
const book = new Book({ base: one, quote: other }, () => (changes += 1), () => (failures += 1));
const shown = () => [book.isTracked, book.value && book.value.bids.map((level) => [level.price, String(level.amount)])];
"""


def printed(folder: Path, program: str, service: Service) -> list[object]:
    return node.run(folder, IMPORTS + program, None, f"http://127.0.0.1:{service.port}/")


def test_an_unchanged_list_is_not_sent_again(tmp_path: Path, sent: Service):
    program = """
const list = pairList();
print([await list.refresh(signal), await list.refresh(signal), list.value.length, sent]);
process.exit();
"""
    path = "trading-view/pair-list"
    assert printed(tmp_path, program, sent) == [[True, False, len(sample()), [[path, False], [path, True]]]]


def test_a_book_follows_the_stream_exactly_until_it_is_retracted(tmp_path: Path, sent: Service):
    program = (
        SOURCE
        + """
book.open();
const level = (price, amount) => ({ price, accumulated_liquidity: amount });
emit("book", { base: one, quote: other, spot: null, bids: [level("2", 5), level("1", 7)], asks: [] });
print(shown());
opened[0][0].dispatchEvent(Object.assign(new Event("change"), {
  data: `{"spot":null,"bids":[{"price":"2","accumulated_liquidity":0},{"price":"1.5",
    "accumulated_liquidity":9007199254740993}],"asks":[]}` }));
emit("version", { as_of: "slot 1", published_at: null });
print([...shown(), book.asOf]);
emit("retract", { base: one, quote: other });
print([shown()[0], changes, failures]);
await book.check(signal, true);
print(sent);
emit("change", { spot: null, bids: [{ price: "1" }], asks: [] });
print([failures, opened[0][0].readyState]);
process.exit();
"""
    )
    assert printed(tmp_path, program, sent) == [
        [True, [["2", "5"], ["1", "7"]]],
        [True, [["1.5", str(2**53 + 1)], ["1", "7"]], "slot 1"],
        [False, 4, 0],
        [],  # the stream is not quiet
        [1, 2],
    ]


def test_a_book_is_requested_where_the_stream_is_quiet_or_refused(tmp_path: Path, sent: Service):
    program = (
        SOURCE
        + """
book.open();
await book.check(signal, true);
print([book.isTracked, book.value !== null, sent.length, opened.length]);
now += 14_000;
opened[0][0].readyState = EventSource.CLOSED;
await book.check(signal, true);
print([sent.length, opened.length]);
now += 2_000;
await book.check(signal, true);
print([sent.length, opened.length]);
await book.check(signal, false);
print([book.isTracked, sent.length]);
process.exit();
"""
    )
    assert printed(tmp_path, program, sent) == [[True, True, 1, 1], [2, 1], [3, 2], [False, 3]]
