"""The strategies reach edge cases: bounds, empty and crossed books, and each kind of invalid text."""

from __future__ import annotations

import typing
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

import market_index
from market_index import ADA, AssetId, OrderBook, Pair, parse_price, strategies

SNEK = AssetId(bytes(28), b"SNEK")
PAIR = Pair(SNEK, ADA)
LARGEST = 2**96 - 1
THOROUGH = pytest.mark.thorough

WITHOUT_SHRINKING = settings(
    database=None,
    max_examples=10_000,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


def reached(strategy: st.SearchStrategy[typing.Any], corner: typing.Callable[[typing.Any], bool]) -> typing.Any:
    """Return a value in the corner; fail if there is none among 10,000."""
    return find(strategy, corner, settings=WITHOUT_SHRINKING)


def counted(strategy: st.SearchStrategy[typing.Any], corner: typing.Callable[[typing.Any], bool], *, of: int) -> int:
    """Return how many of the first examples are in the corner."""
    found: list[bool] = []

    @settings(WITHOUT_SHRINKING, max_examples=of, derandomize=True)
    @given(strategy)
    def count(value: typing.Any) -> None:
        found.append(bool(corner(value)))

    count()
    return sum(found)


class TestCorners:
    """The strategies reach edge cases."""

    @pytest.mark.parametrize(
        "corner",
        [
            pytest.param(lambda asset: asset.is_ada, id="ADA"),
            pytest.param(lambda asset: not asset.is_ada and asset.asset_name == b"", id="empty name"),
            pytest.param(lambda asset: len(asset.asset_name) == 32, id="longest name"),
            pytest.param(lambda asset: asset.asset_name_label is not None, id="label"),
            pytest.param(lambda asset: asset.asset_name_text is None, id="no text"),
            pytest.param(lambda asset: len(set(asset.policy_id)) > 20, id="any policy id"),
        ],
    )
    def test_of_assets(self, corner):
        reached(strategies.asset_ids(), corner)

    @pytest.mark.parametrize(
        "corner",
        [
            pytest.param(lambda price: price == Decimal("1e-28"), id="smallest"),
            pytest.param(lambda price: price == LARGEST, id="largest"),
            pytest.param(lambda price: price == Decimal(f"{LARGEST}e-28"), id="largest coefficient with 28 places"),
            pytest.param(lambda price: price == 2**53 + 1, id="2^53+1"),
            pytest.param(lambda price: "E" in str(price), id="with an exponent in Python's text"),
            pytest.param(lambda price: len(price.as_tuple().digits) > 20, id="many digits"),
        ],
    )
    def test_of_prices(self, corner):
        reached(strategies.prices(), corner)

    @pytest.mark.parametrize("amount", [1, 2**53 + 1, 2**63, 2**64 - 1])
    def test_of_amounts(self, amount: int):
        assert reached(strategies.amounts(), lambda drawn: drawn == amount) == amount

    @pytest.mark.parametrize(
        "corner",
        [
            pytest.param(lambda ratio: ratio.denominator % 3 == 0, id="no finite decimal"),
            pytest.param(lambda ratio: ratio.denominator == 1, id="whole"),
            pytest.param(lambda ratio: ratio == Fraction(1, 10**28), id="smallest"),
            pytest.param(lambda ratio: ratio == LARGEST, id="largest"),
            pytest.param(lambda ratio: ratio == Fraction(152648, 2832390295), id="one from the ledger"),
        ],
    )
    def test_of_ratios(self, corner):
        reached(strategies.ratios(), corner)

    @pytest.mark.parametrize(
        "corner",
        [
            pytest.param(lambda book: not book.bids and not book.asks, id="empty"),
            pytest.param(lambda book: book.bids and not book.asks, id="bids alone", marks=THOROUGH),
            pytest.param(lambda book: book.asks and not book.bids, id="asks alone", marks=THOROUGH),
            pytest.param(lambda book: len(book.bids) == len(book.asks) == 1, id="one level a side", marks=THOROUGH),
            pytest.param(lambda book: len(book.bids) == 8, id="all bids", marks=THOROUGH),
            pytest.param(lambda book: len(book.asks) == 8, id="all asks", marks=THOROUGH),
            pytest.param(lambda book: book.is_locked, id="locked"),
            pytest.param(lambda book: book.is_crossed, id="crossed"),
            pytest.param(
                lambda book: (
                    book.is_crossed
                    and min(len(book.bids), len(book.asks)) > 1
                    and book.bids[1].price < book.asks[0].price
                    and book.asks[1].price > book.bids[0].price
                ),
                id="crossed by the best alone",
                marks=THOROUGH,
            ),
            pytest.param(
                lambda book: book.is_crossed and len(book.bids) > 1 and book.bids[-1].price > book.asks[-1].price,
                id="crossed throughout",
                marks=THOROUGH,
            ),
            pytest.param(lambda book: book.spread is not None and book.spread > 0, id="open", marks=THOROUGH),
            pytest.param(lambda book: book.spot is None, id="no spot", marks=THOROUGH),
            pytest.param(lambda book: book.spot is not None, id="spot", marks=THOROUGH),
            pytest.param(lambda book: ADA not in {book.pair.base, book.pair.quote}, id="two tokens"),
            pytest.param(lambda book: book.pair.base == ADA, id="ADA as base", marks=THOROUGH),
        ],
    )
    def test_of_books(self, corner):
        reached(strategies.order_books(), corner)

    def test_of_changes(self):
        book = OrderBook.from_levels(PAIR, [("5", 1)], [("6", 1)])
        changes = strategies.level_changes(book)
        reached(changes, lambda drawn: (Decimal(5), 0) in drawn)
        reached(changes, lambda drawn: any(price not in {5, 6} and amount for price, amount in drawn))
        reached(changes, lambda drawn: len({price for price, _ in drawn}) < len(drawn))

    def test_of_changes_in_other_spellings(self):
        changes = strategies.level_changes(OrderBook.from_levels(PAIR, [("10", 1), ("0.5", 1)]))
        reached(changes, lambda drawn: {"10.0", "1E+1", "0.50"} <= {str(price) for price, _ in drawn})

    def test_of_neighbouring_prices_on_one_side(self):
        def differ_by_the_least(book: OrderBook) -> bool:
            return any(
                Fraction(one) - Fraction(other) == Fraction(1, 10**28) for one, other in pairwise(book.bids.prices)
            )

        assert counted(strategies.order_books(), differ_by_the_least, of=400) >= 20

    def test_of_real_depth(self):
        deep = strategies.order_books(max_levels=50)
        assert counted(deep, lambda book: len(book.bids) >= 20, of=100) >= 5
        assert counted(deep, lambda book: not book.bids and not book.asks, of=100) >= 1

    def test_of_orders(self):
        reached(strategies.orders(), lambda order: isinstance(order.price, Fraction))
        reached(strategies.orders(), lambda order: order.amount == 0)

    @pytest.mark.parametrize(
        "corner",
        [
            pytest.param(lambda resting: len({one.pair for one in resting.values()}) > 1, id="several pairs"),
            pytest.param(lambda resting: len(resting.index) > len({one.pair for one in resting.values()}), id="idle"),
            pytest.param(lambda resting: any(book.spot for book in resting.index.values()), id="a spot price"),
            pytest.param(lambda resting: resting.index.as_of is not None, id="as_of"),
            pytest.param(
                lambda resting: len(resting) > sum(len(book.bids) + len(book.asks) for book in resting.index.values()),
                id="several orders at a level, or one of no amount",
            ),
            pytest.param(lambda resting: "~" * 200 in resting, id="a long id"),
        ],
    )
    def test_of_resting_orders(self, corner):
        reached(strategies.resting_orders(), corner)

    @pytest.mark.parametrize("text", ["lovelace", ".", "0" * 56])
    def test_of_other_spellings(self, text: str):
        assert reached(strategies.invalid_asset_id_texts(), lambda drawn: drawn == text) == text

    @pytest.mark.parametrize(
        "rule",
        ["must have 56 digits", "at most 64 digits", "even number of digits", "must be hexadecimal", "must be ADA or"],
    )
    def test_of_invalid_asset_ids(self, rule: str):
        reached(strategies.invalid_asset_id_texts(), lambda drawn: rule in message_of(drawn, AssetId.parse))

    @pytest.mark.parametrize(
        "rule", ["ASCII digits", "above 0", "28 decimal places", "be below 2^96", "a coefficient below 2^96"]
    )
    def test_of_invalid_prices(self, rule: str):
        reached(strategies.invalid_price_texts(), lambda drawn: rule in message_of(drawn, parse_price))


def message_of(text: str, read: typing.Callable[[str], object]) -> str:
    with pytest.raises(market_index.MarketIndexError) as raised:
        read(text)
    return str(raised.value)
