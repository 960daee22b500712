"""Serves the order book of three orders with ids."""

from market_index import AssetId, LiveIndex, Order, Pair, RestingOrders
from market_index_http import create_app

SNEK = "279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f:534e454b"
ROWS = [  # what a query returns: id, base, quote, offered asset, amount that remains, price asked per offered
    ("51ab#0", SNEK, "ADA", SNEK, 300, "4200"),
    ("77c0#1", SNEK, "ADA", "ADA", 10_000_000, "7/29000"),
    ("90fe#0", SNEK, "ADA", SNEK, 50, "4200"),
]


def to_order(base: str, quote: str, offered: str, amount: int, price: str) -> Order:
    pair = Pair(AssetId.parse(base), AssetId.parse(quote))
    return Order.from_offer(pair, offered=AssetId.parse(offered), amount=amount, price=price)


resting = RestingOrders({row[0]: to_order(*row[1:]) for row in ROWS}, as_of="slot 100")
live = LiveIndex()
live.show(resting.index)
app = create_app(live)
