"""The order books of the ledger, read from a running Kupo, and the parts of an exchange of your own."""

from market_index_feeds.ledger.datum import Skipped
from market_index_feeds.ledger.exchange import Candidate, Exchange, Fill, Offer
from market_index_feeds.ledger.exchanges import EXCHANGES
from market_index_feeds.ledger.kupo import WINDOW_HOURS, KupoSource
from market_index_feeds.ledger.outputs import Output, Spend

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
