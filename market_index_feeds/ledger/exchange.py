"""The exchanges: per exchange a layout of its datum, a rule for its offers, and what proves an execution.

To add an exchange, write three things and put an `Exchange` of them into a list that you pass to `open_feed`:

1. A layout, in the notation of `Exchange`. State the type of every field, also of those that you do not need: the
   contract, and so the exchange, rejects a datum with another one.
2. A function that returns the offers of an output. It raises `Skipped` with a fixed reason if the output is not valid,
   for example because it does not hold the token that proves a valid order. That the output holds what it offers, at a
   price that exists, is checked for all exchanges.
3. If the ledger proves at what price an output was filled: a function that returns the `Fill`. A limit is no price.

Anyone can pay an output with any datum to a script, copy a beacon, and offer more than the output holds. So an order is
identified by its output, and a field proves something only if the contract of the exchange enforces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import field, frozen
from attrs.validators import matches_re
from cbor2 import CBORTag

from market_index import AssetId, InvalidAssetId
from market_index_feeds.ledger.datum import Skipped, decoded, read
from market_index_feeds.ledger.outputs import Output, Spend

Datum: TypeAlias = Mapping[str, Any]


@frozen
class Offer:
    """An offer of an output: an amount of one asset, for another one, before fees.

    `price` is how much is asked, per how much is offered, both in smallest units. `starts_at` and `ends_at` are the
    first and the last moment of it, in milliseconds of POSIX time. `fee` says in words what comes on top. `suffix`
    follows the id of the output, if it has several offers. `problem` is why the offer cannot be filled now, although
    the output is valid; it may still be the successor of a filled one.
    """

    offered: AssetId
    amount: int
    asked: AssetId
    price: tuple[int, int]
    starts_at: int | None = None
    ends_at: int | None = None
    fee: str = "none"
    suffix: str = ""
    problem: str = ""


@frozen
class Fill:
    """An execution that the ledger proves: how much an order gave of one asset and received of another, before fees.

    `place` is where it is in the ledger: the highest one is the last execution. It is the `place` of the output with
    the rest of the order, and `(spend.slot, -1, -1)` if there is none. Both amounts must be above 0.
    """

    gave: tuple[AssetId, int]
    received: tuple[AssetId, int]
    place: tuple[int, int, int]


@frozen
class Candidate:
    """An output at the script of an exchange, with the named fields of its datum, and its offers."""

    output: Output
    datum: Datum
    offers: tuple[Offer, ...]

    @property
    def terms(self) -> Offer:
        """Its only offer, or the first one."""
        return self.offers[0]


def no_fill(spent: Candidate, spend: Spend, created: Sequence[Candidate]) -> Fill | None:
    """Return None: the ledger does not prove at what price the exchange fills an order."""
    del spent, spend, created
    return None


@frozen
class Exchange:
    r"""An exchange, or a version of it, that locks its orders with one script.

    `script` is the hash of the script, in hex. If each valid order holds a token of one policy, `policy` is that
    policy, and only outputs that hold such a token are read. `offers` returns the offers of an output with a datum.
    `fill` gets an output, how it was spent, and the outputs of the exchange in the transaction that spent it. If a
    function raises another exception than `Skipped`, the output is skipped, or has no fill.

    `layout` mirrors the datum, with a name for each field:

        CBORTag(121 + n, layout)   constructor n with its fields
        {"name": layout, ...}      a list with these elements, in this order
        [layout]                   a list of any length
        (layout, layout)           alternatives; the first one that fits is read
        range(2**64)               an integer in the range
        frozenset({28})            bytes of one of these lengths
        b"\x00"                     exactly these bytes
        None                       anything

    Raises:
        ValueError: `script` or `policy` is not the hex of 28 bytes, in lower case.
    """

    venue: str
    script: str = field(validator=matches_re(r"[0-9a-f]{56}"))
    layout: Any
    offers: Callable[[Datum, Output], Iterable[Offer]]
    fill: Callable[[Candidate, Spend, Sequence[Candidate]], Fill | None] = no_fill
    policy: str = field(default="", validator=matches_re(r"([0-9a-f]{56})?"))

    @property
    def pattern(self) -> str:
        """The pattern by which Kupo finds its outputs."""
        return f"{self.policy}.*" if self.policy else f"{self.script}/*"

    def read(self, output: Output) -> Candidate:
        """Return the offers of an output. Raises `Skipped` if it is no readable order."""
        datum = read(decoded(output.datum, output.datum_hash), self.layout)
        return Candidate(output, datum, tuple(self.offers(datum, output)))


HASH: Final = frozenset({28})
U64: Final = range(2**64)
INTEGER: Final = range(-(2**512), 2**512)
NONE: Final = CBORTag(122, {})
POLICY: Final = frozenset({0, 28})
NAME: Final = frozenset(range(33))
ASSET_PARTS: Final = {"policy": POLICY, "name": NAME}
PRICE_PARTS: Final = {"numerator": range(2**128), "denominator": range(1, 2**128)}
ASSET: Final = CBORTag(121, ASSET_PARTS)
PRICE: Final = CBORTag(121, PRICE_PARTS)
CREDENTIAL: Final = (CBORTag(121, {"key": HASH}), CBORTag(122, {"script": HASH}))
STAKE: Final = (CBORTag(121, {"key": CREDENTIAL}), CBORTag(122, {"slot": U64, "transaction": U64, "certificate": U64}))
ADDRESS: Final = CBORTag(121, {"payment": CREDENTIAL, "stake": (NONE, CBORTag(121, {"of": STAKE}))})
MOMENT: Final = (CBORTag(121, {"milliseconds": INTEGER}), NONE)

# A first order has one zero byte, or 32.
REFERENCE: Final = CBORTag(121, {"id": frozenset({1, 32}), "index": U64})
WRAPPED_REFERENCE: Final = CBORTag(121, {"id": CBORTag(121, {"octets": frozenset({1, 32})}), "index": U64})


def asset_of(policy: bytes, name: bytes) -> AssetId:
    """Return an asset; ADA has neither a policy nor a name."""
    try:
        return AssetId(policy, name)
    except InvalidAssetId:
        raise Skipped("unknown datum") from None


def ratio_of(price: Mapping[str, int]) -> tuple[int, int]:
    """Return how much is asked, per how much is offered."""
    return price["numerator"], price["denominator"]


def offer_of(datum: Datum, **details: Any) -> Offer:
    """Return the offer of a datum that contains the two assets, the amount and the price."""
    offered, asked = asset_of(*datum["offered"].values()), asset_of(*datum["asked"].values())
    return Offer(offered, datum["amount"], asked, ratio_of(datum["price"]), **details)


def rise(asset: AssetId, before: Output, after: Output) -> int:
    """Return how much more of an asset the later output holds."""
    return after.holds.get(asset, 0) - before.holds.get(asset, 0)


def only(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the only candidate; None if there is none, or if there are several, because all but one are decoys."""
    found = list(candidates)
    return found[0] if len(found) == 1 else None
