"""Orders of the ledger: where each can be filled, by whom, at what cost, and from which output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final, Literal, TypeAlias

from attrs import field, frozen

from market_index import ADA, AssetId, Order, Pair, Side

_BECH32: Final = {character: digit for digit, character in enumerate("qpzry9x8gf2tvdw0s3jn54khce6mua7l")}

MAX_CACHED: Final = 65_536

FilledBy: TypeAlias = Literal["anyone", "matcher"]


@lru_cache(MAX_CACHED)
def address_bytes(address: str) -> bytes:
    """Return the bytes of an address in Bech32; none of another one. The checksum of the ledger is not verified."""
    digits = [_BECH32.get(character, -1) for character in address.rpartition("1")[2][:-6]]
    if min(digits, default=-1) < 0:
        return b""
    number = 0
    for digit in digits:
        number = number << 5 | digit
    return (number >> len(digits) * 5 % 8).to_bytes(len(digits) * 5 // 8)


@lru_cache(MAX_CACHED)
def script_of(address: str) -> str:
    """Return the hash of the script that locks the outputs of an address, in hex; empty if there is none."""
    octets = address_bytes(address)
    # CIP-19: types 0 to 7 begin with a payment part, which is a script if bit 4 of the header is set.
    is_script = len(octets) >= 29 and octets[0] & 0x90 == 0x10
    return octets[1:29].hex() if is_script else ""


@frozen
class Output:
    """An output of a transaction, which never changes. It has what the builder of a transaction needs to spend it.

    `slot` is that of its block, and `transaction_index` the place of its transaction in the block, None if not known.
    `address` is in Bech32. `holds` has its amounts by asset, lovelace too. `datum` is in hex, None if it is not known;
    a transaction that spends the output must contain a datum that is not `is_inline`. `reference_script` is the hash of
    the script that it carries: the fee of a transaction depends on it.
    """

    transaction_id: str
    index: int
    slot: int
    transaction_index: int | None
    address: str
    holds: Mapping[AssetId, int]
    datum: str | None
    datum_hash: str | None
    is_inline: bool = True
    reference_script: str | None = None

    @property
    def id(self) -> str:
        """Its id, which is that of its order: `<transaction id>#<index>`."""
        return f"{self.transaction_id}#{self.index}"

    @property
    def has_stake_part(self) -> bool:
        """Whether its address, which a script locks, has a stake part: types 6 and 7 have none (CIP-19)."""
        return address_bytes(self.address)[0] >> 4 < 6


@frozen
class Fee:
    """What a venue takes besides the price: a share of what is sold or bought, or a flat amount.

    `rate` is the share of what the order sells or buys, rounded down, and at least `least`. `amount` is flat, in the
    same asset. It is due `per` fill, step of an execution, or transaction. If `is_prepaid`, it is in the output of the
    order already, for its executor, and costs the taker nothing.

    >>> str(Fee("sold", rate=Fraction(1, 100))), str(Fee("lovelace", amount=600_000, per="step", is_prepaid=True))
    ('1 % of what is sold per fill', '600000 lovelace per step (prepaid)')
    """

    of: Literal["sold", "bought", "lovelace"]
    rate: Fraction = Fraction(0)
    amount: int = 0
    least: int = 0
    per: Literal["fill", "step", "transaction"] = "fill"
    is_prepaid: bool = False

    def due(self, traded: int) -> int:
        """Return the fee of one fill, step or transaction that trades an amount of its asset, in smallest units."""
        return max(int(traded * self.rate), self.least) + self.amount

    def __str__(self) -> str:
        shares = [f"{float(100 * self.rate):.12g} %"] if self.rate or self.least else []
        flat = [str(self.amount)] if self.amount or not shares else []
        asset = " lovelace" if self.of == "lovelace" else f" of what is {self.of}"
        least = f", at least {self.least}" if self.least else ""
        return f"{' + '.join(shares + flat)}{asset} per {self.per}{least}{' (prepaid)' if self.is_prepaid else ''}"


@frozen
class VenueOrder:
    """An order with all that a router must know to fill it.

    `filled_by` is who can fill it: anyone with a transaction, or only a matcher of the venue, which needs an order of
    yours. `fees` are not part of the price. One fill can take from `least_fill` to `most_fill` of the offered asset, in
    smallest units. `created_at` is the time of the block of `output`, on `network`. The order can be filled from
    `starts_at` to `expires_at`, in UTC; None if it is not limited.
    """

    order: Order
    venue: str
    output: Output
    network: str
    created_at: datetime
    most_fill: int
    least_fill: int = 1
    filled_by: FilledBy = "anyone"
    fees: tuple[Fee, ...] = ()
    starts_at: datetime | None = None
    expires_at: datetime | None = None

    @property
    def fee(self) -> str:
        """The fees in words."""
        return "; ".join(map(str, self.fees)) or "none"

    def taker_fees(self, sold: int) -> dict[AssetId, int]:
        """Return what a taker pays besides the price for one fill that takes an amount of the offered asset, by asset.

        What the taker pays for the amount is rounded up. Fees of a transaction are included. A contract that rounds
        the amount of a partial fill up may demand one unit more.
        """
        pair, price = self.order.pair, Fraction(self.order.price)
        offered, asked = (pair.base, pair.quote) if self.order.side is Side.ASK else (pair.quote, pair.base)
        bought = ceil(sold * (price if offered == pair.base else 1 / price))
        parts = {"sold": (offered, sold), "bought": (asked, bought), "lovelace": (ADA, 0)}
        fees = Counter[AssetId]()
        for fee in self.fees:
            asset, traded = parts[fee.of]
            fees[asset] += 0 if fee.is_prepaid else fee.due(traded)
        return {asset: amount for asset, amount in fees.items() if amount}

    def hidden_because(self, now: datetime) -> str | None:
        """Return why it cannot be filled at a moment, None if it can."""
        if self.starts_at is not None and self.starts_at > now:
            return "not active yet"
        return None if self.expires_at is None or self.expires_at >= now else "expired"


@frozen
class SkippedOutput:
    """Why an output of the ledger, or an offer of it, is no order now: one of a few fixed reasons.

    `field` is the field of the datum that is wrong, empty if none is. `pair` is None if it is not known.
    """

    reason: str
    venue: str
    output: Output = field(repr=False)
    pair: Pair | None = None
    field: str = ""
