"""The order books of the ledger, read from a running Kupo, and the parts of an exchange of your own."""

from market_index_feeds.kupo.datum import Skipped
from market_index_feeds.kupo.exchanges import EXCHANGES, Candidate, Exchange, Fill, Offer
from market_index_feeds.kupo.outputs import Output, Spend
from market_index_feeds.kupo.source import WINDOW_HOURS, KupoSource

__all__ = [
    "EXCHANGES",
    "WINDOW_HOURS",
    "Candidate",
    "Exchange",
    "Fill",
    "KupoSource",
    "Offer",
    "Output",
    "Skipped",
    "Spend",
]
