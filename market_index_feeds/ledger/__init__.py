"""The order books of the ledger, read from a running Kupo, and the parts of an exchange of your own."""

from market_index_feeds.ledger.datum import Skipped, constructor
from market_index_feeds.ledger.exchange import Candidate, Exchange, Fill, Offer
from market_index_feeds.ledger.exchanges import EXCHANGES
from market_index_feeds.ledger.koios import KoiosSource
from market_index_feeds.ledger.kupo import KupoSource
from market_index_feeds.ledger.market import Selection
from market_index_feeds.ledger.outputs import Spend
from market_index_feeds.venue_orders import Fee, Output

__all__ = [
    "EXCHANGES",
    "Candidate",
    "Exchange",
    "Fee",
    "Fill",
    "KoiosSource",
    "KupoSource",
    "Offer",
    "Output",
    "Selection",
    "Skipped",
    "Spend",
    "constructor",
]
