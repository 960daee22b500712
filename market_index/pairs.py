"""Trading pairs and their entries in the pair list.

A pair is a base asset that is priced in a quote asset. An index tracks pairs; for all others it raises `PairNotFound`.
"""

from __future__ import annotations

from decimal import Decimal
from functools import total_ordering
from typing import TypeAlias, final

from attrs import field, frozen

from market_index.assets import AssetId
from market_index.errors import InvalidAssetId, InvalidOrderBook, InvalidPairList, MarketIndexError, safe_repr
from market_index.prices import spot_argument, to_price
from market_index.value import Value, slot_setters

LedgerOrder: TypeAlias = bytes
"""The sort key of a pair: policy id and asset name of the base, then of the quote (decision 9).

It is one object, because most of the time of a lookup in a large index is cache misses, and a tuple has more objects.
"""


@final
@total_ordering
@frozen(getstate_setstate=False)
class Pair(Value):
    """A trading pair: the base asset, priced in the quote asset.

    `ADA/token` and `token/ADA` are two pairs (decision 10). A pair of an asset with itself can be requested, but not
    tracked (decision 11). Pairs compare in ledger order, base then quote (decision 9).

    >>> from market_index import ADA, AssetId
    >>> str(Pair(ADA, AssetId(bytes(28), b"")))
    'ADA/00000000000000000000000000000000000000000000000000000000:'

    Raises:
        InvalidAssetId: `base` or `quote` is not an `AssetId`.
    """

    base: AssetId
    quote: AssetId

    def __attrs_post_init__(self) -> None:
        _require_assets(self.base, self.quote)

    @staticmethod
    def parse(text: str) -> Pair:
        """Read `<base>/<quote>`, the text of a pair. Each asset is read by `AssetId.parse`.

        >>> pair = Pair.parse("ADA/00000000000000000000000000000000000000000000000000000000:")
        >>> Pair.parse(str(pair)) == pair
        True

        Raises:
            InvalidAssetId: The text does not have one slash, or an asset is not valid.
        """
        if type(text) is not str or text.count("/") != 1:
            raise InvalidAssetId(f"a pair must be base/quote, got {safe_repr(text)}")
        base, _, quote = text.partition("/")
        return Pair(AssetId.parse(base), AssetId.parse(quote))

    @property
    def ledger_order(self) -> LedgerOrder:
        """The sort key of the pair: bytes that sort as pairs do, and differ between pairs."""
        base, quote = self.base, self.quote
        if not base.policy_id:
            return b"\0%b%b" % (quote.policy_id, quote.asset_name)
        # Two zero bytes end the name of the base: those in it are escaped, so that a name sorts before longer ones.
        name = base.asset_name.replace(b"\0", b"\0\1")
        return b"\1%b%b\0\0%b%b" % (base.policy_id, name, quote.policy_id, quote.asset_name)

    def __lt__(self, other: object) -> bool:
        return self.ledger_order < other.ledger_order if type(other) is Pair else NotImplemented

    def __str__(self) -> str:
        return f"{self.base}/{self.quote}"


class PairNotFound(MarketIndexError, KeyError):
    """The index does not track the pair, which is the attribute `pair`.

    It is a `KeyError`, because a market index is a mapping.
    """

    def __init__(self, message: str, pair: Pair) -> None:
        super().__init__(message, pair)
        self.pair = pair


@final
@frozen(getstate_setstate=False)
class PairInfo(Value):
    """One entry of the pair list: the assets of a pair, and its last executed price or None.

    `last_spot` is in quote units per one base unit, both in smallest units (decision 2).

    >>> from market_index import ADA, AssetId
    >>> PairInfo(ADA, AssetId(bytes(28), b""), "0.50").last_spot
    Decimal('0.5')

    Raises:
        InvalidAssetId: `base` or `quote` is not an `AssetId`.
        InvalidPairList: Both assets are the same (decision 11).
        InvalidPrice: `last_spot` is not a price.
    """

    base: AssetId
    quote: AssetId
    last_spot: Decimal | None = field(default=None, converter=spot_argument)

    def __attrs_post_init__(self) -> None:
        _require_assets(self.base, self.quote)
        _require_difference(self, InvalidPairList)
        if self.last_spot is not None:
            _SET_LAST_SPOT(self, to_price(self.last_spot))

    @property
    def pair(self) -> Pair:
        """The pair of the two assets."""
        return Pair(self.base, self.quote)


(_SET_LAST_SPOT,) = slot_setters(PairInfo, "last_spot")


def require_pair(pair: object) -> None:
    """Raise `InvalidOrderBook` unless the value is a `Pair`."""
    if type(pair) is not Pair:
        raise InvalidOrderBook(f"pair must be a Pair, got {type(pair).__name__}: {safe_repr(pair)}")


def require_trackable(pair: Pair) -> None:
    """Raise `InvalidOrderBook` unless the value is a pair of two different assets (decision 11)."""
    require_pair(pair)
    _require_difference(pair, InvalidOrderBook)


def _require_difference(pair: Pair | PairInfo, kind: type[MarketIndexError]) -> None:
    if pair.base == pair.quote:
        raise kind(f"base and quote must be different assets, got {safe_repr(str(pair.base))} twice")


def _require_assets(base: object, quote: object) -> None:
    if type(base) is not AssetId or type(quote) is not AssetId:
        name, value = ("quote", quote) if type(base) is AssetId else ("base", base)
        raise InvalidAssetId(f"{name} must be an AssetId, got {type(value).__name__}: {safe_repr(value)}")
