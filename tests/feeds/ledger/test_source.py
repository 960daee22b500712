"""The source of the ledger, through a stand-in for Kupo: blocks, rollbacks, failures, and the clock."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from threading import Event
from typing import Any

import pytest

from market_index import ADA, AssetId, Pair
from market_index_feeds import FeedError, open_feed
from market_index_feeds.ledger import EXCHANGES, Exchange
from market_index_feeds.ledger.entries import SLOT_ZEROS
from market_index_feeds.ledger.exchanges.shadowbook import SHADOWBOOK as SHADOWBOOK_LAYOUT
from market_index_feeds.ledger.exchanges.shadowbook import offers as shadowbook_offers
from market_index_feeds.ledger.exchanges.splash import splash as splash_exchange
from market_index_feeds.ledger.kupo import KupoSource
from market_index_feeds.source import NoVersion
from tests.feeds.ledger.datums import (
    CARDANOSWAPS,
    GENIUSYIELD,
    SHADOWBOOK,
    SPLASH,
    TOKEN,
    Constructor,
    address,
    cardanoswaps,
    datum,
    filled,
    geniusyield,
    id_of,
    output,
    shadowbook,
    splash,
)
from tests.feeds.ledger.following import NOW, Followed, orders
from tests.feeds.ledger.stand_in import Block, Kupo, serving

PAIR = Pair(AssetId(*TOKEN), ADA)
FIRST, SECOND = (output(SPLASH, datum(splash(amount=amount)), amount) for amount in (5_000_000, 4_999_999))
FILLED = {"transaction_id": "f" * 64, "input_index": 0, "redeemer": "d87a80"}


@contextmanager
def following(*blocks: Block, **options: Any) -> Iterator[tuple[Kupo, Followed]]:
    with serving(Kupo(blocks, **options)) as kupo:
        followed = Followed(lambda now: KupoSource(kupo.url, now=now))
        with closing(followed):
            yield kupo, followed


# Blocks


def test_each_block_is_a_version_and_only_what_changed_is_read():
    """10,000 matches are 11 MB. The request names the hash of the last block, which a rollback may have removed."""
    blocks = [Block(100, [FIRST]), Block(120), Block(140, [SECOND], {id_of(FIRST): FILLED})]
    with following(blocks[0]) as (kupo, followed):
        version = followed.version(blocks[0].text)
        assert orders(version) == {id_of(FIRST)}
        assert version.index.order_book(PAIR).bids.prices[0] == 5000
        assert next(followed.versions) is version, "a check that finds no block"
        for count, shown in (2, FIRST), (3, SECOND):
            del kupo.requests[:]
            kupo.blocks = blocks[:count]
            assert orders(followed.version(blocks[count - 1].text)) == {id_of(shown)}
            asked = [request.partition("?")[2] for request in kupo.requests if request.startswith("/matches")]
            first, last = (f"{block.slot}.{block.hash}" for block in blocks[count - 2 : count])
            assert asked == [
                f"created_after={first}&created_before={last}&resolve_hashes",
                f"spent_after={first}&spent_before={last}&resolve_hashes",
            ]


def test_a_block_of_the_same_slot_replaces_another_one():
    """Two pools may make a block for one slot."""
    first, second, third = Block(100, [FIRST]), Block(120, [SECOND]), Block(120, fork="b")
    with following(first, second) as (kupo, followed):
        followed.version(second.text)
        kupo.blocks = [first, third]
        followed.showing(FIRST)


@pytest.mark.decision(31)
def test_a_kupo_of_another_network_has_no_version():
    with following(Block(100)) as (kupo, followed):
        reason = NoVersion("knows no output of an exchange; it must index their patterns")
        assert [*islice(followed.versions, 5)] == [reason] * 5
        kupo.blocks = [Block(100), block := Block(120, [FIRST])]
        assert orders(followed.version(block.text)) == {id_of(FIRST)}


@pytest.mark.decision(32)
def test_a_pair_stays_listed_for_the_window_after_its_last_order():
    last, broken = Block(100 + 86_400), output(SPLASH, datum(splash(amount=-1)), 3)
    blocks = [Block(100, [FIRST, broken]), Block(120, (), {id_of(FIRST): FILLED}), last]
    with following(*blocks[:1]) as (kupo, followed):
        followed.version(blocks[0].text)
        for block in blocks[1], last:
            kupo.blocks = [*kupo.blocks, block]
            version = followed.version(block.text)
            assert (list(version.index), orders(version)) == ([PAIR], set())
        after = Block(last.slot + 21)
        kupo.blocks = [*blocks, after]
        assert not followed.version(after.text).index


# The clock


@pytest.mark.parametrize("is_silent", [True, False])
def test_an_order_expires_by_the_clock_also_while_kupo_is_silent_or_fails(is_silent: bool):
    """An order that has expired must not stay the best bid until the timeout."""
    ends_at = int(NOW.timestamp() * 1000) + 5000
    block = Block(100, [output(GENIUSYIELD, datum(geniusyield(end=Constructor(0, (ends_at,)))))])
    released = Event()
    with following(block) as (kupo, followed):
        assert len(orders(followed.version(block.text))) == 1
        kupo.failure = "" if is_silent else "error"
        kupo.on_request = lambda _: released.wait(60 if is_silent else 0)
        followed.now += timedelta(seconds=6)
        try:
            version = followed.showing()
            assert (version.index.as_of, [one.reason for one in version.skipped.values()]) == (block.text, ["expired"])
        finally:
            released.set()


# What fails


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("error", "status 200, got 500"),
        ("closed", "disconnected without sending"),
        ("cut", "peer closed connection"),
        ("another body", "must be a list"),
        ("another match", "is not valid"),
        ("disconnected", "not connected to its node"),
    ],
)
def test_a_failing_kupo_changes_nothing(failure: str, reason: str):
    first, second = Block(100, [FIRST]), Block(120, [SECOND])
    with following(first) as (kupo, followed):
        version = followed.version(first.text)
        kupo.failure, kupo.blocks = failure, [first, second]
        problem = followed.failure()
        assert reason in problem
        last = followed.source.last
        assert last is not None
        assert (last.index is version.index, last.problem) == (True, problem)
        kupo.failure = ""
        assert orders(followed.version(second.text)) == {id_of(FIRST), id_of(SECOND)}


@pytest.mark.decision(31)
def test_a_kupo_that_is_syncing_has_no_version():
    with following(failure="syncing") as (kupo, followed):
        followed.until(NoVersion("is still reading the chain"))
        kupo.failure = ""
        followed.until(NoVersion("has no block yet"))
        kupo.blocks = [block := Block(100, [FIRST], fork="b")]
        version = followed.version(block.text)
        kupo.failure = "syncing"
        assert followed.failure() == "is still reading the chain"
        assert followed.source.last is not None
        assert followed.source.last.index is version.index


@pytest.mark.decision(24)
def test_a_skipped_output_is_no_record_and_is_counted_in_one_line_of_the_log(caplog: pytest.LogCaptureFixture):
    """Everybody can pay an output with any datum to a script: it must not make the as_of of a market unknown."""
    broken = output(SPLASH, datum(splash(amount=-1)), 3)
    empty, other = (output(SPLASH, datum(splash(amount=0)), number) for number in (4, 5))
    block = Block(100, [FIRST, broken, empty])
    with caplog.at_level(logging.INFO), following(block) as (kupo, followed):
        version = followed.version(block.text)
        assert version.invalid == frozenset()
        reasons = {key: (one.reason, one.field) for key, one in version.skipped.items()}
        assert reasons == {id_of(broken): ("unknown datum", "amount"), id_of(empty): ("budget exhausted", "")}
        assert followed.source.rejected == 0
        next(followed.versions)
        kupo.blocks = [block, Block(120, [other])]
        followed.version(Block(120).text)
    first, second = (one.partition("skipped: ")[2].partition(" (")[0] for one in caplog.messages)
    assert set(first.split(", ")) == {"1 unknown datum", "1 budget exhausted"}
    assert second == "1 budget exhausted", "what was skipped before is not repeated"


# Options


def test_a_selection_decides_which_orders_are_shown():
    """Such as exchanges of the user, one of which replaces another one with the same script: so the executors of Splash
    can be configured."""
    mine = Exchange("Mine", "11" * 28, SHADOWBOOK_LAYOUT, shadowbook_offers)
    cheap = output(SPLASH, datum(splash(**{"step cost": 350_000})), 6)
    found = [FIRST, cheap, output(mine.script, datum(shadowbook()), 5), output(SHADOWBOOK, datum(shadowbook()), 7)]
    other = Pair(AssetId(bytes(28), b"OTHER"), ADA)
    exchanges = [mine, splash_exchange(least_step_cost=350_000)]
    with serving(Kupo([Block(100, found)], patterns=[f"{SPLASH}/*", f"{mine.script}/*"])) as kupo:
        for name, expected in ("", {PAIR}), (f"pair={other}&", {PAIR, other}), (f"only&pair={other}&", {other}):
            with open_feed(f"kupo:{kupo.url}?{name}venues=splash,mine", exchanges=exchanges) as feed:
                assert set(feed.read()) == expected
            assert feed.version is not None
            assert feed.version.problem is None, "Shadowbook need not be indexed"
            assert orders(feed.version) == ({id_of(one) for one in found[:3]} if PAIR in expected else set())


# What Kupo says of itself

PATTERNS = [exchange.pattern for exchange in EXCHANGES if "mainnet" in exchange.networks]


def test_an_exchange_whose_outputs_are_not_indexed_is_named():
    """Its pairs would be missing without a word. The others are shown, and the feed has a problem."""
    patterns = [one for one in PATTERNS if one != f"{SHADOWBOOK}/*"]
    with following(block := Block(100, [FIRST]), patterns=patterns) as (_, followed):
        version = followed.version(block.text)
        assert version.problem == f"does not index the outputs of Shadowbook ({SHADOWBOOK}/*)"
        assert orders(version) == {id_of(FIRST)}


OF_POLICIES = {one.pattern: f"{one.script}/*" for one in EXCHANGES if one.policy}


@pytest.mark.parametrize(
    "patterns",
    [PATTERNS, ["*"], ["*/*"], [*PATTERNS, "addr1x", "{674}"], [OF_POLICIES.get(one, one) for one in PATTERNS]],
)
def test_patterns_of_others_and_wider_ones_do_not_matter(patterns: list[str]):
    other = output("ab" * 28, datum(splash()), 77)
    with following(block := Block(100, [FIRST, other]), patterns=patterns) as (_, followed):
        version = followed.version(block.text)
        assert (orders(version), version.problem, version.skipped) == ({id_of(FIRST)}, None, {})


@pytest.mark.parametrize("version", ["v2.11.0", "2.9.0-abc", "v1.0.0"])
def test_a_kupo_that_is_too_old_is_named(version: str):
    with following(Block(100, [FIRST]), version=version) as (_, followed):
        followed.until(NoVersion(f"is a Kupo {version}, which must be 2.12 or later"))


def test_a_kupo_that_is_built_anew_with_fewer_patterns_is_read_anew():
    """Otherwise the orders of the missing exchange would stay for ever."""
    other = output(SHADOWBOOK, datum(shadowbook()), 5)
    blocks = [Block(100, [FIRST, other]), Block(120)]
    with following(*blocks[:1]) as (kupo, followed):
        assert orders(followed.version(blocks[0].text)) == {id_of(FIRST), id_of(other)}
        kupo.failure = "closed"
        followed.failure()
        kupo.failure, kupo.patterns = "", [f"{SPLASH}/*"]
        kupo.blocks = [Block(100, [FIRST]), Block(120)]
        assert "Shadowbook" in str(followed.showing(FIRST).problem)


def test_a_rollback_reads_only_what_has_changed_and_is_logged_with_both_points(caplog: pytest.LogCaptureFixture):
    blocks = [Block(100 + 20 * number, [output(SPLASH, datum(splash()), 10 + number)]) for number in range(40)]
    other = Block(161, [SECOND], fork="b")
    with following(blocks[0]) as (kupo, followed):
        for count in range(1, 41):
            kupo.blocks = blocks[:count]
            followed.version(blocks[count - 1].text)
        del kupo.requests[:]
        kupo.blocks = [*blocks[:3], other]
        assert len(orders(followed.version(other.text))) == 4
        assert not [request for request in kupo.requests if "unspent" in request]
        assert followed.source.figures["rollbacks"] == 1
    assert [one for one in caplog.messages if "rolled back" in one] == [
        f"{followed.source.name}: rolled back from 880.{blocks[-1].hash}; the last block is 161.{other.hash}"
    ]


def test_a_busy_kupo_is_asked_again():
    with following(block := Block(100, [FIRST]), statuses=[503] * 7) as (kupo, followed):
        version = followed.version(block.text)
        assert (orders(version), version.problem) == ({id_of(FIRST)}, None)
        kupo.statuses, kupo.blocks = [503] * 100, [block, Block(120)]
        assert followed.failure().endswith("must have status 200, got 503")


def test_a_stray_400_of_a_first_read_is_tried_again():
    """Otherwise, the outputs that were spent would be missing, and spots null until a restart."""
    order, how = filled(PAIR, 7, 1)
    for number in range(3):
        statuses = [200] * number + [400]
        with following(block := Block(100, [order], {id_of(order): how}), statuses=statuses) as (_, followed):
            version = followed.version(block.text)
            assert version.index.order_book(PAIR).spot == 7
            assert version.problem is None


def test_a_first_read_goes_on_after_a_failed_request():
    """Otherwise, a Kupo that cuts each tenth response is never read."""
    requests = list[str]()
    kupo = Kupo([block := Block(100, [FIRST])])

    def cut(path: str) -> None:
        if path.startswith("/matches"):
            requests.append(path)
            kupo.statuses = [500] if len(requests) % 10 == 0 else []

    kupo.on_request = cut
    with serving(kupo):
        followed = Followed(lambda now: KupoSource(kupo.url, now=now))
        with closing(followed):
            for _ in range(20):
                try:
                    assert followed.version(block.text).problem is None
                    break
                except FeedError:
                    followed.versions = followed.source.versions(Event())
    whole = [path for path in requests if "spent_before=" in path and "spent_after=0" in path]
    assert len(whole) < 2 * len(EXCHANGES)


def test_a_pair_is_listed_no_longer_than_its_order_that_ended_before_its_block():
    """A clock that is behind its block shows it, although no transaction can fill it."""
    created_at = datetime.fromtimestamp(SLOT_ZEROS["mainnet"] + 100, UTC)
    ends_at = int(created_at.timestamp() * 1000) - 500
    order = output(GENIUSYIELD, datum(geniusyield(end=Constructor(0, (ends_at,)))))
    with following(block := Block(100, [order])) as (_, followed):
        followed.now = created_at - timedelta(seconds=1)
        version = followed.version(block.text)
        assert (orders(version), len(version.index)) == ({id_of(order)}, 1)
        followed.now = created_at
        assert not followed.showing().index


# The time of a block


@pytest.mark.decision(23)
@pytest.mark.parametrize(
    ("network", "slot", "time"),
    [
        ("mainnet", 4_492_800, datetime(2020, 7, 29, 21, 44, 51, tzinfo=UTC)),  # the first slot of Shelley
        ("preprod", 86_400, datetime(2022, 6, 21, tzinfo=UTC)),
        ("preview", 0, datetime(2022, 10, 25, tzinfo=UTC)),
    ],
)
def test_a_version_is_published_at_the_time_of_its_block(network: str, slot: int, time: datetime):
    """Slots and times of the genesis files of the networks. A node that lags is not fresh because it answers."""
    order = output(CARDANOSWAPS, datum(cardanoswaps()), 5)
    order["address"] = address(CARDANOSWAPS, network=int(network == "mainnet"))
    with serving(Kupo([Block(slot, [order])])) as kupo, open_feed(f"kupo:{kupo.url}?network={network}") as feed:
        feed.read()
        assert feed.version is not None
        assert feed.version.index.published_at == time
        (found,) = (feed.version.venue_orders or {}).values()
        assert (found.created_at, found.network) == (time, network)
        assert feed.version.problem is None


def test_an_output_of_another_network_is_a_problem():
    order = output(SPLASH, datum(splash()), 5) | {"address": address(SPLASH, network=0)}
    with following(block := Block(100, [order])) as (kupo, followed):
        problem = followed.version(block.text).problem
        assert problem == f"is another network than mainnet: it has {order['address']}"
        kupo.blocks = [Block(100, [FIRST], fork="b")]
        followed.first(lambda one: one.problem is None)


def test_a_first_read_succeeds_beside_a_new_block_at_every_request():
    created = [output(SPLASH, datum(splash(amount=10**6 + number)), 100 + number) for number in range(400)]
    blocks = [Block(100 + number, [one]) for number, one in enumerate(created)]
    kupo = Kupo(blocks[:50])

    def grow(_: str) -> None:
        kupo.blocks = blocks[: len(kupo.blocks) + 1]

    kupo.on_request = grow
    with serving(kupo):
        followed = Followed(lambda now: KupoSource(kupo.url, now=now))
        with closing(followed):
            version = followed.first(lambda _: True)
    assert version.problem is None
    assert len(orders(version)) == int(str(version.index.as_of).split()[1]) - 99
