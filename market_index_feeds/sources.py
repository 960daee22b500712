"""Opens feeds and stores by name. Only this module knows all media, and which names belong to which."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, Final, get_args

from market_index import MarketIndexError
from market_index.errors import safe_repr
from market_index_feeds.errors import FeedError, StoreError, reason_of
from market_index_feeds.feed import Feed
from market_index_feeds.lines import STANDARD_INPUT
from market_index_feeds.names import shown_name
from market_index_feeds.ndjson import NdjsonFile, NdjsonStream
from market_index_feeds.orders import DEFAULT_HISTORY, Orders
from market_index_feeds.recording import SAMPLE, Replay, path_of
from market_index_feeds.regular_files import open_without_waiting
from market_index_feeds.source import Source
from market_index_feeds.sqlite import SqliteSource, SqliteStore, Synchronous, is_sqlite
from market_index_feeds.store import WAIT_SECONDS, Store

ORDERS: Final = "orders:"
"""The prefix of the name of a feed of orders. A path, or `-` for standard input, follows it."""

REPLAY: Final = "replay:"
"""The prefix of the name of a feed that replays a recording. The path of the recording follows it."""

BUCKETS: Final = {"nats", "tls"}
"""The URL schemes of a bucket of NATS."""


def open_feed(source: str | os.PathLike[str], *, follow: bool = True) -> Feed:
    """Open the feed that `source` names.

    `source` is one of: a store (`market.db`, or `nats://127.0.0.1:4222/books` with the extra `nats`), a file with one
    order book per line (`books.ndjson`), `-` for standard input, events of orders (`orders:events.ndjson`, `orders:-`),
    a recording (`replay:recording.ndjson`), `sample:`, or the base URL of a running service (`http://127.0.0.1:8000`,
    with the extra `follow`).

    Options follow the last `?` of a name, with `&` between them. `orders:events.ndjson?history=100`: a rollback may go
    back 100 blocks before the last one (by default 2,160). `replay:recording.ndjson?speed=10&loop`: ten times as fast
    as it was recorded, and again after its end. If the path itself contains `?`, add another one: `replay:odd?name?`.
    `sample:` is a recording in this package, replayed in a loop.

    Without `follow`, events of orders in a file are read once, to its end.

    >>> open_feed("nowhere/books.ndjson")
    Traceback (most recent call last):
    market_index_feeds.errors.FeedError: nowhere/books.ndjson cannot be opened: No such file or directory

    Raises:
        FeedError: The source cannot be opened, its kind is not known, or an option is unknown or invalid.
    """
    return Feed(_source(os.fspath(source), follow=follow))


def open_lines(source: str | os.PathLike[str]) -> NdjsonStream:
    """Open a file of order books, or `-` for standard input, to read the changes of its lines once, to its end.

    Raises:
        FeedError: It cannot be opened, or is not a file of order books.
    """
    name = os.fspath(source)
    is_other = name.startswith((ORDERS, REPLAY, SAMPLE)) or "://" in name
    if is_other or (name != STANDARD_INPUT and is_sqlite(name)):
        raise FeedError(f"{shown_name(name)} cannot be opened: it must be a file of order books, one per line")
    if stat.S_ISREG(_mode(name)):
        try:
            os.close(open_without_waiting(name, os.O_RDONLY))
        except OSError as error:
            raise FeedError(f"{shown_name(name)} cannot be opened: {reason_of(error)}") from None
    return NdjsonStream(name)


def open_store(
    target: str | os.PathLike[str],
    *,
    wait: float = WAIT_SECONDS,
    synchronous: Synchronous = "full",
    create: bool = True,
) -> Store:
    """Open the store that `target` names, for publishing.

    `target` is a file (`market.db`), or a bucket of NATS JetStream (`nats://127.0.0.1:4222/books`, with the extra
    `nats`). A store that does not exist is created, unless `create` is False. The name of a file must not end in
    `.ndjson`, `.jsonl`, `.json` or `.csv`: such a name means a text file.

    Other processes may have the store open at the same time. The writers of a file take turns; one that waits longer
    than `wait` seconds raises `StoreBusy`. Acknowledged changes of a file survive a power cut. With
    `synchronous="normal"`, writes are several times as fast, and acknowledged changes survive only a crash of programs.
    The servers of a bucket must acknowledge a change within `wait` seconds, otherwise `UnknownOutcome` is raised. The
    durability of a bucket is configured at its servers.

    >>> from market_index import ADA, AssetId, OrderBook, Pair
    >>> from tempfile import TemporaryDirectory
    >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), bids=[("0.0041", 250)])
    >>> with TemporaryDirectory() as folder, open_store(f"{folder}/market.db") as store:
    ...     store.publish(book)
    ...     store.retract(book.pair)
    Receipt(published=1, retracted=0)
    Receipt(published=0, retracted=1)

    Raises:
        StoreError: The store cannot be opened, or its kind is not known.
    """
    name = os.fspath(target)
    scheme, mark, _ = name.partition("://")
    if not (isinstance(wait, (int, float)) and wait >= 0):
        raise StoreError(f"{shown_name(name)} cannot be opened: wait must be 0 or more seconds, got {safe_repr(wait)}")
    if synchronous not in get_args(Synchronous):
        raise StoreError(
            f"{shown_name(name)} cannot be opened: synchronous must be 'full' or 'normal', got {safe_repr(synchronous)}"
        )
    kinds = {ORDERS: "events of orders", REPLAY: "a replay", SAMPLE: "the sample"}
    for prefix, kind in kinds.items():
        if name.startswith(prefix):
            raise StoreError(f"a store must be a file such as market.db, or a bucket, got {kind}: {safe_repr(name)}")
    if name == STANDARD_INPUT:
        raise StoreError("a store must be a file such as market.db, or a bucket, got '-', which is standard input")
    if not mark:
        return SqliteStore(name, wait=wait, synchronous=synchronous, create=create)
    if scheme.lower() not in BUCKETS:
        raise StoreError(
            f"{shown_name(name)} cannot be opened: the scheme of a store must be nats or tls, got {safe_repr(scheme)}"
        )
    if synchronous != "full":
        raise StoreError(
            f"{shown_name(name)} cannot be opened: synchronous must be 'full' for a bucket, got "
            f"{safe_repr(synchronous)} (its servers determine its durability)"
        )
    with _requiring("nats", "nats", name, StoreError):
        from market_index_feeds.nats import open_nats_store  # noqa: PLC0415  # it needs the extra `nats`
    return open_nats_store(name, wait=wait, create=create)


def _source(name: str, *, follow: bool) -> Source:
    if name == SAMPLE:
        return Replay(name, loop=True)
    if name.startswith(REPLAY):
        path, options = _split(name, REPLAY, {"speed": _speed, "loop": _flag})
        try:
            path_of(path).open("rb").close()
        except (OSError, ValueError) as error:
            raise FeedError(f"{shown_name(path)} cannot be replayed: {reason_of(error)}") from None
        return Replay(path, speed=options.get("speed", 1.0), loop="loop" in options)
    if name.startswith(ORDERS):
        path, options = _split(name, ORDERS, {"history": _blocks})
        is_file = stat.S_ISREG(_mode(path))
        return Orders(path, options.get("history", DEFAULT_HISTORY), is_stream=not (is_file and follow))
    if "://" in name:
        return _remote_source(name)
    if name != STANDARD_INPUT and is_sqlite(name):
        return SqliteSource(name)
    return NdjsonFile(name) if stat.S_ISREG(_mode(name)) else NdjsonStream(name)


def _remote_source(name: str) -> Source:
    scheme = name.partition("://")[0].lower()
    if scheme in {"http", "https"}:
        with _requiring("httpx", "follow", name, FeedError):
            from market_index_feeds.service import ServiceSource  # noqa: PLC0415  # it needs the extra `follow`
        return ServiceSource(name)
    if scheme in BUCKETS:
        with _requiring("nats", "nats", name, FeedError):
            from market_index_feeds.nats import open_nats_source  # noqa: PLC0415  # it needs the extra `nats`
        return open_nats_source(name)
    raise FeedError(
        f"{shown_name(name)} cannot be opened: the scheme of a feed must be http, https, nats or tls, "
        f"got {safe_repr(scheme)}"
    )


def _mode(name: str) -> int:
    """Return the mode of a file of lines. Raises `FeedError` if it is missing, or of another kind."""
    try:
        if name == STANDARD_INPUT:
            os.read(0, 0)  # fails if it is closed or write-only
            return stat.S_IFIFO
        mode = Path(name).stat().st_mode
    except (OSError, ValueError) as error:
        shown = "standard input" if name == STANDARD_INPUT else shown_name(name)
        raise FeedError(f"{shown} cannot be opened: {reason_of(error)}") from None
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISREG(mode)):
        raise FeedError(f"{shown_name(name)} cannot be opened: it must be a regular file, a pipe or a character device")
    return mode


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


@contextmanager
def _requiring(package: str, extra: str, name: str, error: type[MarketIndexError]) -> Iterator[None]:
    """Raise an `error` that names the extra to install if a package is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != package:
            raise
        raise error(
            f"{shown_name(name)} cannot be opened: the extra {extra} must be installed "
            f"(pip install 'market-index[{extra}]')"
        ) from None
