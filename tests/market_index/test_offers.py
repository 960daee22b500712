"""The orders of offers as columns, compared with those of single offers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId, Order, Pair, Side
from market_index.offers import orders_of_offers

PAIRS = [Pair(AssetId(bytes(28), name), ADA) for name in (b"", b"A")]
numbers = st.integers(1, 10**28 - 1) | st.integers(1, 10**10) | st.integers(0, 28).map(lambda digits: 10**digits)
offers = st.tuples(
    st.sampled_from(PAIRS), st.sampled_from(Side), st.integers(0, 2**65), st.builds("{}/{}".format, numbers, numbers)
)


@given(st.lists(offers, min_size=1))
def test_columns_equal_the_orders_of_single_offers(rows: list[tuple[Pair, Side, int, str]]):
    pairs, sides, amounts, prices = map(list, zip(*rows, strict=True))
    expected = [
        Order.from_offer(pair, offered=pair.base if side is Side.ASK else pair.quote, amount=amount, price=price)
        for pair, side, amount, price in rows
    ]
    is_usual = all(len(number) <= 28 for price in prices for number in price.split("/"))
    found = orders_of_offers(pairs, sides, amounts, prices)
    assert repr(found) == repr(expected if is_usual else None)


@given(st.text("0123456789/ .-", max_size=4).filter(lambda text: text.count("/") != 1 or " " in text or "0" in text))
def test_a_price_of_another_form_is_left_to_single_offers(text: str):
    is_ratio = all(number.isdigit() and number[0] != "0" for number in text.split("/")) and text.count("/") == 1
    found = orders_of_offers(PAIRS, [Side.ASK] * 2, [1, 1], ["1/2", text])
    assert (found is not None) == is_ratio
