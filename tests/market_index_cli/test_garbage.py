"""Records with a valid digest that contain no valid order book: no command shows, serves or relays one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import frozen

from market_index import OrderBook, Pair, wire
from market_index.assets import ADA, AssetId
from market_index_feeds import Store, open_feed, open_store
from market_index_feeds.nats.records import DIGEST_HEADER, digest_of, key_of
from tests import nats
from tests.command import invoke, running
from tests.market_index_feeds.made_up import book, pair
from tests.market_index_feeds.sqlite.files import forge
from tests.service import Service
from tests.waiting import eventually


def head_of_a_book(text: bytes) -> bytes:
    return text[: text.index(b'"bids":')] + b'"bids": GARBAGE'


def garbage_after_a_book(text: bytes) -> bytes:
    return text + b" GARBAGE"


def levels_out_of_order(text: bytes) -> bytes:
    worst_first = b'"bids":[{"price":"0.125","accumulated_liquidity":3},'
    return text.replace(b'"bids":[', worst_first)


SPOILS = head_of_a_book, garbage_after_a_book, levels_out_of_order


@frozen
class Case:
    """A pair with a valid book, which an invalid record replaces, with its identifiers in lower or upper case."""

    pair: Pair
    spoil: Callable[[bytes], bytes]
    is_upper: bool

    @property
    def good(self) -> OrderBook:
        return OrderBook.from_levels(self.pair, bids=[("0.5", 7)], asks=[("0.75", 9)], spot="0.5")

    @property
    def garbage(self) -> bytes:
        """The invalid record: apart from its fault, it is another book of the pair."""
        changed = OrderBook.from_levels(self.pair, bids=[("0.625", 666)], spot="0.625")
        text = wire.order_book_to_json(changed)
        spelled = self.base.encode()
        return self.spoil(text.replace(str(self.pair.base).encode(), spelled))

    @property
    def base(self) -> str:
        """The identifier as the invalid record spells it."""
        return str(self.pair.base).upper() if self.is_upper else str(self.pair.base)


CASES = [
    Case(Pair(AssetId(bytes([0xA0 + number]) * 28, b"\xcd"), ADA), spoil, is_upper)
    for number, (spoil, is_upper) in enumerate((spoil, is_upper) for spoil in SPOILS for is_upper in (False, True))
]
FORGED = [b"GARBAGE", b"0.625", b"0.125", b"666"]
"""What only the garbage contains."""


@frozen
class Source:
    """A store with the valid book of each case and of another pair. Another program writes invalid records into it."""

    store: Store
    put: Callable[[Pair, bytes], None]

    @property
    def target(self) -> str:
        return self.store.target

    def spoil(self) -> None:
        for case in CASES:
            self.put(case.pair, case.garbage)


@pytest.fixture(params=["file", "bucket"])
def source(request: pytest.FixtureRequest, tmp_path: Path, bucket: str, nats_server: nats.Server) -> Iterator[Source]:
    path = tmp_path / "market.db"

    def put_row(pair: Pair, text: bytes) -> None:
        forge(path, str(pair), text.decode())

    def put_value(pair: Pair, text: bytes) -> None:
        name = bucket.rpartition("/")[2]
        nats.put(nats_server, name, key_of(pair), zlib.compress(text), {DIGEST_HEADER: digest_of(text)})

    target, put = (path, put_row) if request.param == "file" else (bucket, put_value)
    with open_store(target) as store:
        store.publish(book(1, 1), *(case.good for case in CASES))
        yield Source(store, put)


def require_good(service: Service) -> None:
    """Check every response: in either spelling it is the valid book, with nothing of the invalid record."""
    answers = [service.pair_list()]
    for case in CASES:
        good = json.loads(wire.order_book_to_json(case.good))
        for base in (str(case.pair.base), str(case.pair.base).upper()):
            answers.append(service.order_book(base, "ADA"))
            assert answers[-1].json == good | {"base": base}
    assert all(answer.status == 200 for answer in answers)
    assert not any(forged in answer.body for forged in FORGED for answer in answers)
    listed = {one["base"]: one["last_spot"] for one in answers[0].json["pairs"]}
    assert listed.items() >= {str(case.pair.base): "0.5" for case in CASES}.items()


@pytest.mark.decision(24)
def test_serve_keeps_the_last_valid_books(source: Source, tmp_path: Path):
    with running(tmp_path, source.target, "--port", 0) as command:
        service = command.service
        require_good(service)
        source.spoil()
        eventually(lambda: command.stderr.count(" rejected: ") == len(CASES))
        source.store.publish(book(1, 2))
        eventually(lambda: service.order_book(str(pair(1).base), "ADA").json["spot"] == "2")
        require_good(service)
        assert service.request("/healthz").status == 200
        source.store.publish(*(OrderBook(case.pair, spot="3") for case in CASES))
        eventually(lambda: all(service.order_book(str(case.pair.base), "ADA").json["spot"] == "3" for case in CASES))
        assert command.stderr.count(" rejected: ") == len(CASES)
        assert "Traceback" not in command.stderr
        assert command.end() == 0


def test_serve_that_starts_later_does_not_have_them(source: Source, tmp_path: Path):
    source.spoil()
    with running(tmp_path, source.target, "--port", 0) as command:
        service = command.service
        assert f"{source.target}: 1 pairs, {len(CASES)} " in command.stderr
        assert [one["base"] for one in service.pair_list().json["pairs"]] == [str(pair(1).base)]
        for case in CASES:
            answer = service.order_book(case.base, "ADA")
            assert (answer.status, list(answer.json)) == (404, ["error"])
        assert command.end() == 0


def test_pairs_reports_them_as_rejected(source: Source):
    source.spoil()
    for options in ((), ("--json",)):
        done = invoke("pairs", source.target, *options)
        assert done.returncode == 5
        assert done.stderr.count(" rejected: ") == done.stderr.count("\n") == len(CASES)
        assert not any(forged.decode() in done.stdout for forged in FORGED)
        assert not any(str(case.pair.base) in done.stdout.lower() for case in CASES)
        assert str(pair(1).base) in done.stdout


@pytest.mark.parametrize("number", range(len(CASES)))
def test_book_reports_it_as_unreadable(source: Source, number: int):
    case = CASES[number]
    source.put(case.pair, case.garbage)
    done = invoke("book", source.target, case.base, "ADA", *["--json"] * case.is_upper)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"Error: {source.target} cannot be read: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.decision(24)
def test_relay_never_writes_them(source: Source, tmp_path: Path):
    """Neither a relay that is running when they are written, nor one that starts later."""
    copy = tmp_path / "copy.db"
    with running(tmp_path, source.target, copy, command="relay") as relay:
        eventually(lambda: "relaying" in relay.stderr)
        source.spoil()
        eventually(lambda: relay.stderr.count(" rejected: ") == len(CASES))
        source.store.publish(book(1, 2))
        eventually(lambda: open_feed(copy).read_order_book(pair(1)) == book(1, 2))
        assert relay.end() == 0
    source.store.publish(book(1, 3))
    with running(tmp_path, source.target, copy, command="relay") as relay:
        eventually(lambda: "relaying" in relay.stderr)
        assert relay.stderr.count(" rejected: ") == len(CASES)
        assert relay.end() == 0
    feed = open_feed(copy)
    assert list(feed.read().values()) == [book(1, 3), *(case.good for case in CASES)]
    assert feed.rejected == 0
    assert not any(forged in copy.read_bytes() for forged in FORGED if not forged.isdigit())
