"""The ledger through a stand-in for Koios: the same books as through Kupo, limits, and nodes that differ."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import cycle, islice
from threading import Event
from time import time
from typing import Any

import pytest

from market_index import wire
from market_index_feeds import FeedError, open_feed
from market_index_feeds.ledger import KoiosSource, KupoSource, Selection
from market_index_feeds.ledger.entries import SLOT_ZEROS
from market_index_feeds.source import Version
from tests.conftest import RECORDED
from tests.feeds.ledger.datums import GENIUSYIELD, SPLASH, datum, geniusyield, output, splash
from tests.feeds.ledger.following import NOW, Followed
from tests.feeds.ledger.koios_stand_in import Koios, serving_koios
from tests.feeds.ledger.stand_in import Block, Kupo, market_blocks, recorded_blocks, serving

OUTPUTS = [output(SPLASH, datum(splash(amount=5_000_000 - number)), 100 + number) for number in range(9)]


@contextmanager
def following(*blocks: Block, **options: Any) -> Iterator[tuple[Koios, Followed]]:
    with serving_koios(Koios(blocks, **options)) as stand_in:
        followed = Followed(lambda now: KoiosSource(stand_in.url, every=0.01, now=now))
        with closing(followed):
            yield stand_in, followed


def version_of(source: KoiosSource | KupoSource) -> Version:
    with closing(source.versions(Event())) as versions:
        return next(one for one in islice(versions, 1000) if isinstance(one, Version))


def test_the_books_are_those_of_kupo_byte_for_byte():
    """But for spots, which Koios does not prove."""
    for blocks in recorded_blocks(RECORDED / "ledger"), market_blocks(200_000_000):
        with serving(Kupo(blocks)) as kupo, serving_koios(Koios(blocks)) as stand_in:
            ours = version_of(KoiosSource(stand_in.url, now=lambda: NOW))
            theirs = version_of(KupoSource(kupo.url, now=lambda: NOW))
        assert ours.venue_orders is not None
        assert theirs.venue_orders is not None
        assert len(ours.venue_orders) > 20
        assert ours.venue_orders.keys() == theirs.venue_orders.keys()
        for key, order in ours.venue_orders.items():
            other = theirs.venue_orders[key]
            assert (order.order, order.fees, order.created_at) == (other.order, other.fees, other.created_at)
        assert ours.index.published_at == theirs.index.published_at
        for pair in ours.index:
            shown = [wire.order_book_to_json(one.index.order_book(pair).apply(spot=None)) for one in (ours, theirs)]
            assert shown[0] == shown[1]


@pytest.mark.decision(39)
def test_pages_are_read_to_their_end(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO), following(Block(100, OUTPUTS), max_rows=4) as (stand_in, followed):
        version = followed.showing(*OUTPUTS[:9])
        pages = [target for target, _ in stand_in.requests if "offset" in target]
        assert [target.rpartition("offset=")[2] for target in pages][:3] == ["0", "4", "8"]
        assert {one.spot for one in version.index.values()} == {None}
    assert len([one for one in caplog.messages if "knows no executions" in one]) == 1


@pytest.mark.decision(39)
def test_a_version_starts_two_blocks_later_and_reads_only_what_is_new():
    blocks = [Block(100, OUTPUTS[:7]), *(Block(100 + number) for number in range(1, 20))]
    with following(*blocks) as (stand_in, followed):
        followed.showing(*OUTPUTS[:7])
        last = Block(130, OUTPUTS[7:8], {f"{OUTPUTS[0]['transaction_id']}#0": {"transaction_id": "f" * 64}})
        stand_in.blocks = [*blocks, last]
        del stand_in.requests[:]
        for _ in range(3):
            assert len(next(followed.versions).venue_orders or ()) == 7  # type: ignore[union-attr]  # a version
        assert {target for target, _ in stand_in.requests} == {"/tip"}
        stand_in.blocks = [*blocks, last, Block(140, OUTPUTS[8:9])]
        followed.showing(*OUTPUTS[1:9])
        queries = [target for target, _ in stand_in.requests if "select" in target]
        assert [("address" in one, "block_height=gt.9" in one) for one in queries[:2]] == [(False, False), (True, True)]


@pytest.mark.decision(39)
@pytest.mark.parametrize("fault", ["lost", "doubled"])
def test_a_page_that_loses_or_repeats_a_row_is_no_version(fault: str):
    faults = 3

    def on_page(rows: list[Any], offset: int) -> list[Any]:
        nonlocal faults
        if offset and faults:
            faults -= 1
            return rows[1:] if fault == "lost" else [first[0], *rows[1:]]
        first[:] = rows
        return rows

    first: list[Any] = []
    with following(Block(100, OUTPUTS), max_rows=4, on_page=on_page) as (_, followed):
        found = followed.first(lambda _: True)
        assert len(found.venue_orders or ()) == 9
        assert faults == 0


@pytest.mark.decision(39)
def test_nodes_that_lag_show_nothing_older():
    """Each response may come from a node that is one block behind."""
    blocks = [Block(100 + number, OUTPUTS[number : number + 1]) for number in range(9)]
    with following(*blocks[:3]) as (stand_in, followed):
        followed.showing(*OUTPUTS[:3])
        stand_in.lags = cycle([0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0])
        counts = []
        for end in range(4, 10):
            stand_in.blocks = blocks[:end]
            for found in islice(followed.versions, 60):
                if isinstance(found, Version):
                    counts.append(len(found.venue_orders or ()))
        assert counts == sorted(counts)
        assert counts[-1] >= 8


def test_a_limit_is_waited_for():
    failures = [(429, {"Retry-After": "0"}), (504, {}), (429, {}), (502, {})]
    with following(Block(100, OUTPUTS), failures=failures) as (stand_in, followed):
        followed.showing(*OUTPUTS[:9])
        assert not stand_in.failures
        stand_in.failures = [(429, {"Retry-After": "600"})]
        waiting = followed.first(lambda one: one.problem is not None)
        assert waiting.problem == "cannot be read: response to /tip must have status 200, got 429; waiting"


def test_a_page_of_html_is_no_version_and_the_last_books_stay():
    with following(Block(100, OUTPUTS)) as (stand_in, followed):
        followed.showing(*OUTPUTS[:9])
        stand_in.failures = [(200, {})] * 1000
        found = followed.first(lambda one: one.problem is not None)
        assert "a response is not valid" in str(found.problem)
        assert len(found.venue_orders or ()) == 9


def test_datums_by_hash_are_asked_for_in_bodies_of_a_kilobyte():
    by_hash = [
        output(GENIUSYIELD, datum(geniusyield(amount=5_000_000 - number)), 500 + number) | {"datum_type": "hash"}
        for number in range(40)
    ]
    with following(Block(100, by_hash)) as (stand_in, followed):
        version = followed.showing(*by_hash)
        asked = [body["_datum_hashes"] for target, body in stand_in.requests if target == "/datum_info"]
        assert [len(one) for one in asked] == [14, 14, 12]
        assert not any(one.output.is_inline for one in (version.venue_orders or {}).values())


def test_an_unknown_datum_is_not_asked_for_at_each_reading(monkeypatch: pytest.MonkeyPatch):
    """So outputs of strangers cannot take the requests of a day."""
    unknown = output(GENIUSYIELD, datum(geniusyield()), 500) | {"datum_type": "hash"}
    blocks = [Block(100 + number, [unknown] if number == 0 else []) for number in range(40)]
    with following(Block(99, OUTPUTS), *blocks[:1]) as (stand_in, followed):
        monkeypatch.setattr(Koios, "datums", lambda *_: [])
        counts = list[int]()
        for end in (20, 40):
            stand_in.blocks = [Block(99, OUTPUTS), *blocks[:end]]
            text = stand_in.blocks[-1].text
            followed.version(text)
            counts.append(sum(target == "/datum_info" for target, _ in stand_in.requests))
    assert counts == [1, 1]


def test_the_default_is_the_public_koios_of_the_network():
    assert KoiosSource().name == "koios:https://api.koios.rest/api/v1"
    assert KoiosSource("", Selection(network="preprod")).name == "koios:https://preprod.koios.rest/api/v1"
    with open_feed("koios:?every=60&venues=splash", headers={"Authorization": "Bearer x"}) as feed:
        assert feed.name == "koios:https://api.koios.rest/api/v1"
    with pytest.raises(FeedError, match="every must be a number of seconds, 1 or more"):
        open_feed("koios:?every=0")


def test_an_old_tip_is_old():
    slot = int(time()) - SLOT_ZEROS["mainnet"] - 86_400
    with serving_koios(Koios([Block(slot, OUTPUTS)])) as stand_in, open_feed(f"koios:{stand_in.url}") as feed:
        feed.read()
        assert feed.version is not None
        assert feed.version.index.published_at == datetime.fromtimestamp(slot + SLOT_ZEROS["mainnet"], UTC)
