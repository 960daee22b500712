"""Orders of the ledger, with the venue where each can be filled."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from attrs import frozen

from market_index import Order

EXPIRED: Final = "expired"
"""Why an order is hidden after its end."""


@frozen
class VenueOrder:
    """An order with the venue where it can be filled, which a router must know.

    `fee` is what the venue takes on top of the price, in words. The order can be filled from `starts_at` to
    `expires_at`, in UTC; None if it is not limited.
    """

    order: Order
    venue: str
    fee: str
    starts_at: datetime | None = None
    expires_at: datetime | None = None

    def hidden_because(self, now: datetime) -> str | None:
        """Return why it cannot be filled at a moment, None if it can."""
        if self.starts_at is not None and self.starts_at > now:
            return "not active yet"
        return None if self.expires_at is None or self.expires_at >= now else EXPIRED
