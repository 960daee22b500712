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

from attrs import field, frozen, validators

from market_index import AssetId
from market_index_feeds.ledger.datum import asset_of, decoded, read
from market_index_feeds.ledger.outputs import Spend
from market_index_feeds.venue_orders import Fee, FilledBy, Output

Datum: TypeAlias = Mapping[str, Any]

_IS_FEES: Final = validators.deep_iterable(validators.instance_of(Fee), validators.instance_of(tuple))


@frozen
class Offer:
    """An offer of an output: an amount of one asset, for another one, before fees.

    `price` is how much is asked, per how much is offered, both in smallest units. `starts_at` and `ends_at` are the
    first and the last moment of it, in milliseconds of POSIX time. `fees`, `filled_by` and `least_fill` are those of
    `VenueOrder`, and `most_fill` too, None if one fill can take all. `suffix` follows the id of the output, if it has
    several offers. `problem` is why the offer cannot be filled, although the output is valid; it may still be the
    successor of a filled one.
    """

    offered: AssetId
    amount: int
    asked: AssetId
    price: tuple[int, int]
    starts_at: int | None = None
    ends_at: int | None = None
    fees: tuple[Fee, ...] = field(default=(), validator=_IS_FEES)
    filled_by: FilledBy = "anyone"
    least_fill: int = 1
    most_fill: int | None = None
    suffix: str = ""
    problem: str = ""


@frozen
class Fill:
    """An execution that the ledger proves: how much an order gave of one asset and received of another, before fees.

    It counts only if both amounts are above 0, and the filled output held what it gave.
    """

    gave: tuple[AssetId, int]
    received: tuple[AssetId, int]


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


@frozen
class Exchange:
    r"""An exchange, or a version of it, that locks its orders with one script.

    `script` is the hash of the script, in hex. If each valid order holds a token of one policy, `policy` is that
    policy, and only outputs that hold such a token are read. The first word of `venue` selects it in the name of a
    feed. It is read on its `networks`. `source` is where the script is published, and when that was checked. `offers`
    returns the offers of an output with a datum. `fill` gets an output, how it was spent, and the outputs of the
    exchange in the transaction that spent it. If a function raises another exception than `Skipped`, the output is
    skipped, or has no fill.

    `layout` mirrors the datum, with a name for each field:

        constructor(n, layout)     constructor n with its fields
        {"name": layout, ...}      a list with these elements, in this order
        [layout]                   a list of any length
        (constructor, ...)         alternatives; what is read has the number of the constructor, and its fields
        range(2**64)               an integer in the range
        frozenset({28})            bytes of one of these lengths
        b"\x00"                     exactly these bytes
        None                       anything

    Raises:
        ValueError: `script` or `policy` is not the hex of 28 bytes, in lower case.
    """

    venue: str
    script: str = field(validator=validators.matches_re(r"[0-9a-f]{56}"))
    layout: Any
    offers: Callable[[Datum, Output], Iterable[Offer]]
    fill: Callable[[Candidate, Spend, Sequence[Candidate]], Fill | None] = lambda *_: None
    policy: str = field(default="", validator=validators.matches_re(r"([0-9a-f]{56})?"))
    networks: tuple[str, ...] = ("mainnet",)
    source: str = ""

    @property
    def pattern(self) -> str:
        """The pattern by which Kupo finds its outputs."""
        return f"{self.policy}.*" if self.policy else f"{self.script}/*"

    @property
    def name(self) -> str:
        """The name that selects it, such as `splash`."""
        return self.venue.partition(" ")[0].lower()

    def reads(self, output: Output) -> bool:
        """Whether it reads an output at its script: if it has a policy, the output must hold a token of it."""
        return not self.policy or any(asset.policy_id.hex() == self.policy for asset in output.holds)

    def read(self, output: Output) -> Candidate:
        """Return the offers of an output. Raises `Skipped` if it is no readable order."""
        datum = read(decoded(output.datum, output.datum_hash), self.layout)
        return Candidate(output, datum, tuple(self.offers(datum, output)))


def offer_of(datum: Datum, **details: Any) -> Offer:
    """Return the offer of a datum that contains the two assets, the amount and the price."""
    offered, asked = asset_of(*datum["offered"].values()), asset_of(*datum["asked"].values())
    price = datum["price"]["numerator"], datum["price"]["denominator"]
    return Offer(offered, datum["amount"], asked, price, **details)


def is_reference_to(output: Output, reference: Mapping[str, Any]) -> bool:
    """Whether a reference of a datum, `REFERENCE` or `V2_REFERENCE`, names an output."""
    transaction_id = reference.get("id")
    octets = transaction_id["octets"] if isinstance(transaction_id, dict) else transaction_id
    return bool((octets, reference.get("index")) == (bytes.fromhex(output.transaction_id), output.index))


def rise(asset: AssetId, before: Output, after: Output) -> int:
    """Return how much more of an asset the later output holds."""
    return after.holds.get(asset, 0) - before.holds.get(asset, 0)


def only(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the only candidate; None if there is none, or if there are several, because all but one are decoys."""
    found = list(candidates)
    return found[0] if len(found) == 1 else None
