"""The HTML that notebooks show: small, escaped, well-formed, and without colours of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import ADA, AssetId, Levels, MarketIndex, OrderBook, Pair, Side
from market_index import strategies as drawn
from market_index.display import Token, Tokens, table

PAIR = Pair(AssetId(bytes(28), b"SNEK"), ADA)
LARGEST = "79228162514264337593543950335"


def rows(value: Any) -> list[list[str]]:
    """Return the text of the cells of the HTML, which must be well-formed."""
    tree = ET.fromstring(f"<body>{value._repr_html_().replace('<br>', '<br/>')}</body>")
    return [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]


def title(value: Any) -> str:
    tree = ET.fromstring(f"<body>{value._repr_html_().replace('<br>', '<br/>')}</body>")
    return "".join(tree[0].itertext())


def deep(count: int) -> OrderBook:
    levels = [(f"0.{number:027}1", 2**64 - 1) for number in range(1, count + 1)]
    return OrderBook.from_levels(PAIR, levels, levels, LARGEST)


def test_a_book_is_a_ladder_of_its_best_levels():
    book = OrderBook.from_levels(PAIR, bids=[("0.0000001", 7), ("2", 9)], asks=[("3", 5)], spot="2.5")
    assert title(book) == f"{PAIR.base} (SNEK) / ADAspot 2.5, spread 1, mid 2.5; 2 bids, 1 asks"
    assert rows(book) == [
        ["amount", "bid", "ask", "amount"],
        ["9", "2", "3", "5"],
        ["7", "0.0000001", "-", "-"],
    ]


@pytest.mark.parametrize(("ask", "word"), [("2", "spread 0 (locked)"), ("1.5", "spread -0.5 (crossed)")])
def test_a_book_that_is_locked_or_crossed_says_so(ask: str, word: str):
    assert word in title(OrderBook.from_levels(PAIR, [("2", 1)], [(ask, 1)]))


def test_an_empty_book_has_no_rows():
    assert rows(OrderBook(PAIR)) == [["amount", "bid", "ask", "amount"]]
    assert "spot -, spread -, mid -; 0 bids, 0 asks" in title(OrderBook(PAIR))


def test_levels_are_rows():
    assert rows(deep(1).bids) == [["price", "amount"], ["0." + "0" * 26 + "11", str(2**64 - 1)]]
    assert title(Levels(Side.BID)) == "0 bids"


def test_an_index_shows_pairs_prices_and_freshness():
    book = OrderBook.from_levels(PAIR, [("2", 1)], spot="2.5")
    index = MarketIndex([book, OrderBook(Pair(ADA, PAIR.base))], "slot <7>", datetime(2026, 1, 2, tzinfo=UTC))
    assert title(index) == "2 pairs, as of slot <7>, published at 2026-01-02 00:00:00+00:00"
    token = f"{PAIR.base} (SNEK)"
    assert rows(index) == [
        ["base", "quote", "spot", "best bid", "best ask"],
        ["ADA", token, "-", "-", "-"],
        [token, "ADA", "2.5", "2", "-"],
    ]


@pytest.mark.parametrize("wrong", [None, 7, "ADA", ADA, PAIR, [PAIR], {}])
def test_other_values_have_no_table(wrong: Any):
    with pytest.raises(TypeError, match=r"^value must be one that has a table"):
        table(wrong)


class TestHumanUnits:
    """`table` with tokens."""

    TOKENS = Tokens([Token(PAIR.base, "<i>", "Snek", 1)])
    NAME = "<i> 00000000"
    BOOK = OrderBook.from_levels(PAIR, [("2000", 15)], [("4100.5", 7), ("5000", 10)], "3000")

    def test_a_book_has_labels_and_whole_units(self):
        shown = table(self.BOOK, self.TOKENS)
        assert title(shown) == (
            f"{self.NAME} / ADAspot 0.03, spread 0.021005, mid 0.0305025; 1 bids, 2 asksin whole units"
        )
        assert rows(shown) == [
            ["amount", "bid", "ask", "amount"],
            ["1.5", "0.02", "0.041005", "0.7"],
            ["-", "-", "0.05", "1"],
        ]

    def test_levels_need_their_pair(self):
        shown = table(self.BOOK.asks, self.TOKENS, PAIR)
        assert rows(shown)[1:] == [["0.041005", "0.7"], ["0.05", "1"]]
        assert title(shown) == f"{title(self.BOOK.asks)}in whole units"
        wrong: list[tuple[list[Any], str]] = [
            ([self.TOKENS], "pair must be given with tokens, because the value does not name its pair"),
            ([self.TOKENS, 5], "pair must be a Pair, got int: 5"),
            (["SNEK", PAIR], "tokens must be a Tokens, got str: 'SNEK'"),
        ]
        for arguments, rule in wrong:
            with pytest.raises(TypeError, match=f"^{rule}$"):
                table(self.BOOK.asks, *arguments)

    def test_each_row_of_an_index_has_the_units_of_its_pair(self):
        unknown = AssetId(bytes(28), b"X")
        index = MarketIndex([self.BOOK, OrderBook(Pair(PAIR.base, unknown), spot="7"), OrderBook(Pair(ADA, PAIR.base))])
        shown = table(index, self.TOKENS)
        assert table(index, self.TOKENS, PAIR) == shown  # each row has its own pair
        assert [row[:3] for row in rows(shown)[1:]] == [
            ["ADA", self.NAME, "-"],
            [self.NAME, "ADA", "0.03"],
            [self.NAME, "X 00000000", "70"],
        ]
        assert title(shown).endswith(
            "in whole units, but in smallest units of X 00000000, whose decimals are not known"
        )

    @pytest.mark.decision(29)
    def test_a_label_shows_the_identifier_under_the_pointer(self):
        shown = table(self.BOOK, self.TOKENS)
        assert f'<bdi title="{PAIR.base}">&lt;i&gt; 00000000</bdi>' in shown.html


LARGE = [
    deep(5_000),
    deep(5_000).asks,
    MarketIndex(
        [OrderBook(Pair(AssetId(number.to_bytes(28), b"<" * 32), PAIR.base)) for number in range(1, 5_000)], "<" * 200
    ),
]


@pytest.mark.parametrize("value", LARGE, ids=lambda value: type(value).__name__)
def test_a_large_value_is_small_html(value: Any):
    shown = value._repr_html_()
    assert len(shown) < 20_000
    assert len(rows(value)) == 11
    assert f"… {len(value if not isinstance(value, OrderBook) else value.bids) - 10:,} more" in shown


@settings(max_examples=settings().max_examples // 4)
@given(
    st.one_of(
        drawn.order_books(max_levels=3),
        drawn.levels(),
        drawn.market_indexes(),
    )
)
def test_any_value_is_well_formed_and_has_no_colours(value: Any):
    cells = rows(value)
    assert len({len(row) for row in cells}) <= 1
    assert not any(word in value._repr_html_() for word in ("color", "background", "style", "<script"))
