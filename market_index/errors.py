"""The exceptions of the library, and how a message shows the value that was rejected.

    Exception
    └── MarketIndexError
        ├── InvalidAssetId      (also a ValueError)
        ├── InvalidPrice        (also a ValueError)
        ├── InvalidOrderBook    (also a ValueError)
        ├── InvalidPairList     (also a ValueError)
        ├── InvalidFreshness    (also a ValueError)
        ├── PairNotFound        (also a KeyError), in market_index.pairs
        ├── OrderNotFound       (also a KeyError), in market_index.resting_orders
        ├── FeedError           in market_index_feeds
        └── StoreError          in market_index_feeds
            ├── StoreBusy
            ├── Unacknowledged
            └── BookTooLarge

Every message says what must hold and what was given. Rejected values go through `safe_repr`, so that no value can flood
a log or break its lines.
"""

from __future__ import annotations

from typing import Final, Self

__all__ = [
    "InvalidAssetId",
    "InvalidFreshness",
    "InvalidOrderBook",
    "InvalidPairList",
    "InvalidPrice",
    "MarketIndexError",
    "safe_repr",
]

MAX_REPR_LENGTH: Final = 80
"""The most characters of a rejected value that a message shows (decision 16)."""


class MarketIndexError(Exception):
    """Base class of every error that the library raises on purpose.

    The first argument is the message. A subclass passes its other fields to `super().__init__` too, so that it can be
    pickled, copied and rebuilt by `at`.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def at(self, place: str) -> Self:
        """Return the same error with the location of the value in front of its message.

        >>> str(InvalidPrice("a price must be above 0, got '-1'").at("bids[3].price"))
        "bids[3].price: a price must be above 0, got '-1'"
        """
        return type(self)(f"{place}: {self}", *self.args[1:])


class InvalidAssetId(MarketIndexError, ValueError):
    """The value does not identify an asset."""


class InvalidPrice(MarketIndexError, ValueError):
    """The value is not a price, or is out of the range of prices."""


class InvalidOrderBook(MarketIndexError, ValueError):
    """The values do not form an order book, a level or an order; or the text does not contain an order book."""


class InvalidPairList(MarketIndexError, ValueError):
    """The text does not contain a pair list."""


class InvalidFreshness(MarketIndexError, ValueError):
    """The values do not tell what order books reflect or when they were published; or the text does not."""


def safe_repr(value: object) -> str:
    r"""Return the `repr` of a value as one line of at most `MAX_REPR_LENGTH` printable characters.

    >>> safe_repr("1\n")
    "'1\\n'"
    >>> len(safe_repr("0" * 1_000_000))
    80
    """
    if isinstance(value, (str, bytes)) and type(value) in {str, bytes}:
        # Cut first: the repr of a megabyte costs a megabyte.
        value = value[:MAX_REPR_LENGTH]
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # repr of any rejected object may fail, as that of a huge int does
        text = f"<{type(value).__name__}>"
    text = text[: MAX_REPR_LENGTH + 1]
    if not text.isprintable():
        # Only the repr of other types, such as an array, contains line breaks or terminal escapes.
        text = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return text if len(text) <= MAX_REPR_LENGTH else text[: MAX_REPR_LENGTH - 1] + "…"
