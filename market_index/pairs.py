"""Trading pairs, their entries in the pair list, and the error for a pair that is not tracked."""

from __future__ import annotations

from decimal import Decimal
from typing import Self, TypeAlias, final

from attrs import frozen

from market_index.assets import AssetId
from market_index.errors import InvalidAssetId, InvalidOrderBook, InvalidPairList, MarketIndexError, safe_repr
from market_index.prices import to_price

LedgerOrder: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""The sort key of a pair: base policy id, base asset name, quote policy id, quote asset name (decision 9)."""


@final
@frozen(init=False, order=True)
class Pair:
    """A trading pair: the base asset, priced in the quote asset.

    `ADA/token` and `token/ADA` are two pairs (decision 10). A pair of an asset with itself can be asked for, but
    never tracked (decision 11). Pairs compare in ledger order, base then quote (decision 9).

    >>> from market_index import ADA, AssetId
    >>> str(Pair(ADA, AssetId(bytes(28), b"")))
    'ADA/00000000000000000000000000000000000000000000000000000000:'

    Raises `InvalidAssetId` when a side is not an `AssetId`.
    """

    base: AssetId
    quote: AssetId

    def __init__(self, base: AssetId, quote: AssetId) -> None:
        _require_asset("base", base)
        _require_asset("quote", quote)
        self.__attrs_init__(base, quote)

    @property
    def ledger_order(self) -> LedgerOrder:
        """The pair as a tuple of bytes that sorts as the pair does."""
        base, quote = self.base, self.quote
        return base.policy_id, base.asset_name, quote.policy_id, quote.asset_name

    def __str__(self) -> str:
        return f"{self.base}/{self.quote}"


class PairNotFound(MarketIndexError, KeyError):
    """The index does not track the pair.

    It is a `KeyError`, and so a `LookupError`, because a market index is a mapping.

    >>> from market_index import ADA, Pair
    >>> str(PairNotFound(Pair(ADA, ADA)))
    'Pair ADA/ADA not found'
    """

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair)
        self.pair = pair

    def __str__(self) -> str:
        return f"Pair {self.pair} not found"

    def at(self, place: str) -> Self:
        """Return the error itself: the message names the pair, which is the location."""
        del place
        return self


@final
@frozen(init=False)
class PairInfo:
    """One entry of the pair list: the assets of a pair, and its last known spot price or None.

    `last_spot` is in quote units per one base unit, both in smallest units (decision 2).

    >>> from market_index import ADA, AssetId
    >>> PairInfo(ADA, AssetId(bytes(28), b""), "0.50").last_spot
    Decimal('0.5')

    Raises `InvalidAssetId`, `InvalidPrice`, and `InvalidPairList` if both assets are the same (decision 11).
    """

    base: AssetId
    quote: AssetId
    last_spot: Decimal | None

    def __init__(self, base: AssetId, quote: AssetId, last_spot: Decimal | str | None = None) -> None:
        _require_asset("base", base)
        _require_asset("quote", quote)
        if base == quote:
            raise InvalidPairList(f"base and quote must be different assets, got {safe_repr(str(base))} twice")
        self.__attrs_init__(base, quote, None if last_spot is None else to_price(last_spot))

    @property
    def pair(self) -> Pair:
        """The pair of these two assets."""
        return Pair(self.base, self.quote)


def require_trackable(pair: object) -> None:
    """Raise `InvalidOrderBook` unless the value is a pair of two different assets (decision 11)."""
    if type(pair) is not Pair:
        raise InvalidOrderBook(f"pair must be a Pair, got {type(pair).__name__}: {safe_repr(pair)}")
    if pair.base == pair.quote:
        raise InvalidOrderBook(f"base and quote must be different assets, got {safe_repr(str(pair.base))} twice")


def _require_asset(side: str, value: object) -> None:
    if type(value) is not AssetId:
        raise InvalidAssetId(f"{side} must be an AssetId, got {type(value).__name__}: {safe_repr(value)}")
