"""Values as people read them: names and human units of tokens, and tables for notebooks.

Nothing here identifies an asset, and nothing of it is in the JSON. Importing `market_index` does not load this package.
"""

from market_index.display.notebook import Table, table
from market_index.display.tokens import Token, Tokens

__all__ = ["Table", "Token", "Tokens", "table"]
