"""The text output: complete, exact, and on lines that no name can break. The page has the same prices: page/."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId, Freshness, OrderBook, Pair, strategies
from market_index.display import Token, Tokens
from market_index_cli import terminal
from market_index_cli.tokens import Display, ticker

PLAIN = Display()
TOKEN = AssetId(bytes(28), b"SNEK")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("大 two".encode(), "大 two"),
        (bytes.fromhex("000de140") + b"NFT", "(222)NFT"),
        (bytes.fromhex("000de140"), "00000000…:000de140"),
        (b"", "00000000…:"),
        (b"SNEK ", "00000000…:534e454…"),
        (b"\x1b[31m", "00000000…:1b5b333…"),
        ("SNE\u200bK".encode(), "00000000…:534e45e…"),
    ],
)
def test_a_name_is_shown_if_all_its_characters_are_shown(name: bytes, shown: str):
    assert ticker(AssetId(bytes(28), name)) == shown


@given(st.lists(strategies.order_books(), max_size=4))
def test_a_table_has_one_row_per_book_and_every_exact_price(books: list[OrderBook]):
    headings, *rows = terminal.pair_rows(books, PLAIN)
    assert headings[0] == "pair"
    for row, book in zip(rows, books, strict=True):
        assert "".join(row).isprintable()
        name, spot, bid, ask, spread, bids, asks, base, quote = row
        assert name == PLAIN.pair_name(book.pair)
        assert (base, quote) == (str(book.pair.base), str(book.pair.quote))
        assert (int(bids), int(asks)) == (len(book.bids), len(book.asks))
        values = (book.spot, book.best_bid and book.best_bid.price, book.best_ask and book.best_ask.price, book.spread)
        assert [None if cell == "-" else Decimal(cell) for cell in (spot, bid, ask, spread)] == list(values)
        assert "E" not in spot + bid + ask + spread
    lines = [*terminal.pair_table(books, PLAIN)]
    assert lines.pop() == "A pipe has whole identifiers: market-index pairs FEED | cat"
    assert [re.split("  +", line.strip(), maxsplit=6) for line in lines] == [
        [*row[1:7], row[0]] for row in (headings, *rows)
    ]


@given(strategies.order_books(), st.integers(0, 9))
def test_a_ladder_has_the_asks_above_the_bids_and_every_exact_amount(book: OrderBook, depth: int):
    rows = [*terminal.ladder(book, depth, PLAIN)]
    assert all(row.isprintable() for row in rows)
    levels = [row.split() for row in rows if row.startswith(("ask ", "bid "))]
    shown = book.depth(depth)
    expected = [("ask", level) for level in reversed(shown.asks)] + [("bid", level) for level in shown.bids]
    assert [(side, Decimal(price), int(amount)) for side, price, amount in levels] == [
        (side, level.price, level.accumulated_liquidity) for side, level in expected
    ]
    hidden = [row for row in rows if row.startswith("...")]
    assert sum(int(row.split()[1]) for row in hidden) == len(book.bids) + len(book.asks) - len(levels)
    assert [*terminal.ladder_rows(shown, PLAIN)][1:] == [tuple(level) for level in levels]


def test_a_terminal_shows_six_digits_and_a_pipe_every_digit():
    tokens = Tokens([Token(TOKEN, "X", decimals=0)])
    book = OrderBook.from_levels(
        Pair(TOKEN, ADA),
        bids=[("1.2499934917464313811661290187", 499_381), ("1.2", 1_000_000)],
        asks=[("1.2599931", 5), ("1234567890.1234", 2**64 - 1)],
        spot="1.25123456789",
    )
    display = Display(tokens, is_exact=False)
    *_, far, near, middle, best, last = terminal.ladder(book, 9, display)
    # The decimal points of the prices are in one column.
    assert [far, near] == [
        "ask   1,234.5679            1.84467×10¹⁹",
        "ask       0.0000012599931              5",
    ]
    assert middle == "---  spread 0.00000000999961  mid 0.00000125499  spot 0.00000125123"
    assert [best, last] == [
        "bid       0.00000124999349       499,381",
        "bid       0.0000012            1,000,000",
    ]
    *_, bid, _ = terminal.ladder_rows(book, Display(tokens))
    assert bid == ("bid", "0.0000012499934917464313811661290187", "499381")
    _, row = terminal.pair_rows([book], display)
    assert row[1:5] == ("0.00000125123", "0.00000124999", "0.00000126", "0.00000000999961")


def test_crossed_and_locked_books_are_labelled():
    books = [
        OrderBook.from_levels(Pair(TOKEN, ADA), bids=[(bid, 1)], asks=[(ask, 1)]) for bid, ask in ("21", "22", "12")
    ]
    middles = [next(row for row in terminal.ladder(one, 9, PLAIN) if "spread" in row) for one in books]
    assert middles == [
        "---  spread -1 (crossed)  mid 1.5  spot -",
        "---  spread 0 (locked)  mid 2  spot -",
        "---  spread 1  mid 1.5  spot -",
    ]


def test_known_freshness_is_shown():
    assert list(terminal.freshness_lines(Freshness())) == []
    freshness = Freshness("slot 145000000", datetime(2026, 11, 22, 4, 17, 3, 987654, tzinfo=UTC))
    assert [*terminal.freshness_lines(freshness)] == ["as of slot 145000000", "published at 2026-11-22 04:17:03 UTC"]


@pytest.mark.parametrize(
    ("decimals", "units"),
    [
        (2, "in whole units"),
        (None, "in whole units, but in smallest units of X 00000000, whose decimals are not known"),
    ],
)
def test_with_a_registry_a_ladder_says_its_units(decimals: int | None, units: str):
    display = Display(Tokens([Token(TOKEN, "X", decimals=decimals)]))
    book = OrderBook.from_levels(Pair(TOKEN, ADA), bids=[("250", 1_234_567)])
    rows = [*terminal.ladder(book, 1, display)]
    assert (rows[0], rows[3]) == ("X 00000000/ADA", units)
    assert rows[-1].split() == ["bid", *(("0.025", "12345.67") if decimals else ("0.00025", "1234567"))]


def test_a_name_from_right_to_left_is_isolated_and_a_token_without_decimals_is_marked():
    hebrew, unknown = AssetId(bytes(28), "שקל".encode()), AssetId(bytes(28), b"NEW")
    display = Display(Tokens([Token(hebrew, "שקל", decimals=2), Token(unknown, "NEW")]), is_exact=False)
    books = [OrderBook.from_levels(Pair(ADA, one), bids=[("1", 1)], asks=[("2", 1)]) for one in (hebrew, unknown)]
    _, second, third, *notes = terminal.pair_table(books, display)
    assert second.endswith("  ADA/\u2068שקל 00000000\u2069")
    assert third.endswith("  ADA/NEW 00000000*")
    assert notes[0] == "* in smallest units: the decimals are not known"
