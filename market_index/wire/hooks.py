"""The hooks by which cattrs structures and unstructures the values of the library as the JSON of the contract.

A converter of a user gets only the hooks for the values, so that nothing else of that converter changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

from cattrs import Converter

from market_index.assets import AssetId
from market_index.errors import MarketIndexError
from market_index.freshness import Freshness
from market_index.index import MarketIndex
from market_index.levels import Levels, PriceLevel
from market_index.order_book import OrderBook
from market_index.orders import Order
from market_index.pairs import Pair, PairInfo
from market_index.prices import price_text
from market_index.wire.encode import freshness_to_json, pair_list_to_json, pair_to_json
from market_index.wire.reading import Read, located, readers


def configure_converter(converter: Converter) -> None:
    """Configure a converter of cattrs, so that your own classes can have fields with values of the library.

    `AssetId`, `Pair`, `PairInfo`, `PriceLevel`, `OrderBook` and `Freshness` become the JSON of the contract, and are
    read as strictly as by `order_book_from_json`. An `Order`, a `MarketIndex` and `Levels`, which the contract does not
    have, become objects with the names of the arguments of their constructors. Unknown keys are an error if the
    converter has `forbid_extra_keys`. No other type changes.

    You can call it before or after `cattrs.preconf` configures the converter. Call it again on a copy of the converter
    that has other settings.

    >>> from attrs import frozen
    >>> from cattrs.preconf.json import make_converter
    >>> from market_index import ADA, AssetId, Pair
    >>> @frozen
    ... class Watched:
    ...     pair: Pair
    ...     level: PriceLevel
    >>> converter = make_converter()
    >>> configure_converter(converter)
    >>> watched = Watched(Pair(AssetId(bytes(28), b""), ADA), PriceLevel("0.50", 7))
    >>> converter.unstructure(watched)["level"]
    {'price': '0.5', 'accumulated_liquidity': 7}
    >>> converter.loads(converter.dumps(watched), Watched) == watched
    True
    """
    read = readers(ignore_unknown=not converter.forbid_extra_keys)
    for of_type, unstructure in _UNSTRUCTURE.items():
        converter.register_structure_hook(of_type, partial(_structured, read[of_type]))
        converter.register_unstructure_hook(of_type, unstructure)


def _structured(read: Read, value: Any, _: object) -> Any:
    try:
        return read(value)
    except MarketIndexError as error:
        raise located(error) from None


def _level_to_json(level: PriceLevel) -> dict[str, Any]:
    return {"price": price_text(level.price), "accumulated_liquidity": level.accumulated_liquidity}


def _order_to_json(order: Order) -> dict[str, Any]:
    price = price_text(order.price) if isinstance(order.price, Decimal) else str(order.price)
    pair = json.loads(pair_to_json(order.pair))
    return {"pair": pair, "side": order.side.value, "price": price, "amount": order.amount}


def _index_to_json(index: MarketIndex) -> dict[str, Any]:
    return {"books": [book.to_dict() for book in index.values()], **json.loads(freshness_to_json(index.freshness))}


_UNSTRUCTURE: Final[dict[type, Callable[[Any], Any]]] = {
    AssetId: str,
    Pair: lambda pair: json.loads(pair_to_json(pair)),
    PairInfo: lambda info: json.loads(pair_list_to_json([info]))["pairs"][0],
    PriceLevel: _level_to_json,
    Levels: lambda levels: {"side": levels.side.value, "levels": list(map(_level_to_json, levels))},
    OrderBook: OrderBook.to_dict,
    Order: _order_to_json,
    Freshness: lambda freshness: json.loads(freshness_to_json(freshness)),
    MarketIndex: _index_to_json,
}
"""The JSON of a value as a converter returns it. The texts have one home, `encode`."""
