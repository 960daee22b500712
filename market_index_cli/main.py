"""The group of all commands. Importing it imports no web server and no NATS client."""

from __future__ import annotations

import click

from market_index_cli.check import check
from market_index_cli.dump import dump
from market_index_cli.orders import orders
from market_index_cli.publish import publish
from market_index_cli.record import record
from market_index_cli.relay import relay
from market_index_cli.retract import retract
from market_index_cli.serve import serve
from market_index_cli.show import book, pairs


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="market-index", prog_name="market-index")
def main() -> None:
    """Publish, serve and read Cardano order books.

    FEED is a source of books: a store, a file with one order book per line in the JSON of the order-book endpoint
    (books.ndjson), - for standard input, events of orders (orders:events.ndjson, or orders:-), a recording that is
    replayed (replay:recording.ndjson), the base URL of a running service (http://127.0.0.1:8000), the order books of
    the ledger in a running Kupo (kupo:http://127.0.0.1:1442) or in a public index (koios:), or sample:, a recording
    that comes with the package.
    Options follow a ?: "replay:recording.ndjson?speed=10&loop" replays ten times as fast, and again after its end;
    "orders:-?history=100" is how many blocks back a rollback may go. STORE is where books are published: a file such as
    market.db, or a bucket of NATS JetStream (nats://127.0.0.1:4222/books).

    \b
    Exit codes:
      0  done, or ended by a signal
      1  the pair is not tracked, a rule fails in check, publish was interrupted, or the reader of standard output has
         gone
      2  wrong usage, the extra cli or server is not installed, or too few files may be open
      3  FEED or STORE cannot be opened, read or written, nor standard output; or their extra is not installed
      4  the server cannot listen on the address
      5  a record was rejected, or something else was not published
    """


for _command in (serve, publish, relay, retract, record, dump, pairs, book, orders, check):
    main.add_command(_command)
