"""Keys and values."""

from __future__ import annotations

import re
import tracemalloc
import zlib
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import (
    Freshness,
    InvalidFreshness,
    InvalidOrderBook,
    MarketIndexError,
    OrderBook,
    Pair,
    strategies,
    wire,
)
from market_index_feeds.nats import records as nats_records
from market_index_feeds.nats.bucket import Message
from tests.market_index_feeds.made_up import book, pair

KEY = re.compile(r"[-/_=a-zA-Z0-9][-/_=.a-zA-Z0-9]*[-/_=a-zA-Z0-9]")

LARGE = OrderBook.from_levels(pair(1), bids=[(f"0.{number:06}", number) for number in range(1, 500)])

HEX_POLICY_IDS = st.builds(
    lambda policy_id, upper: "".join(digit.upper() if digit in upper else digit for digit in policy_id.hex()),
    st.binary(min_size=28, max_size=28),
    st.sets(st.sampled_from("abcdef")),
)
HEX_NAMES = st.text("0123456789abcdef", max_size=4)


def message(key: str, value: bytes, headers: Mapping[str, str]) -> Message:
    return Message(key, value, headers, sequence=1, time=0)


class TestRecords:
    """Keys and values."""

    @given(strategies.pairs())
    def test_a_key_is_of_the_alphabet_and_names_its_pair(self, one: Pair):
        key = nats_records.key_of(one)
        assert KEY.fullmatch(key)
        assert nats_records.pair_of(key) == one

    @given(strategies.pairs(), strategies.pairs())
    def test_two_pairs_have_two_keys(self, one: Pair, other: Pair):
        assert (nats_records.key_of(one) == nats_records.key_of(other)) == (one == other)

    @given(st.text(alphabet="AD.-0a/", max_size=70) | st.builds("{}-{}.ADA".format, HEX_POLICY_IDS, HEX_NAMES))
    def test_a_key_that_names_a_pair_is_the_key_of_that_pair(self, key: str):
        named = nats_records.pair_of(key)
        assert named is None or nats_records.key_of(named) == key

    @pytest.mark.parametrize(
        "key", ["ADA.ada", "ADA", "", "x", f"ADA.{'0' * 56}", f"ADA.{'0' * 56}-0", f"ADA.{'A' * 56}-"]
    )
    def test_a_key_of_no_pair_is_recognized(self, key: str):
        assert nats_records.pair_of(key) is None

    @given(one=strategies.order_books())
    def test_a_value_is_the_book_and_no_longer_than_its_text(self, one: OrderBook):
        record = nats_records.record_of(one)
        assert nats_records.book_of(record.key, record.value, record.headers) == one
        text = wire.order_book_to_json(one)
        assert len(record.value) <= len(text)
        # Values of other programs have no digest, and may be deflated.
        for value in (text, zlib.compress(text, 9), record.value):
            assert nats_records.book_of(record.key, value, None) == one

    def test_a_large_book_is_deflated(self):
        value, text = nats_records.record_of(LARGE).value, wire.order_book_to_json(LARGE)
        assert len(value) < len(text) / 3
        assert zlib.decompress(value) == text

    def test_values_of_different_compressors_have_the_same_content(self):
        record, text = nats_records.record_of(LARGE), wire.order_book_to_json(LARGE)
        for value in (record.value, text, zlib.compress(text, 1), zlib.compress(text, 9)):
            assert nats_records.has_content_of(record, message(record.key, value, record.headers))

    def test_the_digest_alone_does_not_show_that_a_message_has_the_content_of_a_record(self):
        record = nats_records.record_of(LARGE)
        other = nats_records.record_of(LARGE.apply(spot="1"))
        for value in (other.value, record.value[:-1], record.value + b"x", b"", b"\x78", b"{}"):
            assert not nats_records.has_content_of(record, message(record.key, value, record.headers))
        assert not nats_records.has_content_of(record, message(record.key, record.value, {}))
        assert not nats_records.has_content_of(record, message(record.key, record.value, other.headers))

    def test_damaged_and_hostile_values_are_rejected(self):
        record = nats_records.record_of(OrderBook.from_levels(pair(1), bids=[(f"0.{n:03}", n) for n in range(1, 50)]))
        other = nats_records.record_of(book(2, 1))
        for value, headers, reason in [
            (zlib.compress(b"{}"), record.headers, "digest must be that of the text"),
            (record.value[:-1], record.headers, "must end where the value ends"),
            (record.value + b"x", record.headers, "must end where the value ends"),
            (b"x" + record.value[1:-9] + b"123456789", record.headers, "must end where the value ends"),
            (record.value[:2] + b"\xff" * 20, record.headers, "cannot be inflated: Error -3"),
            (other.value, other.headers, "the book of the pair of its key"),
            (other.value, None, "the book of the pair of its key"),
        ]:
            with pytest.raises(InvalidOrderBook, match=reason):
                nats_records.book_of(record.key, value, headers)

    @pytest.mark.parametrize("deflate", [bytes, zlib.compress], ids=["plain", "deflated"])
    def test_a_text_above_the_limit_is_rejected(self, deflate: Callable[[bytes], bytes]):
        record = nats_records.record_of(book(1, 1))
        text = wire.order_book_to_json(book(1, 1)).ljust(wire.MAX_ORDER_BOOK_BYTES)
        assert nats_records.book_of(record.key, deflate(text), None) == book(1, 1)
        for longer in (text + b" ", text + b"{" * 10_000):
            with pytest.raises(InvalidOrderBook, match="must have at most 16777216 bytes of JSON, got more"):
                nats_records.book_of(record.key, deflate(longer), None)

    def test_a_small_value_that_inflates_to_much_takes_little_memory(self):
        """65 kB of deflated JSON took 1.8 GB when they were decoded."""
        value = zlib.compress(b"[" + b"[]," * (20 * 1024 * 1024) + b"[]]")
        assert len(value) < 80_000
        tracemalloc.start()
        try:
            with pytest.raises(InvalidOrderBook, match="must have at most 16777216 bytes of JSON"):
                nats_records.book_of(nats_records.key_of(pair(1)), value, None)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 3 * wire.MAX_ORDER_BOOK_BYTES

    @given(st.binary(max_size=200), st.none() | st.just({nats_records.DIGEST_HEADER: "00"}))
    def test_only_errors_of_the_library_are_raised(self, value: bytes, headers: dict[str, str] | None):
        for some in (value, zlib.compress(value)):
            with pytest.raises(MarketIndexError):
                nats_records.book_of("ADA.ADA", some, headers)

    @given(strategies.order_books(), st.binary(min_size=1, max_size=50), st.booleans())
    def test_a_valid_digest_does_not_replace_validation(self, one: OrderBook, garbage: bytes, deflated: bool):
        text = wire.order_book_to_json(one)
        for spoiled in (text + b"{" + garbage, text[:-2] + b"{" + garbage, text.replace(b'"bids":[', b'"bids":[1,')):
            value = zlib.compress(spoiled) if deflated else spoiled
            headers = {nats_records.DIGEST_HEADER: nats_records.digest_of(spoiled)}
            with pytest.raises(MarketIndexError):
                nats_records.book_of(nats_records.key_of(one.pair), value, headers)

    @pytest.mark.parametrize("complete", [None, "2026-11-22T10:00:00.5Z"])
    def test_a_statement_is_read_as_it_was_written(self, complete: str | None):
        statement = nats_records.Statement(Freshness("slot 1"), complete)
        record = nats_records.statement_record(statement)
        assert nats_records.statement_of(record.value, record.headers) == statement
        assert nats_records.statement_of(record.value, None) == nats_records.Statement(Freshness("slot 1"))
        for mark in ("then", "\udcff"):  # the latter is how a client may decode bytes that are not text
            with pytest.raises(InvalidFreshness, match="digest must be that of the text"):
                nats_records.statement_of(record.value, {**record.headers, nats_records.COMPLETE_HEADER: mark})
