"""The source of the ledger, through a stand-in for Kupo: blocks, rollbacks, failures, a Dolos, and the clock."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from threading import Event
from typing import Any

import pytest

from market_index import ADA, AssetId, MarketIndex, Order, Pair
from market_index.errors import MarketIndexError
from market_index_feeds import FeedError, open_feed
from market_index_feeds.ledger import Exchange
from market_index_feeds.ledger import kupo as module
from market_index_feeds.ledger.exchanges import shadowbook as shadowbook_module
from market_index_feeds.ledger.exchanges import splash as splash_module
from market_index_feeds.ledger.kupo import KupoSource
from market_index_feeds.source import NoVersion, Version
from tests.conftest import RECORDED
from tests.feeds.ledger.datums import (
    GENIUSYIELD,
    SPLASH,
    TOKEN,
    Constructor,
    datum,
    geniusyield,
    output,
    shadowbook,
    splash,
)
from tests.feeds.ledger.stand_in import Block, Kupo, recorded_blocks, serving

PAIR = Pair(AssetId(*TOKEN), ADA)
NOW = datetime.fromtimestamp(1_800_000_000, UTC)

FIRST, SECOND = (output(SPLASH, datum(splash(amount=amount)), amount) for amount in (5_000_000, 4_999_999))
FILLED = {"transaction_id": "f" * 64, "input_index": 0, "redeemer": "d87a80"}


def id_of(match: Any) -> str:
    return f"{match['transaction_id']}#{match['output_index']}"


class Followed:
    """A source, and what it yields. `now` is its wall clock."""

    def __init__(self, kupo: Kupo, now: datetime = NOW) -> None:
        self.kupo, self.now, self.stop = kupo, now, Event()
        self.source = KupoSource(kupo.url, now=lambda: self.now)
        self.versions = self.source.versions(self.stop)

    def next(self) -> Version | NoVersion:
        return next(self.versions)

    def version(self, text: str) -> Version:
        """Return the version of a block. One that was in flight may come before."""
        for found in islice(self.versions, 3):
            if isinstance(found, Version) and found.index.as_of == text:
                return found
        raise AssertionError(f"no version has the as_of {text!r}")

    def failure(self) -> str:
        """Return why the source fails. It can be followed again afterwards."""
        with pytest.raises(MarketIndexError) as caught:
            list(islice(self.versions, 3))
        self.versions = self.source.versions(self.stop)
        return str(caught.value)


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0)
    monkeypatch.setattr(module, "MOVED_SECONDS", 0)


@contextmanager
def following(*blocks: Block, now: datetime = NOW, **options: Any) -> Iterator[Followed]:
    with serving(Kupo(blocks, **options)) as kupo:
        followed = Followed(kupo, now)
        try:
            yield followed
        finally:
            followed.versions.close()


def orders(version: Version) -> set[str]:
    assert version.orders is not None
    assert version.venue_orders is not None
    assert version.venue_orders.keys() == version.orders.keys()
    return set(version.orders)


# Blocks


def test_each_block_is_a_version():
    first = Block(100, [FIRST])
    with following(first) as followed:
        version = followed.version(first.text)
        assert orders(version) == {id_of(FIRST)}
        assert version.index.order_book(PAIR).bids.prices[0] == 5000
        assert followed.next() is version, "a check that finds no block"
        following_block = Block(120)
        followed.kupo.blocks = [first, following_block]
        assert orders(followed.version(following_block.text)) == {id_of(FIRST)}
        third = Block(140, [SECOND], {id_of(FIRST): FILLED})
        followed.kupo.blocks = [first, following_block, third]
        assert orders(followed.version(third.text)) == {id_of(SECOND)}


def test_only_what_changed_is_read():
    """10,000 matches are 11 MB. The request names the hash of the last block, which a rollback may have removed."""
    blocks = [Block(100, [FIRST])]
    with following(*blocks) as followed:
        followed.version(blocks[0].text)
        del followed.kupo.requests[:]
        blocks.append(Block(120, [SECOND]))
        followed.kupo.blocks = blocks
        followed.version(blocks[1].text)
        asked = [request.partition("?")[2] for request in followed.kupo.requests if request.startswith("/matches")]
        point = f"{blocks[0].slot}.{blocks[0].hash}"
        assert set(asked) == {
            f"unspent&created_after={point}&resolve_hashes",
            f"spent_after={point}&resolve_hashes",
        }


def test_a_block_counts_once_it_is_stored():
    """Kupo announces it within the transaction that stores it: responses then have the former outputs."""
    first, second = Block(100, [FIRST]), Block(120, [SECOND])
    with following(first) as followed:
        version = followed.version(first.text)
        followed.kupo.blocks, followed.kupo.stored = [first, second], 1
        assert "no block could be read as a whole in 20 attempts" in followed.failure()
        assert followed.source.last is not None
        assert followed.source.last.index is version.index
        followed.kupo.stored = None
        assert orders(followed.version(second.text)) == {id_of(FIRST), id_of(SECOND)}


def test_a_block_of_the_same_slot_replaces_another_one():
    """Two pools may make a block for one slot. Its outputs count once it is the stored one."""
    first, second = Block(100, [FIRST]), Block(120, [SECOND])
    other = Block(120, [PLACED], fork="b")
    with following(first, second) as followed:
        followed.version(second.text)
        followed.kupo.blocks, followed.kupo.announced = [first, second], other
        assert "no block could be read" in followed.failure()
        followed.kupo.blocks, followed.kupo.announced = [first, other], None
        assert orders(followed.version(other.text)) == {id_of(FIRST), id_of(PLACED)}


def test_a_rollback_of_100_blocks_restores_the_orders():
    first = Block(100, [FIRST])
    long = [Block(120 + 20 * number, [output(SPLASH, datum(splash()), 10 + number)]) for number in range(100)]
    long.append(Block(9000, (), {id_of(FIRST): FILLED}))
    other = Block(9100, [SECOND], fork="b")
    with following(first, *long) as followed:
        assert len(orders(followed.version(long[-1].text))) == 100
        followed.kupo.blocks = [first, other]
        assert orders(followed.version(other.text)) == {id_of(FIRST), id_of(SECOND)}


def test_a_point_that_moves_backwards_is_a_rollback():
    first, second = Block(100, [FIRST]), Block(120, [SECOND], {id_of(FIRST): FILLED})
    with following(first, second) as followed:
        assert orders(followed.version(second.text)) == {id_of(SECOND)}
        followed.kupo.blocks = [first]
        assert orders(followed.version(first.text)) == {id_of(FIRST)}


@pytest.mark.decision(31)
def test_a_kupo_of_another_network_has_no_version():
    with following(Block(100)) as followed:
        reason = NoVersion("knows no output of an exchange; it must index their patterns")
        assert followed.next() == reason
        followed.kupo.blocks = [Block(100), block := Block(120, [FIRST])]
        assert orders(followed.version(block.text)) == {id_of(FIRST)}


def test_a_rollback_restores_the_orders_and_takes_back_the_spot():
    placed = Block(100, [PLACED, FIRST])
    filled = Block(120, [PARTLY_FILLED], {id_of(PLACED): FILLED | {"transaction_id": PARTLY_FILLED["transaction_id"]}})
    with following(placed) as followed:
        assert followed.version(placed.text).index.order_book(PAIR).spot is None
        followed.kupo.blocks = [placed, filled]
        version = followed.version(filled.text)
        assert orders(version) == {id_of(PARTLY_FILLED), id_of(FIRST)}
        assert version.index.order_book(PAIR).spot == 4000, "4,000,000 lovelace for 1,000 SNEK"
        other = Block(110, [SECOND], fork="b")
        followed.kupo.blocks = [placed, other]
        version = followed.version(other.text)
        assert orders(version) == {id_of(PLACED), id_of(FIRST), id_of(SECOND)}
        assert version.index.order_book(PAIR).spot is None


def placed_and_filled() -> tuple[Any, Any]:
    """Return an order of Splash for 8 ADA, and its successor after 4 ADA bought 1,000 SNEK."""
    before = splash(amount=8_000_000, **{"step output": 500})
    after = before | {"amount": 4_000_000, "fee": 400_000}
    coins = 20_000_000
    spent = output(SPLASH, datum(before), 77) | {"value": {"coins": coins, "assets": {}}}
    # The fill takes 4 ADA, 0.1 ADA of the fee, and one step cost.
    value = {"coins": coins - 4_700_000, "assets": {f"{TOKEN[0].hex()}.{TOKEN[1].hex()}": 1000}}
    return spent, output(SPLASH, datum(after), 78) | {"value": value}


PLACED, PARTLY_FILLED = placed_and_filled()


@pytest.mark.decision(32)
def test_pairs_and_spots_do_not_depend_on_when_a_process_started():
    """Each worker follows the feed; one that is started again must answer as the others do."""
    blocks = recorded_blocks(RECORDED / "ledger")
    with following(blocks[0]) as early:
        version = early.version(blocks[0].text)
        for count in range(1, len(blocks) + 1):
            early.kupo.blocks = blocks[:count]
            version = early.version(blocks[count - 1].text)
            late = Followed(early.kupo)
            with closing(late.versions):
                other = late.next()
            assert isinstance(other, Version)
            assert other.index == version.index
            assert other.orders == version.orders
            assert other.skipped == version.skipped
    assert len(version.index) == 18
    assert len([book for book in version.index.values() if book.spot is not None]) == 3


@pytest.mark.decision(32)
def test_a_pair_stays_listed_for_the_window_after_its_last_order():
    last, broken = Block(100 + 86_400), output(SPLASH, datum(splash(amount=-1)), 3)
    blocks = [Block(100, [FIRST, broken]), Block(120, (), {id_of(FIRST): FILLED}), last]
    with following(*blocks[:1]) as followed:
        followed.version(blocks[0].text)
        for block in blocks[1], last:
            followed.kupo.blocks = [*followed.kupo.blocks, block]
            version = followed.version(block.text)
            assert (list(version.index), orders(version)) == ([PAIR], set())
        after = Block(last.slot + 21)
        followed.kupo.blocks = [*blocks, after]
        assert not followed.version(after.text).index


# The clock


def test_an_order_expires_by_the_clock_also_while_kupo_cannot_be_read():
    ends_at = int(NOW.timestamp() * 1000) + 5000
    block = Block(100, [output(GENIUSYIELD, datum(geniusyield(end=Constructor(0, (ends_at,)))))])
    with following(block) as followed:
        assert len(orders(followed.version(block.text))) == 1
        followed.kupo.failure = "error"
        followed.now += timedelta(seconds=6)
        assert "got 500" in followed.failure()
        version = followed.source.last
        assert version is not None
        assert orders(version) == set()
        assert (version.index.as_of, list(version.skipped.values())) == (block.text, ["expired"])


# What fails


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("error", "status 200, got 500"),
        ("closed", "disconnected without sending"),
        ("cut", "peer closed connection"),
        ("another body", "must be a list of matches"),
        ("another match", "is not valid"),
        ("disconnected", "not connected to its node"),
    ],
)
def test_a_failing_kupo_changes_nothing(failure: str, reason: str):
    first, second = Block(100, [FIRST]), Block(120, [SECOND])
    with following(first) as followed:
        version = followed.version(first.text)
        followed.kupo.failure, followed.kupo.blocks = failure, [first, second]
        message = followed.failure()
        assert reason in message
        last = followed.source.last
        assert last is not None
        assert (last.index is version.index, last.problem) == (True, f"cannot be read: {message}")
        followed.kupo.failure = ""
        assert orders(followed.version(second.text)) == {id_of(FIRST), id_of(SECOND)}


@pytest.mark.decision(31)
def test_a_kupo_that_is_syncing_has_no_version():
    with following(failure="syncing") as followed:
        assert followed.next() == NoVersion("is still reading the chain")
        followed.kupo.failure = ""
        assert followed.next() == NoVersion("has no block yet")
        followed.kupo.blocks = [block := Block(100, [FIRST])]
        version = followed.version(block.text)
        followed.kupo.failure = "syncing"
        assert followed.next() == NoVersion("is still reading the chain")
        assert followed.source.last is version


@pytest.mark.parametrize("failure", ["quoted", "weak", "no header"])
def test_a_proxy_may_change_the_tags(failure: str):
    first, second = Block(100, [FIRST]), Block(120, [SECOND])
    with following(first, failure=failure) as followed:
        followed.version(first.text)
        followed.kupo.blocks = [first, second]
        assert orders(followed.version(second.text)) == {id_of(FIRST), id_of(SECOND)}


def test_a_dolos_has_orders_and_no_spots(caplog: pytest.LogCaptureFixture):
    """It knows no spent outputs: everything is read each time, and the log says so once."""
    first, second = Block(100, [PLACED]), Block(120, [PARTLY_FILLED], {id_of(PLACED): FILLED})
    with following(first, is_dolos=True) as followed:
        followed.version(first.text)
        followed.kupo.blocks = [first, second]
        version = followed.version(second.text)
        assert orders(version) == {id_of(PARTLY_FILLED)}
        assert version.index.order_book(PAIR).spot is None
    assert len([one for one in caplog.messages if "knows no spent outputs" in one]) == 1


@pytest.mark.decision(24)
def test_a_skipped_output_is_no_record_and_is_counted_in_one_line_of_the_log(caplog: pytest.LogCaptureFixture):
    """Everybody can pay an output with any datum to a script: it must not make the as_of of a market unknown."""
    broken = output(SPLASH, datum(splash(amount=-1)), 3)
    empty, other = (output(SPLASH, datum(splash(amount=0)), number) for number in (4, 5))
    block = Block(100, [FIRST, broken, empty])
    with caplog.at_level(logging.INFO), following(block) as followed:
        version = followed.version(block.text)
        assert version.invalid == frozenset()
        assert version.skipped == {id_of(broken): "unknown datum", id_of(empty): "budget exhausted"}
        assert followed.source.rejected == 0
        followed.next()
        followed.kupo.blocks = [block, Block(120, [other])]
        followed.version(Block(120).text)
    first, second = (one.partition("skipped: ")[2].partition(" (")[0] for one in caplog.messages)
    assert set(first.split(", ")) == {"1 unknown datum", "1 budget exhausted"}
    assert second == "1 budget exhausted", "what was skipped before is not repeated"


# Options


def test_listed_pairs_have_their_own_base():
    with serving(Kupo([Block(100, [FIRST])])) as kupo:
        other = Pair(AssetId(bytes(28), b"OTHER"), ADA)
        for only, expected in (False, {other, PAIR}), (True, {other}):
            source = KupoSource(kupo.url, [other], only=only)
            with closing(source.versions(Event())) as versions:
                version = next(versions)
            assert isinstance(version, Version)
            assert set(version.index) == expected
        inverse = KupoSource(kupo.url, [Pair(ADA, PAIR.base)], only=True)
        with closing(inverse.versions(Event())) as versions:
            version = next(versions)
        assert isinstance(version, Version)
        (only_order,) = (version.orders or {}).values()
        assert isinstance(only_order, Order)
        assert (only_order.pair, only_order.amount) == (Pair(ADA, PAIR.base), 5_000_000)
        assert isinstance(version.index, MarketIndex)


def test_an_exchange_of_the_user_is_read_beside_the_others():
    mine = Exchange("Mine", "11" * 28, shadowbook_module.SHADOWBOOK, shadowbook_module.shadowbook)
    order = output(mine.script, datum(shadowbook()), 5)
    with serving(Kupo([Block(100, [FIRST, order])])) as kupo, open_feed(f"kupo:{kupo.url}", exchanges=[mine]) as feed:
        feed.read()
    assert {key: one.venue for key, one in (feed.venue_orders or {}).items()} == {
        id_of(FIRST): "Splash",
        id_of(order): "Mine",
    }


def test_two_exchanges_have_different_scripts():
    """Otherwise the outputs of the script would have two layouts, of which one would hide the other."""
    with pytest.raises(FeedError, match=f"^kupo:http://h cannot be opened: two exchanges have the script {SPLASH}$"):
        open_feed("kupo:http://h", exchanges=[Exchange("Mine", SPLASH, splash_module.SPLASH, splash_module.splash)])
