"""The exception hierarchy of the library, and the safe display of rejected values.

    Exception
    └── MarketIndexError
        ├── InvalidAssetId      (also a ValueError)
        ├── InvalidPrice        (also a ValueError)
        │   └── PriceOutOfRange
        ├── InvalidOrderBook    (also a ValueError)
        ├── InvalidPairList     (also a ValueError)
        ├── InvalidFreshness    (also a ValueError)
        ├── InvalidTokens       (also a ValueError)
        ├── PairNotFound        (also a KeyError), in market_index.pairs
        ├── OrderNotFound       (also a KeyError), in market_index.resting_orders
        ├── FeedError           in market_index_feeds
        └── StoreError          in market_index_feeds
            ├── StoreBusy
            ├── Conflict
            ├── BookTooLarge
            └── UnknownOutcome

A part of a value that is not valid raises an error of this hierarchy, whatever is wrong with it: its range, its text or
its type. Other arguments raise `TypeError` or `ValueError`, as in Python: a count, a unit, a container of changes, an
earlier value. A key of a wrong type is not found in a mapping, as in each mapping of Python.

A message states the rule, then the rejected value. Messages show values with `safe_repr`, which limits their length and
escapes line breaks.
"""

from __future__ import annotations

from typing import Final, Self

__all__ = [
    "InvalidAssetId",
    "InvalidFreshness",
    "InvalidOrderBook",
    "InvalidPairList",
    "InvalidPrice",
    "InvalidTokens",
    "MarketIndexError",
    "PriceOutOfRange",
    "missing_extra",
    "safe_repr",
]

MAX_REPR_LENGTH: Final = 80
"""The maximum number of characters of a rejected value in a message (decision 16)."""


class MarketIndexError(Exception):
    """Base class of all errors that the library raises on purpose.

    The first argument is the message. A subclass also passes its other fields to `super().__init__`, which pickling,
    copying and `at` require.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def at(self, place: str) -> Self:
        """Return the same error with the location of the rejected value before its message.

        >>> str(InvalidPrice("a price must be above 0, got '-1'").at("bids[3].price"))
        "bids[3].price: a price must be above 0, got '-1'"
        """
        return type(self)(f"{place}: {self}", *self.args[1:])


class InvalidAssetId(MarketIndexError, ValueError):
    """The value does not identify an asset."""


class InvalidPrice(MarketIndexError, ValueError):
    """The value is not a price or a ratio, or is out of range."""


class PriceOutOfRange(InvalidPrice):
    """The value is a well-formed number, but not a price or a ratio: not above 0, too large, or of too many digits.

    Such a price occurs on the ledger: anyone can place an order with it. A malformed text raises `InvalidPrice`.
    """


class InvalidOrderBook(MarketIndexError, ValueError):
    """The value is not a valid order book, level or order, or the text does not contain an order book."""


class InvalidPairList(MarketIndexError, ValueError):
    """The text does not contain a pair list."""


class InvalidFreshness(MarketIndexError, ValueError):
    """The value, or the text, is not a valid `as_of` or `published_at` of order books."""


class InvalidTokens(MarketIndexError, ValueError):
    """The text does not contain entries of the token registry, or an entry is not valid."""


def require_type(name: str, value: object, kind: type) -> None:
    """Raise `TypeError` unless the value is of this class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {type(value).__name__}: {safe_repr(value)}")


def require_iterable(name: str, values: object, of: str) -> None:
    """Raise `InvalidOrderBook` unless the value is iterable."""
    # Half the time of `isinstance` with an abstract class; each change of a book comes here.
    if not hasattr(values, "__iter__"):
        kind = type(values).__name__
        remedy = "; put it in a list" if kind in of else ""
        raise InvalidOrderBook(f"{name} must be a list of {of}, got {kind}: {safe_repr(values)}{remedy}")


def missing_extra(user: str, extra: str, missing: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return an error that says what needs an extra of this project, and how to install it.

    >>> print(missing_extra("serve", "server", ModuleNotFoundError(name="uvicorn")))
    serve needs the extra server: pip install 'PATH[server]' of a clone or a wheel (uvicorn is not installed)

    Args:
        user: What needs the extra: a command, a module, or the name of a feed or a store.
        extra: The name of the extra.
        missing: The error of the import that failed.
    """
    package = (missing.name or "a package").partition(".")[0]
    remedy = f"pip install 'PATH[{extra}]' of a clone or a wheel ({package} is not installed)"
    return ModuleNotFoundError(f"{user} needs the extra {extra}: {remedy}", name=missing.name)


def safe_repr(value: object) -> str:
    r"""Return the `repr` of a value as one line of at most `MAX_REPR_LENGTH` printable characters.

    >>> safe_repr("1\n")
    "'1\\n'"
    >>> len(safe_repr("0" * 1_000_000))
    80
    """
    kind = type(value)
    try:
        # Cut first, because the repr of a long text is as long.
        text = repr(value[:MAX_REPR_LENGTH] if kind in {str, bytes, list} else value)  # type: ignore[index]  # of these
    except Exception:  # noqa: BLE001  # the repr of any object may fail, such as that of a huge int
        text = f"<{kind.__name__}>"
    text = text[: MAX_REPR_LENGTH + 1]
    if not text.isprintable():
        # str and bytes escape line breaks and terminal escapes in their repr, other types may not.
        text = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return text if len(text) <= MAX_REPR_LENGTH else text[: MAX_REPR_LENGTH - 1] + "…"
