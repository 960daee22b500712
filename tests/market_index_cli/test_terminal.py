"""The text output: complete, exact, and on lines that no name can break. The page has the same numbers: page/."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest
from click import unstyle
from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId, Freshness, InvalidOrderBook, OrderBook, Pair, Side, strategies
from market_index.display import Token, Tokens
from market_index_cli import terminal, tokens
from market_index_cli.tokens import Display

PLAIN = Display()
TOKEN = AssetId(bytes(28), b"SNEK")


def number(text: str) -> Decimal:
    return Decimal(text.replace(",", ""))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("大 two".encode(), "大 two"),
        (bytes.fromhex("000de140") + b"NFT", "(222)NFT"),
        (bytes.fromhex("000de140"), "00000000…:000de140"),
        (b"", "00000000…:"),
        (b"SNEK ", "00000000…:534e454…"),
        (b"\x1b[31m", "00000000…:1b5b333…"),
        (b"\xff", "00000000…:ff"),
        ("SNE\u200bK".encode(), "00000000…:534e45e…"),
    ],
)
def test_a_name_is_shown_if_all_its_characters_are_shown(name: bytes, shown: str):
    assert tokens.ticker(AssetId(bytes(28), name)) == shown


@given(strategies.asset_ids())
def test_a_short_identifier_has_the_first_digits_of_the_whole_one(asset: AssetId):
    short = tokens.shortened(asset)
    assert len(short) <= 18
    if not asset.is_ada:
        policy_id, name = short.split("…:")
        assert str(asset).startswith(policy_id)
        assert asset.asset_name.hex().startswith(name.rstrip("…"))


@given(st.lists(strategies.order_books(), max_size=4), st.integers(0, 200))
def test_a_table_has_one_row_per_book_and_every_exact_price(books: list[OrderBook], columns: int):
    headings, *rows = terminal.pair_rows(books, PLAIN)
    assert headings[0] == "pair"
    for row, book in zip(rows, books, strict=True):
        assert "".join(row).isprintable()
        _, spot, bid, ask, spread, bids, asks, base, quote = row
        assert (base, quote) == (str(book.pair.base), str(book.pair.quote))
        assert (int(bids), int(asks)) == (len(book.bids), len(book.asks))
        values = (book.spot, book.best_bid and book.best_bid.price, book.best_ask and book.best_ask.price, book.spread)
        assert [None if cell == "-" else Decimal(cell) for cell in (spot, bid, ask, spread)] == list(values)
        assert "E" not in spot + bid + ask + spread
    lines = [unstyle(line) for line in terminal.pair_table(books, PLAIN, columns)]
    assert lines.pop() == "A pipe has whole identifiers: market-index pairs FEED | cat"
    if any(book.is_crossed or book.is_locked for book in books):
        assert lines.pop() == "In yellow, with a spread of zero or less: locked or crossed."
    assert len(lines) == 1 + len(books)
    # As many columns as there is room for, but always the pair, its spot and its best prices.
    assert "best ask" in lines[0]
    assert max(map(len, lines)) <= columns or "spread" not in lines[0]
    wide = [unstyle(line) for line in terminal.pair_table(books, PLAIN, 1000)][: len(lines)]
    assert all(one.startswith(line.split("  ")[0]) for one, line in zip(wide, lines, strict=True))


@given(strategies.order_books(), st.integers(0, 9), st.integers(0, 120))
def test_a_ladder_has_the_asks_above_the_bids_and_every_exact_amount(book: OrderBook, depth: int, columns: int):
    rows = [unstyle(row) for row in terminal.ladder(book, depth, PLAIN, columns)]
    assert all(row.isprintable() for row in rows)
    rungs = [row.split() for row in rows if row.startswith(("ask ", "bid "))]
    shown = book.depth(depth)
    expected = [("ask", level) for level in reversed(shown.asks)] + [("bid", level) for level in shown.bids]
    assert [(side, number(price), int(number(amount))) for side, price, amount, *_ in rungs] == [
        (side, level.price, level.accumulated_liquidity) for side, level in expected
    ]
    totals = {side: book.cumulative(side) for side in Side}
    sums = [*reversed(totals[Side.ASK][:depth]), *totals[Side.BID][:depth]]
    assert [number(total) for _, _, _, _, total, _ in rungs] == [one.quote for one in sums]
    assert [Fraction(number(value)) for _, _, _, value, _, _ in rungs] == [
        Fraction(level.price) * level.accumulated_liquidity for _, level in expected
    ]
    lengths = {len(row) - len(row.split()[-1]) for row in rows if row.startswith(("ask ", "bid "))}
    assert len(lengths) <= 1, "the bars begin in one column"
    bars = [(number(value), len(bar)) for _, _, _, value, _, bar in rungs]
    assert all(length >= 1 for _, length in bars)
    assert [length for _, length in sorted(bars)] == sorted(length for _, length in bars)
    hidden = [row for row in rows if row.startswith("...")]
    assert sum(int(row.split()[1]) for row in hidden) == len(book.bids) + len(book.asks) - len(rungs)
    assert [*terminal.ladder_rows(shown, PLAIN)][1:] == [(side, price, amount) for side, price, amount, *_ in rungs]


@given(strategies.order_books())
def test_a_terminal_groups_a_book_by_the_rules_of_the_library(book: OrderBook):
    best = (book.bids or book.asks or (None,))[0]
    try:
        expected = (
            book if best is None else book.grouped(max(Decimal(1).scaleb(best.price.adjusted() - 5), Decimal("1e-28")))
        )
    except InvalidOrderBook:
        expected = book
    assert Display(is_exact=False).grouped(book) == expected
    assert Display(is_exact=True).grouped(book) is book


def test_a_terminal_shows_six_digits_and_a_pipe_every_digit():
    tokens = Tokens([Token(TOKEN, "X", decimals=0)])
    book = OrderBook.from_levels(
        Pair(TOKEN, ADA),
        bids=[("1.2499934917464313811661290187", 499_381), ("1.24999", 1_000_000)],
        asks=[("1.2599931", 5), ("1234567890.1234", 1)],
        spot="1.25123456789",
    )
    display = Display(tokens, is_exact=False)
    rows = [unstyle(row) for row in terminal.ladder(book, 9, display, 100)]
    assert [re.split("  +", row) for row in rows if row.startswith(("ask", "bid"))] == [
        ["ask", "1,234.5679", "1", "1,234.57", "1,234.57", "█" * 34],
        ["ask", "0.00000126", "5", "0.00000629997", "0.00000629997", "█"],
        ["bid", "0.00000124999", "1.49938 M", "1.87421", "1.87421", "█"],
    ]
    assert rows[-2] == "---  spread 0.00000000999961, 0.797 %  mid 0.00000125499  spot 0.00000125123"
    *_, bid, _ = terminal.ladder_rows(book, Display(tokens))
    assert bid == ("bid", "0.0000012499934917464313811661290187", "499381")
    _, row = terminal.pair_rows([book], display)
    assert row[1:5] == ("0.00000125123", "0.00000124999", "0.00000126", "0.00000000999961")


def test_a_best_price_has_six_digits_however_far_it_is_from_the_other_one():
    """Orders of the ledger cross: a step of the best bid would show a tiny ask as another price."""
    book = OrderBook.from_levels(Pair(TOKEN, ADA), bids=[("5.1234567", 1)], asks=[("7.654321e-19", 1)])
    _, row = terminal.pair_rows([book], Display(is_exact=False))
    assert row[2:4] == ("5.12345", "7.65433×10⁻¹⁹")


def test_crossed_and_locked_books_are_labelled_and_coloured():
    books = [
        OrderBook.from_levels(Pair(TOKEN, ADA), bids=[(bid, 1)], asks=[(ask, 1)]) for bid, ask in ("21", "22", "12")
    ]
    middles = [next(unstyle(row) for row in terminal.ladder(one, 9, PLAIN, 100) if "spread" in row) for one in books]
    assert middles == [
        "---  spread -1, -66.7 % (crossed)  mid 1.5  spot -",
        "---  spread 0, 0 % (locked)  mid 2  spot -",
        "---  spread 1, 66.7 %  mid 1.5  spot -",
    ]
    _, *rows, legend, _ = terminal.pair_table(books, PLAIN, 400)
    assert "In yellow, with a spread of zero or less: locked or crossed." in legend
    assert ["\x1b[33m" in row for row in rows] == [True, True, False]


def test_wide_characters_and_accents_are_aligned():
    pairs = [Pair(AssetId(bytes(28), name.encode()), ADA) for name in ("大小", "e\u0301", "SNEK")]
    _, *rows, _ = terminal.pair_table([OrderBook(pair) for pair in pairs], PLAIN, 0)
    assert [row.split("  -")[0] for row in rows] == ["大小/ADA   ", "e\u0301/ADA      ", "SNEK/ADA   "]


def test_known_freshness_is_shown():
    assert list(terminal.freshness_lines(Freshness())) == []
    freshness = Freshness("slot 145000000", datetime(2026, 11, 22, 4, 17, 3, 987654, tzinfo=UTC))
    shown = [unstyle(line) for line in terminal.freshness_lines(freshness)]
    assert shown == ["as of slot 145000000", "published at 2026-11-22 04:17:03 UTC"]


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
    rows = [unstyle(row) for row in terminal.ladder(book, 1, display, 100)]
    assert (rows[0], rows[3]) == ("X 00000000/ADA", units)
    shown = ("0.025", "12345.67") if decimals else ("0.00025", "1234567")
    assert all(text in rows[-1].split() for text in shown)


def test_a_name_from_right_to_left_is_isolated_and_a_token_without_decimals_is_marked():
    hebrew, unknown = AssetId(bytes(28), "שקל".encode()), AssetId(bytes(28), b"NEW")
    display = Display(Tokens([Token(hebrew, "שקל", decimals=2), Token(unknown, "NEW")]), is_exact=False)
    books = [OrderBook.from_levels(Pair(ADA, one), bids=[("1", 1)], asks=[("2", 1)]) for one in (hebrew, unknown)]
    _, second, third, *notes = [unstyle(line) for line in terminal.pair_table(books, display, 80)]
    assert second.startswith("ADA/\u2068שקל 00000000\u2069  ")
    assert third.startswith("ADA/NEW 00000000*  ")
    assert notes[0] == "* in smallest units: the decimals are not known"
    assert len(second) == len(third) + 2, "the isolates have no width"
