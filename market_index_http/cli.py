"""The command `market-index`: joins feeds and stores, a live index, the app, the server, and people at a terminal."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from market_index import AssetId, InvalidAssetId, LiveIndex, MarketIndex, OrderBook, Pair, PairNotFound, wire
from market_index_feeds import (
    BookTooLarge,
    Feed,
    FeedError,
    Progress,
    Receipt,
    Relay,
    Store,
    StoreError,
    open_feed,
    open_store,
)
from market_index_feeds.ndjson import NdjsonStream, RefusedLine, open_stream
from market_index_feeds.sqlite import is_sqlite
from market_index_http import create_app, terminal
from market_index_http.cross_origin import CrossOrigin, read_origin
from market_index_http.health import health_route
from market_index_http.openapi import openapi_route
from market_index_http.page import page_routes
from market_index_http.server import GRACE_SECONDS, Server, bind
from market_index_http.signals import ended_by_signals
from market_index_http.workers import supervise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

EXIT_ABSENT: Final = 1
"""There is no such pair."""

EXIT_FEED: Final = 3
"""The feed or the store cannot be opened, read or written."""

EXIT_LISTEN: Final = 4
"""The address cannot be listened on."""

EXIT_REFUSED: Final = 5
"""Something was refused; all else was done."""

_LARGE: Final = 4 * 1024 * 1024
"""From how many bytes on it is worth to show how loading gets on."""

_MOST_NUMBERS: Final = 20
"""How many refused lines a summary names by their numbers."""

_DEPTH: Final = 15
"""How many levels a side a terminal is shown, unless it is told otherwise."""


class _FeedFailed(click.ClickException):
    exit_code = EXIT_FEED


class _AddressFailed(click.ClickException):
    exit_code = EXIT_LISTEN


class _NothingToReplaceBy(click.ClickException):
    exit_code = EXIT_REFUSED


class _Absent(click.ClickException):
    exit_code = EXIT_ABSENT


class _Asset(click.ParamType[AssetId]):
    """The identifier of an asset."""

    name = "asset"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> AssetId:
        try:
            return value if isinstance(value, AssetId) else AssetId.parse(str(value))
        except InvalidAssetId as error:
            self.fail(str(error), param, ctx)


class _Seconds(click.ParamType[float]):
    """A number of seconds, 0 or more."""

    name = "seconds"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(str(value))
        except ValueError:
            seconds = nan
        if not seconds >= 0:
            self.fail(f"{value!r} is not a number of seconds, 0 or more.", param, ctx)
        return seconds


class _Origin(click.ParamType[str]):
    """The origin of a web page, or `*` for any."""

    name = "origin"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return read_origin(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


_FEED: Final = click.argument("source", metavar="FEED")
_STORE: Final = click.argument("target", metavar="STORE")
_BASE: Final = click.argument("base", type=_Asset(), metavar="BASE")
_QUOTE: Final = click.argument("quote", type=_Asset(), metavar="QUOTE")
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print it as the read API answers it.")
_WAIT: Final = click.option(
    "--wait",
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    type=_Seconds(),
    help="How long to wait while others write to STORE, or its servers do not acknowledge.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="market-index", prog_name="market-index")
def main() -> None:
    """Publish, serve and read Cardano order books.

    FEED is where books are read: a store, a file of order books, one a line in the shape that the order-book endpoint
    answers (books.ndjson), - for standard input, or the base URL of a running service (http://127.0.0.1:8000). STORE is
    where they are published: a file such as market.db, or a bucket of NATS JetStream (nats://127.0.0.1:4222/books).
    """


@frozen
class _Serving:
    """How to serve: what each worker is told."""

    source: str
    access_log: bool
    max_age: int | None
    max_stale: float | None
    cors_origins: tuple[str, ...]
    workers: int
    page: bool = True


@main.command(
    short_help="Serve FEED over HTTP.",
    epilog=f"""\b
Examples:
  market-index serve market.db --workers 2
  market-index serve books.ndjson --host 0.0.0.0 --port 9000
  producer | MARKET_INDEX_PORT=9000 market-index serve -

\b
Exit codes: 0 ended by a signal, 2 wrong usage, {EXIT_FEED} FEED cannot be opened,
{EXIT_LISTEN} the address cannot be listened on.""",
)
@click.argument("source", metavar="FEED", envvar="MARKET_INDEX_FEED")
@click.option(
    "--host",
    default="127.0.0.1",
    envvar="MARKET_INDEX_HOST",
    show_default=True,
    show_envvar=True,
    help="Address to listen on. The default is reached from this machine alone.",
)
@click.option(
    "--port",
    default=8000,
    envvar="MARKET_INDEX_PORT",
    show_default=True,
    show_envvar=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--workers",
    default=1,
    metavar="N",
    envvar="MARKET_INDEX_WORKERS",
    show_default=True,
    show_envvar=True,
    type=click.IntRange(1, 256),
    help="Processes that serve; each follows FEED by itself, and holds all of it in memory.",
)
@click.option(
    "--access-log/--no-access-log",
    default=False,
    envvar="MARKET_INDEX_ACCESS_LOG",
    show_default=True,
    show_envvar=True,
    help="Log every request, at the cost of throughput.",
)
@click.option(
    "--max-age",
    default=None,
    metavar="SECONDS",
    envvar="MARKET_INDEX_MAX_AGE",
    show_envvar=True,
    type=click.IntRange(0),
    help="For how long clients may use an answer without asking again; they may see old prices. By default they ask.",
)
@click.option(
    "--max-stale",
    default=None,
    metavar="SECONDS",
    envvar="MARKET_INDEX_MAX_STALE",
    show_envvar=True,
    type=_Seconds(),
    help="For how long FEED may be unreachable until /healthz answers 503. By default it never does.",
)
@click.option(
    "--cors-origin",
    "cors_origins",
    multiple=True,
    metavar="ORIGIN",
    envvar="MARKET_INDEX_CORS_ORIGIN",
    show_envvar=True,
    type=_Origin(),
    help="Let web pages of ORIGIN, such as https://example.com, read the API; * for any. Can be given more than once.",
)
@click.option(
    "--page/--no-page",
    default=True,
    envvar="MARKET_INDEX_PAGE",
    show_default=True,
    show_envvar=True,
    help="Answer / with a page that shows the pairs and their order books in a browser.",
)
def serve(
    source: str,
    host: str,
    port: int,
    *,
    workers: int,
    access_log: bool,
    max_age: int | None,
    max_stale: float | None,
    cors_origins: tuple[str, ...],
    page: bool,
) -> None:
    """Serve FEED over HTTP: the pair list and the order book of every pair.

    FEED is a store such as market.db or nats://127.0.0.1:4222/books, a file of order books, one a line in the shape
    that the order-book endpoint answers, - for standard input, or the base URL of another service. It is followed: what
    is published into a store or appended to a file goes live at once. GET / is a page to look at the books with, GET
    /healthz tells how FEED is doing, and GET /openapi.json what there is to ask. FEED can be given by the variable
    MARKET_INDEX_FEED as well.
    """
    serving = _Serving(source, access_log, max_age, max_stale, cors_origins, workers, page)
    with _telling_of_feeds(), open_feed(source) as feed, _bound(host, port) as listener:
        if workers == 1:
            _serve_here(serving, feed, listener)
            return
        if not feed.followed_by_many:
            raise click.UsageError(f"{feed.source} can be read by one process alone: leave --workers out")
        feed.close()
        _set_up_logging(workers)
        raise SystemExit(supervise(partial(_work, serving), listener, workers, GRACE_SECONDS + 5))


def _work(serving: _Serving, listener: socket.socket, on_serving: Callable[[], object]) -> None:
    """Serve as one of several processes, started by another."""
    try:
        with _telling_of_feeds(), open_feed(serving.source) as feed, listener:
            _serve_here(serving, feed, listener, on_serving)
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None


def _serve_here(
    serving: _Serving, feed: Feed, listener: socket.socket, on_serving: Callable[[], object] = lambda: None
) -> None:
    """Load the feed, follow it, and serve it on the address until a signal ends that."""
    _set_up_logging(serving.workers)
    says = f"worker {os.getpid()}: " if serving.workers > 1 else ""

    def on_listening(listening: socket.socket) -> None:
        click.echo(f"{says}listening on {_url(listening)}", err=True)
        on_serving()

    live = LiveIndex()
    app = create_app(live, max_age=serving.max_age)
    app.router.routes += [health_route(live, feed, serving.max_stale), openapi_route()]
    if serving.page:
        app.router.routes += page_routes()
    shown = CrossOrigin(app, serving.cors_origins) if serving.cors_origins else app
    server = Server(shown, access_log=serving.access_log, on_listening=on_listening)
    with ended_by_signals(server.end):
        with _progress(feed.source, lambda: server.should_exit) as progress:
            feed.start(live, progress)
        click.echo(f"{says}{feed.source}: {len(live.current)} pairs, {feed.refused} {feed.record} refused", err=True)
        host, port, *_ = listener.getsockname()
        with _telling_of(host, port):
            # Another process can have bound the address as well, and listen since the feed was being loaded.
            listener.listen()
        server.run([listener])


@main.command(
    short_help="Publish order books into STORE.",
    epilog=f"""\b
Examples:
  market-index publish market.db books.ndjson
  producer | market-index publish market.db -

\b
Exit codes: 0 all was published, 1 it was interrupted, 2 wrong usage, {EXIT_FEED} BOOKS or STORE cannot be opened,
read or written, {EXIT_REFUSED} a line was refused, or there was no order book to replace all others by.""",
)
@_STORE
@click.argument("books", metavar="BOOKS")
@click.option(
    "--replace",
    is_flag=True,
    help="Make BOOKS the whole of STORE, in one change: what it does not name is retracted.",
)
@click.option(
    "--synchronous",
    default="full",
    show_default=True,
    type=click.Choice(["full", "normal"]),
    help="What was published survives: a power cut (full), or a crash of programs alone (normal, and faster).",
)
@_WAIT
def publish(target: str, books: str, *, replace: bool, synchronous: Any, wait: float) -> None:
    """Publish order books into STORE: those of BOOKS, a file of them, one a line, or - for standard input.

    A store that is not there is made. Lines are published as they come, each bunch in one change. A line that is not
    right is refused with its number and the reason, and costs nothing else: with --replace the pair that it names stays
    as it is, and where it names none no pair is retracted. BOOKS without any order book replaces nothing.
    """
    if "://" in books:
        raise click.UsageError("BOOKS is a file of order books, one a line, or - for standard input, but no URL")
    if books != "-" and is_sqlite(books):
        raise click.UsageError(
            f"BOOKS is a file of order books, one a line, or - for standard input; {books} is a store"
        )
    # As Ctrl-C does: what was published is told.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    refused = _Refused()
    with _telling_of_feeds():
        stream = open_stream(books)
        with open_store(target, wait=wait, synchronous=synchronous) as store:
            try:
                if replace:
                    _replace(store, stream, refused)
                else:
                    _publish(store, stream, refused)
            finally:
                if refused.count:
                    click.echo(f"{stream.source}: {refused}", err=True)
    if refused.count or refused.too_large:
        raise SystemExit(EXIT_REFUSED)


@main.command(
    short_help="Keep STORE the same as FEED.",
    epilog=f"""\b
Example:
  market-index relay market.db nats://127.0.0.1:4222/books

\b
Exit codes: 0 ended by a signal, 2 wrong usage, {EXIT_FEED} FEED or STORE cannot be opened.""",
)
@_FEED
@_STORE
@_WAIT
def relay(source: str, target: str, *, wait: float) -> None:
    """Follow FEED and publish it into STORE, until a signal ends that.

    At the start, and after whatever interrupts it, the whole of STORE is made the same as FEED: what FEED does not name
    is retracted, unless FEED has no book at all, or refused something that might name it. STORE is to be the relay's
    alone. While its servers do not answer, it is tried again.
    """
    _set_up_logging(1)
    with _telling_of_feeds(), open_feed(source) as feed:
        relaying = Relay(feed, lambda: open_store(target, wait=wait))
        with ended_by_signals(relaying.close):
            with _progress(feed.source, lambda: relaying.is_closing) as progress:
                receipt = relaying.start(progress)
            told = f"{len(relaying.live.current)} pairs, revision {receipt.revision}"
            click.echo(f"relaying {feed.source} into {relaying.target}: {told}", err=True)
            relaying.run()


class _Refused:
    """The lines that were refused: how many, the numbers of the first, and the pairs that they name, None for any."""

    def __init__(self) -> None:
        self.count = self.too_large = 0
        self.pairs: set[Pair | None] = set()
        self._numbers: list[int] = []

    def told_of(self, publish: Callable[[], Receipt]) -> Receipt:
        """Return the receipt, and say which books were too large."""
        try:
            return publish()
        except BookTooLarge as error:
            self.too_large += len(error.pairs)
            click.echo(str(error), err=True)
            return error.receipt

    def add(self, line: RefusedLine) -> None:
        """Note a line, but not what it holds: there may be any number of them, each of many megabytes."""
        self.count += 1
        self.pairs.add(line.pair)
        if len(self._numbers) < _MOST_NUMBERS:
            self._numbers.append(line.number)

    def __str__(self) -> str:
        more = f" and {self.count - len(self._numbers)} more" if self.count > len(self._numbers) else ""
        return f"{_many(self.count, 'line')} refused: {', '.join(map(str, self._numbers))}{more}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _publish(store: Store, stream: NdjsonStream, refused: _Refused) -> None:
    published, revision, ended = 0, store.revision, False
    try:
        for books in _batches(stream, refused):
            too_large = refused.too_large
            revision = refused.told_of(partial(store.publish, *books)).revision
            published += len(books) - (refused.too_large - too_large)
        ended = True
    finally:
        if published or ended:
            click.echo(f"{store.target}: {_many(published, 'order book')} published, revision {revision}")


def _replace(store: Store, stream: NdjsonStream, refused: _Refused) -> None:
    kept = 0

    def books() -> Iterator[OrderBook]:
        for some in _batches(stream, refused):
            yield from some
        if not stream.books:
            raise _NothingToReplaceBy(f"{stream.source} holds no order book: nothing was changed")

    def keep(pair: Pair) -> bool:
        nonlocal kept
        stays = None in refused.pairs or pair in refused.pairs
        kept += stays
        return stays

    receipt = refused.told_of(lambda: store.replace(books(), keep))
    doubt = f", {kept} kept because of refused lines" if kept else ""
    click.echo(
        f"{store.target}: {_many(stream.books, 'order book')}, of which {receipt.published} are new, "
        f"{_many(receipt.retracted, 'pair')} retracted{doubt}, revision {receipt.revision}"
    )


def _batches(stream: NdjsonStream, refused: _Refused) -> Iterator[list[OrderBook]]:
    """Yield the books of a stream as they come, and show on a terminal how far it was read."""
    with _progress(stream.source) as progress:
        for batch in stream.batches():
            for line in batch.refused:
                refused.add(line)
            if batch.books:
                yield batch.books
            progress(batch.offset, stream.size)


@main.command(
    short_help="Retract a pair from STORE.",
    epilog=f"""\b
Exit codes: 0 it was retracted, {EXIT_ABSENT} it is not in STORE, 2 wrong usage,
{EXIT_FEED} STORE cannot be opened or written.""",
)
@_STORE
@_BASE
@_QUOTE
@_WAIT
def retract(target: str, base: AssetId, quote: AssetId, *, wait: float) -> None:
    """Retract the pair of BASE and QUOTE from STORE: it is tracked no longer."""
    pair = Pair(base, quote)
    with _telling_of_feeds(), open_store(target, wait=wait, make=False) as store:
        receipt = store.retract(pair)
    if not receipt.retracted:
        raise _Absent(f"Pair {pair} not found")
    click.echo(f"{store.target}: {pair} retracted, revision {receipt.revision}")


@main.command(
    short_help="List the pairs of FEED.",
    epilog=f"""\b
Exit codes: 0, 2 wrong usage, {EXIT_FEED} FEED cannot be opened or read, {EXIT_REFUSED} some of it was refused.""",
)
@_FEED
@click.option("--wide", is_flag=True, help="Show identifiers whole, however wide the terminal is.")
@_JSON
def pairs(source: str, *, wide: bool, as_json: bool) -> None:
    """List the pairs of FEED: spot, best bid, best ask, spread, how many levels there are, and the assets.

    Names are what those who made an asset call it: only the identifiers tell which asset it is. In a pipe, columns have
    tabs between them.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    with _telling_of_feeds(), open_feed(source) as feed, _progress(feed.source) as progress:
        index = feed.read(progress)
    _show_pairs(index, wide=wide, as_json=as_json)
    if feed.refused:
        raise SystemExit(EXIT_REFUSED)


def _show_pairs(index: MarketIndex, *, wide: bool, as_json: bool) -> None:
    if as_json:
        click.echo(wire.pair_list_to_json(index.pair_list()))
    elif sys.stdout.isatty():
        _print(terminal.pair_table(index.values(), _terminal(), wide=wide))
    else:
        _print(terminal.pair_rows(index.values()))


@main.command(
    short_help="Show one order book of FEED.",
    epilog=f"""\b
Example:
  market-index book market.db ADA 8db269c3ec630e06ae29f74bc39edd1f87c819f1056206e879a1cd61:446a65644d6963726f555344

\b
Exit codes: 0, {EXIT_ABSENT} FEED does not track the pair, 2 wrong usage, {EXIT_FEED} FEED cannot be opened or read.""",
)
@_FEED
@_BASE
@_QUOTE
@click.option(
    "--depth",
    metavar="N",
    type=click.IntRange(0),
    help=f"Show the best N levels of each side. A terminal is shown {_DEPTH}, a pipe all.",
)
@_JSON
def book(source: str, base: AssetId, quote: AssetId, *, depth: int | None, as_json: bool) -> None:
    """Show the order book of BASE and QUOTE: asks above bids, the best of each in the middle.

    In a pipe, levels stand one a line, with tabs between side, price and amount.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    with _telling_of_feeds(), open_feed(source) as feed:
        found = feed.read_order_book(Pair(base, quote))
    cut = found if depth is None else found.depth(depth)
    if as_json:
        click.echo(wire.order_book_to_json(cut))
    elif sys.stdout.isatty():
        _print(terminal.ladder(found, _DEPTH if depth is None else depth, _terminal()))
    else:
        _print(terminal.ladder_rows(cut))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _terminal() -> terminal.Terminal:
    return terminal.Terminal(
        columns=shutil.get_terminal_size().columns,
        colour=terminal.wants_colour(),
        blocks=terminal.can_show_blocks(sys.stdout.encoding),
    )


def _set_up_logging(workers: int) -> None:
    process = "[%(process)d]" if workers > 1 else ""
    logging.basicConfig(format=f"%(asctime)s %(levelname)s %(name)s{process}: %(message)s", level=logging.WARNING)
    logging.getLogger("market_index_feeds").setLevel(logging.INFO)
    logging.getLogger("uvicorn.access").setLevel(logging.INFO)


def _url(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    with _telling_of(host, port):
        return bind(host, port)


@contextmanager
def _telling_of(host: str, port: int) -> Iterator[None]:
    """Turn whatever keeps the address from being listened on into what the command says and exits with."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _AddressFailed(f"cannot listen on {host} port {port}: {reason}") from None


@contextmanager
def _telling_of_feeds() -> Iterator[None]:
    """Turn whatever is wrong with a feed or a store into what the command says and exits with."""
    try:
        yield
    except (FeedError, StoreError) as error:
        raise _FeedFailed(str(error)) from None
    except PairNotFound as error:
        raise _Absent(str(error)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _FeedFailed(error.strerror or str(error)) from None


@contextmanager
def _progress(label: str, should_exit: Callable[[], bool] = lambda: False) -> Iterator[Progress]:
    """Show on a terminal how the loading of a large source gets on, and end where that was asked for."""
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    with ExitStack() as stack:
        bar: Any = None

        def told(done: int, total: int) -> None:
            nonlocal bar
            if should_exit():
                raise SystemExit(0)
            if bar is None and on_terminal and total >= _LARGE:
                bar = stack.enter_context(click.progressbar(length=total, label=label, file=sys.stderr))
            if bar is not None:
                bar.update(done - bar.pos)

        yield told
