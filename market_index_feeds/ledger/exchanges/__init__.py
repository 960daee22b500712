"""The exchanges that are read, one module each."""

from typing import Final

from market_index_feeds.ledger.exchange import Exchange
from market_index_feeds.ledger.exchanges import cardanoswaps, geniusyield, saturnswap, shadowbook, splash

EXCHANGES: Final[tuple[Exchange, ...]] = (
    *splash.EXCHANGES,
    *shadowbook.EXCHANGES,
    *geniusyield.EXCHANGES,
    *saturnswap.EXCHANGES,
    *cardanoswaps.EXCHANGES,
)
"""The exchanges of the main network and of test networks."""
