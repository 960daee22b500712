"""Opens feeds and stores by name. Only this module knows all media, and which names belong to which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from os import PathLike, fspath
from typing import Any, Final

from market_index import MarketIndexError
from market_index.errors import safe_repr
from market_index_feeds.errors import FeedError
from market_index_feeds.feed import Feed
from market_index_feeds.medium import Source
from market_index_feeds.ndjson import SAMPLE, Recorder, open_ndjson_source, open_replay_source, replay
from market_index_feeds.opened import shown_name
from market_index_feeds.orders import DEFAULT_HISTORY, open_orders_source
from market_index_feeds.sqlite import WAIT_SECONDS, Synchronous, is_sqlite, open_sqlite_source, open_sqlite_store
from market_index_feeds.store import Store, StoreError

__all__ = ["Recorder", "is_sqlite", "open_feed", "open_store", "replay"]

ORDERS: Final = "orders:"
"""The prefix of the name of a feed of orders. A path, or `-` for standard input, follows it."""

REPLAY: Final = "replay:"
"""The prefix of the name of a feed that replays a recording. The path of the recording follows it."""

BUCKETS: Final = {"nats", "tls"}
"""The URL schemes of a bucket of NATS."""


def open_feed(source: str | PathLike[str], *, follow: bool = True) -> Feed:
    """Open the feed that `source` names.

    `source` is one of: a store (`market.db`, or `nats://127.0.0.1:4222/books` with the extra `nats`), a file with one
    order book per line (`books.ndjson`), `-` for standard input, events of orders (`orders:events.ndjson`, `orders:-`),
    a recording (`replay:recording.ndjson`), `sample:`, or the base URL of a running service (`http://127.0.0.1:8000`).
    Nothing is published before the feed is started.

    Options follow the last `?` of a name, with `&` between them. `orders:events.ndjson?history=100`: a rollback may go
    back 100 blocks before the last one (by default 2,160). `replay:recording.ndjson?speed=10&loop`: ten times as fast
    as it was recorded, and again after its end. If the path itself contains `?`, add another one: `replay:odd?name?`.
    `sample:` is a recording in this package, replayed in a loop.

    Without `follow`, a file of lines is read once, to its end: a last line without a newline is then rejected.

    >>> open_feed("nowhere/books.ndjson")
    Traceback (most recent call last):
    market_index_feeds.errors.FeedError: nowhere/books.ndjson cannot be opened: No such file or directory

    Raises `FeedError` if the source cannot be opened, its kind is not known, or an option is unknown or invalid.
    """
    name = fspath(source)
    if name == SAMPLE:
        return Feed(open_replay_source(name, 1.0, loop=True))
    if name.startswith(REPLAY):
        path, options = _split(name, REPLAY, {"speed": _speed, "loop": _flag})
        return Feed(open_replay_source(path, options.get("speed", 1.0), loop="loop" in options))
    if name.startswith(ORDERS):
        path, options = _split(name, ORDERS, {"history": _blocks})
        return Feed(open_orders_source(path, options.get("history", DEFAULT_HISTORY), follow=follow))
    return Feed(_open_source(name, follow=follow))


def _split(name: str, prefix: str, known: Mapping[str, Callable[[str], Any]]) -> tuple[str, dict[str, Any]]:
    """Return the path in a name, and its options. `known` converts the text of each option, or raises `ValueError`."""
    path, mark, texts = name.removeprefix(prefix).rpartition("?")
    options: dict[str, Any] = {}
    if not mark:
        return texts, options
    for text in texts.split("&") if texts else ():
        option, _, value = text.partition("=")
        if option not in known:
            raise FeedError(
                f"{shown_name(name)} cannot be opened: an option, after '?', must be {' or '.join(known)}, got "
                f"{safe_repr(option)} (a path that contains '?' must be followed by another '?')"
            )
        if option in options:
            raise FeedError(f"{shown_name(name)} cannot be opened: option {option} must be given once")
        try:
            options[option] = known[option](value)
        except ValueError as error:
            raise FeedError(f"{shown_name(name)} cannot be opened: {error}") from None
    return path, options


def _speed(text: str) -> float:
    with suppress(ValueError):
        if 0 < (speed := float(text)) < inf:
            return speed
    raise ValueError(f"speed must be a number above 0, got {safe_repr(text)}")


def _blocks(text: str) -> int:
    with suppress(ValueError):
        if (blocks := int(text)) >= 0:
            return blocks
    raise ValueError(f"history must be a number of blocks, 0 or more, got {safe_repr(text)}")


def _flag(text: str) -> bool:
    if text:
        raise ValueError(f"loop must have no value, got {safe_repr(text)}")
    return True


def _open_source(name: str, *, follow: bool) -> Source:
    scheme, mark, _ = name.partition("://")
    if not mark:
        is_store = name != "-" and is_sqlite(name)
        return open_sqlite_source(name) if is_store else open_ndjson_source(name, follow=follow)
    if scheme.lower() in {"http", "https"}:
        from market_index_feeds.http import open_http_source  # noqa: PLC0415  # http.client, ssl and email load 20 modules

        return open_http_source(name)
    if scheme.lower() in BUCKETS:
        with _requiring_nats(name, FeedError):
            from market_index_feeds.nats import open_nats_source  # noqa: PLC0415  # it needs the extra `nats`
        return open_nats_source(name)
    raise FeedError(
        f"{shown_name(name)} cannot be opened: the scheme of a feed must be http, https, nats or tls, "
        f"got {safe_repr(scheme)}"
    )


def open_store(
    target: str | PathLike[str], *, wait: float = WAIT_SECONDS, synchronous: Synchronous = "full", make: bool = True
) -> Store:
    """Open the store that `target` names, for publishing.

    `target` is a file (`market.db`), or a bucket of NATS JetStream (`nats://127.0.0.1:4222/books`, with the extra
    `nats`). A store that does not exist is created, unless `make` is False. The name of a file must not end in
    `.ndjson`, `.json` or `.csv`: such a name means a text file.

    Other processes may have the store open at the same time. The writers of a file take turns; one that waits longer
    than `wait` seconds raises `StoreBusy`. Acknowledged changes of a file survive a power cut. With
    `synchronous="normal"`, writes are several times as fast, and acknowledged changes survive only a crash of programs.
    The servers of a bucket must acknowledge a change within `wait` seconds, otherwise `Unacknowledged` is raised. The
    durability of a bucket is configured at its servers.

    >>> from market_index import ADA, AssetId, OrderBook, Pair
    >>> from tempfile import TemporaryDirectory
    >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), bids=[("0.0041", 250)])
    >>> with TemporaryDirectory() as folder, open_store(f"{folder}/market.db") as store:
    ...     store.publish(book)
    ...     store.retract(book.pair)
    Receipt(revision=1, published=1, retracted=0)
    Receipt(revision=2, published=0, retracted=1)

    Raises `StoreError` if the store cannot be opened, or its kind is not known.
    """
    name = fspath(target)
    scheme, mark, _ = name.partition("://")
    if name == "-":
        raise StoreError("a store must be a file such as market.db, or a bucket, got '-', which is standard input")
    for prefix, what in ((ORDERS, "events of orders"), (REPLAY, "a replay"), (SAMPLE, "the sample")):
        if name.startswith(prefix):
            raise StoreError(f"a store must be a file such as market.db, or a bucket, got {what}: {safe_repr(name)}")
    if not mark:
        return open_sqlite_store(name, wait=wait, synchronous=synchronous, make=make)
    if scheme.lower() not in BUCKETS:
        raise StoreError(
            f"{shown_name(name)} cannot be opened: the scheme of a store must be nats or tls, got {safe_repr(scheme)}"
        )
    if synchronous != "full":
        raise StoreError(
            f"{shown_name(name)} cannot be opened: synchronous must be 'full' for a bucket, got "
            f"{safe_repr(synchronous)} (its servers determine its durability)"
        )
    with _requiring_nats(name, StoreError):
        from market_index_feeds.nats import open_nats_store  # noqa: PLC0415  # it needs the extra `nats`
    return open_nats_store(name, wait=wait, make=make)


@contextmanager
def _requiring_nats(name: str, error: type[MarketIndexError]) -> Iterator[None]:
    """Raise an `error` that names the extra to install if the client library is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "nats":
            raise
        raise error(
            f"{shown_name(name)} cannot be opened: the extra nats must be installed (pip install '.[nats]')"
        ) from None
