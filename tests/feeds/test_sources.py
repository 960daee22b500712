"""Names of feeds: their options, and the sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from market_index import ADA, LiveIndex, OrderBook, wire
from market_index_feeds import FeedError, StoreError, open_feed, open_store, replay
from tests.command import SAMPLE
from tests.feeds.event_lines import RESET, block, place, rollback
from tests.feeds.made_up import pair as made_up_pair
from tests.feeds.made_up import spots

RECORDED = b'{"as_of":null,"recorded_at":"2026-11-22T00:00:00Z"}\n'


def line(number: int, spot: str) -> bytes:
    return wire.order_book_to_json(OrderBook(made_up_pair(number), spot=spot)) + b"\n"


NUMBER = "speed must be a number above 0, got "
BLOCKS = "history must be a number of blocks, 0 or more, got "


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("replay:FILE?speed=0", f"{NUMBER}'0'"),
        ("replay:FILE?speed=-1", f"{NUMBER}'-1'"),
        ("replay:FILE?speed=inf", f"{NUMBER}'inf'"),
        ("replay:FILE?speed=nan", f"{NUMBER}'nan'"),
        ("replay:FILE?speed=fast&loop", f"{NUMBER}'fast'"),
        ("replay:FILE?speed", f"{NUMBER}''"),
        ("replay:FILE?loop=yes", "loop must have no value, got 'yes'"),
        ("replay:FILE?loop&speed=1&loop", "option loop must be given once"),
        ("replay:FILE?history=1", "an option, after '?', must be speed or loop, got 'history'"),
        ("replay:FILE?loop&", "an option, after '?', must be speed or loop, got ''"),
        ("orders:FILE?history=-1", f"{BLOCKS}'-1'"),
        ("orders:FILE?history=1.0", f"{BLOCKS}'1.0'"),
        ("orders:-?history=", f"{BLOCKS}''"),
        ("orders:FILE?loop", "an option, after '?', must be history, got 'loop'"),
    ],
)
def test_an_unknown_or_invalid_option_is_named(name: str, message: str):
    with pytest.raises(FeedError) as raised:
        open_feed(name)
    assert str(raised.value).startswith(f"{name} cannot be opened: {message}")


def test_a_path_that_contains_a_question_mark_is_followed_by_another_one(tmp_path: Path):
    path = tmp_path / "odd?name"
    path.write_bytes(line(1, "1") + RECORDED)
    assert spots(open_feed(f"replay:{path}?").read()) == {1: "1"}
    with open_feed(f"replay:{path}?loop&speed=1000") as feed:
        assert feed.is_endless
    with pytest.raises(FeedError, match=r"got 'name' \(a path that contains '\?' must be followed by another '\?'\)$"):
        open_feed(f"replay:{path}")
    # Other feeds have no options.
    assert spots(open_feed(path).read()) == {1: "1"}


def test_a_loop_is_read_up_to_its_first_content(tmp_path: Path):
    path = tmp_path / "recording.ndjson"
    path.write_bytes(line(1, "1") + RECORDED + line(1, "2") + RECORDED)
    assert spots(open_feed(f"replay:{path}?loop").read()) == {1: "1"}


def test_the_history_is_how_far_back_a_rollback_may_go(tmp_path: Path):
    path = tmp_path / "events.ndjson"
    path.write_bytes(RESET + place("a") + block("1") + place("c") + block("2") + rollback("1"))
    for options in ("", "?history=1"):
        assert open_feed(f"orders:{path}{options}").read().as_of == "1"
    with pytest.raises(FeedError, match="block '1' must be retained for a rollback to it"):
        open_feed(f"orders:{path}?history=0").read()


def test_the_sample_has_all_its_pairs_and_changes_most_of_them_in_a_loop():
    live = LiveIndex()
    sample = open_feed("sample:").read()
    assert sample.keys() == open_feed(SAMPLE).read().keys()
    with open_feed("sample:") as feed:
        assert (feed.source, feed.is_endless, feed.is_stream) == ("sample:", True, True)
        feed.start(live)
        assert live.current == sample
        assert live.wait(after=live.current).changes_since(sample)[0]
    indexes = [index for _, index in replay("sample:")]
    assert {index.keys() == sample.keys() for index in indexes} == {True}
    changed = {pair for index in indexes for pair in index if index[pair] != sample[pair]}
    assert len(changed) == 9
    # The page shows the first pair of these: it changes, and is never crossed.
    pair = next(pair for pair, book in sample.items() if book.bids and book.asks and not book.is_crossed)
    assert (pair.base, pair in changed) == (ADA, True)
    assert not any(index[pair].is_crossed or index[pair].is_locked for index in indexes)


def test_the_sample_is_no_store():
    with pytest.raises(StoreError, match="or a bucket, got the sample: 'sample:'"):
        open_store("sample:")
