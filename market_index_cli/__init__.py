"""The command `market-index`: publish, serve, relay and read order books from a terminal.

`market_index_cli.__main__` is its entry point. It requires the extra `cli`; the subcommand `serve` requires `server`.
"""
