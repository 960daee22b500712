"""What can be wrong with a value, and how it is said.

Every error of the library is a `MarketIndexError`. Its message names what was wrong and shows the value as
`repr` gives it, cut to `SHOWN_LENGTH` characters, so that a hostile value can neither flood a log nor break
its lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from market_index.pairs import Pair

SHOWN_LENGTH = 80
"""How many characters of a refused value a message shows (decision 16)."""


class MarketIndexError(Exception):
    """The base of every error that the library raises on purpose."""

    def at(self, place: str) -> Self:
        """Return the same error, its message led by where the value stood.

        >>> str(InvalidPrice("'-1' is not a price").at("bids[3].price"))
        "bids[3].price: '-1' is not a price"
        """
        return type(self)(f"{place}: {self}")


class InvalidAssetId(MarketIndexError, ValueError):
    """The value does not identify an asset."""


class InvalidPrice(MarketIndexError, ValueError):
    """The value is not a price, or it is out of the range of prices."""


class InvalidOrderBook(MarketIndexError, ValueError):
    """The values do not make an order book, a level or an order; or a text does not hold an order book."""


class InvalidPairList(MarketIndexError, ValueError):
    """The text does not hold a pair list."""


class PairNotFound(MarketIndexError, KeyError):
    """The index does not track the pair.

    A `KeyError`, and so a `LookupError`, because a market index is a mapping.

    >>> from market_index import ADA, Pair
    >>> str(PairNotFound(Pair(ADA, ADA)))
    'Pair ADA/ADA not found'
    """

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair)
        self.pair = pair

    def __str__(self) -> str:
        # KeyError would show the repr of its argument.
        return f"Pair {self.pair} not found"

    def at(self, place: str) -> Self:
        """Return the error itself: the pair is the place."""
        del place
        return self


def shown(value: object) -> str:
    r"""Return `value` as a message shows it: its `repr`, cut to `SHOWN_LENGTH` characters.

    >>> shown("1\n")
    "'1\\n'"
    >>> len(shown("0" * 1_000_000))
    80
    """
    if type(value) in {str, bytes}:
        # Cut first: the repr of a megabyte costs a megabyte.
        value = value[: SHOWN_LENGTH + 1]  # type: ignore[index]  # the set above is of two sequence types
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # any object may be refused, one whose repr fails (a huge int, too) as well
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 1] + "…"
