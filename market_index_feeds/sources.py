"""The table of kinds: how the name of a feed or a store begins, what it contains, and how it is opened.

Only this module knows all media of the package. Other packages add rows with `register_kind`, or with an entry point
of the group `market_index.kinds`, whose value is a `Kind`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from functools import cache, partial
from importlib.metadata import entry_points
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from attrs import evolve, field, frozen

from market_index import MarketIndexError, Pair
from market_index.errors import missing_extra, safe_repr
from market_index_feeds.book_lines import BookLines
from market_index_feeds.errors import FeedError, StoreError, reason_of
from market_index_feeds.feed import Feed
from market_index_feeds.keeper import FileKeeper, Keeper
from market_index_feeds.names import STANDARD_INPUT, shown_file, shown_name
from market_index_feeds.orders import DEFAULT_HISTORY, Orders
from market_index_feeds.recording import SAMPLE, Replay
from market_index_feeds.regular_files import open_regular
from market_index_feeds.source import Source
from market_index_feeds.sqlite import SqliteSource, SqliteStore, Synchronous, is_sqlite
from market_index_feeds.store import WAIT_SECONDS, Store

if TYPE_CHECKING:
    from market_index_feeds.ledger import Exchange, Selection


class Contents(Enum):
    """What a source contains, and so how it gets into a store."""

    CHANGES = "lines, each of which changes one pair: they are published"
    STATES = "the states of one producer, up to its end: they are mirrored"
    COPY = "what others publish, without an end: it is relayed"


@frozen
class Opening:
    """The arguments of a function that opens a source.

    `target` is the name without the prefix and the options of its kind. `shown` is the name in messages. An option that
    may be repeated has a list of values.
    """

    target: str
    shown: str
    options: Mapping[str, Any]
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    exchanges: tuple[Exchange, ...] = ()
    follow: bool = True

    def error(self, reason: object) -> FeedError:
        """Return the error that the source cannot be opened."""
        return FeedError(f"{self.shown} cannot be opened: {reason}")


@frozen
class Kind:
    """A row of the table.

    Args:
        noun: What it is, in messages.
        contents: What a source of this kind contains.
        open_source: Opens a source. Its `is_stream` says whether it can be read only once.
        open_store: Opens a store by its name, with the arguments of `open_store`; None if it is no store.
        open_keeper: Opens the keeper of a store by its name.
        prefix: How its names begin. A kind with neither a prefix nor a scheme is known by its file.
        schemes: The schemes of its URLs, in lower case.
        options: The options that may follow the last `?` of a name. Each function converts the text of one, or raises
            `ValueError`.
        repeatable: The options that may be given more than once.
        extra: The extra that must be installed.
        takes_headers: Whether it sends requests of HTTP, with the headers of the caller.
        has_quota: Whether the requests of a day are limited, so that one process reads for all.
        takes_exchanges: Whether it reads exchanges of the ledger, and accepts further ones of the caller.
        takes_synchronous: Whether `open_store` gets the argument `synchronous`.
    """

    noun: str
    contents: Contents
    open_source: Callable[[Opening], Source]
    open_store: Callable[..., Store] | None = None
    open_keeper: Callable[[str], Keeper] = FileKeeper
    prefix: str = ""
    schemes: tuple[str, ...] = ()
    options: Mapping[str, Callable[[str], Any]] = field(factory=dict)
    repeatable: frozenset[str] = frozenset()
    extra: str | None = None
    takes_headers: bool = False
    takes_exchanges: bool = False
    takes_synchronous: bool = False
    has_quota: bool = False

    @property
    def prefixes(self) -> list[str]:
        """How names of this kind may begin."""
        return [self.prefix] if self.prefix else [f"{scheme}://" for scheme in self.schemes]

    def shown(self, name: str) -> str:
        """Return a name of this kind as messages show it."""
        return self.prefix + shown_name(name.removeprefix(self.prefix))

    def opening(self, name: str, **arguments: Any) -> Opening:
        """Return the arguments for opening a name of this kind. Raises `FeedError` if an option is not valid."""
        target, texts, options = name.removeprefix(self.prefix), "", dict[str, Any]()
        if self.options and "?" in target:
            target, _, texts = target.rpartition("?")
        opening = Opening(target, self.shown(name), options, **arguments)
        for text in texts.split("&") if texts else ():
            option, _, value = text.partition("=")
            if option not in self.options:
                remedy = "" if self.takes_headers else " (a path that contains '?' must be followed by another '?')"
                raise opening.error(
                    f"an option, after '?', must be {' or '.join(self.options)}, got {safe_repr(option)}{remedy}"
                )
            if option in options and option not in self.repeatable:
                raise opening.error(f"option {option} must be given once")
            try:
                found = self.options[option](value)
            except ValueError as error:
                raise opening.error(error) from None
            options[option] = [*options.get(option, ()), found] if option in self.repeatable else found
        return opening

    @contextmanager
    def requirements(self, name: str, error: type[MarketIndexError]) -> Iterator[None]:
        """Raise an error that names the extra to install if a package is missing, or what is wrong with the name."""
        try:
            yield
        except ModuleNotFoundError as missing:
            if self.extra is None:
                raise
            raise error(str(missing_extra(self.shown(name), self.extra, missing))) from None
        except ValueError as wrong:
            raise error(f"{self.shown(name)} cannot be opened: {wrong}") from None


def kind_of(name: str) -> Kind:
    """Return the kind of a feed or a store. Raises `FeedError` if its scheme is not known."""
    scheme, mark, _ = name.partition("://")
    if (kind := _named_kind(name)) is not None:
        return kind
    if ":" in name:
        _register_installed()
        if (kind := _named_kind(name)) is not None:
            return kind
    if mark:
        *schemes, last = (scheme for kind in KINDS for scheme in kind.schemes)
        raise FeedError(
            f"{shown_name(name)} cannot be opened: a scheme must be {', '.join(schemes)} or {last}, "
            f"got {safe_repr(scheme)}"
        )
    return SQLITE if name != STANDARD_INPUT and is_sqlite(name) else LINES


def _named_kind(name: str) -> Kind | None:
    """Return the kind that the beginning of a name says."""
    scheme, mark, _ = name.partition("://")
    for kind in KINDS:
        if (kind.prefix and name.startswith(kind.prefix)) or (mark and scheme.lower() in kind.schemes):
            return kind
    return None


def register_kind(kind: Kind) -> None:
    """Add a kind of feeds or stores, for all functions and commands that open one by its name.

    An installed package needs no call: it has an entry point of the group `market_index.kinds`, whose value is the
    `Kind`. It is registered once a name begins with a prefix or a scheme that is not known yet.

    Raises:
        ValueError: The kind has neither a prefix that ends in a colon nor a scheme, or another kind has one of them.
    """
    if not kind.prefixes or not kind.prefixes[0].endswith((":", "://")):
        raise ValueError(f"a kind must have a prefix that ends in a colon, or schemes, got {safe_repr(kind)}")
    for name in kind.prefixes:
        if (other := _named_kind(name)) is not None:
            raise ValueError(f"{kind.noun} must have a name of its own, got {name}, which is {other.noun}")
    KINDS.append(kind)


@cache
def _register_installed() -> None:
    """Register the kinds of the packages that are installed."""
    for entry in entry_points(group="market_index.kinds"):
        try:
            register_kind(entry.load())
        except Exception as error:
            raise FeedError(f"the kind {entry.value} of an installed package is not valid: {error!r}") from error


def open_feed(
    source: str | os.PathLike[str],
    *,
    follow: bool = True,
    headers: Mapping[str, str] | None = None,
    exchanges: Iterable[Exchange] = (),
) -> Feed:
    """Open the feed that `source` names.

    `source` is one of: a store (`market.db`, or `nats://127.0.0.1:4222/books` with the extra `nats`), a file with one
    order book per line (`books.ndjson`), `-` for standard input, events of orders (`orders:events.ndjson`, `orders:-`),
    a recording (`replay:recording.ndjson`), `sample:`, the base URL of a running service (`http://127.0.0.1:8000`, with
    the extra `follow`), or the orders of the ledger in a running Kupo (`kupo:http://127.0.0.1:1442`, with the extra
    `ledger`) or in Koios, a public index (`koios:`).

    Options follow the last `?` of a name, with `&` between them. If the path itself contains `?`, add another one at
    its end: `replay:odd?name?`.

    - `orders:events.ndjson?history=100`: a rollback may go back 100 blocks before the last one (by default 2,160).
    - `replay:recording.ndjson?speed=10&loop`: ten times as fast as it was recorded, and again after its end.
    - `kupo:http://127.0.0.1:1442?pair=BASE/QUOTE&only`: this pair is always listed, with this base, and no other pair
      is listed. `pair` may be repeated. With `hours=48`, an execution is a spot price for 48 hours instead of 24.

    - `koios:?every=60`: read each minute instead of every five; the others are those of `kupo:`.

    `sample:` is a recording in this package, replayed in a loop.

    >>> open_feed("nowhere/books.ndjson")
    Traceback (most recent call last):
    market_index_feeds.errors.FeedError: nowhere/books.ndjson cannot be opened: No such file or directory

    Args:
        source: The name.
        follow: Without it, events of orders in a file are read once, to its end.
        headers: Sent with each request to a service or a Kupo, such as `{"X-API-Key": "..."}`. They are not logged.
        exchanges: Exchanges of the ledger that are read besides those of `market_index_feeds.ledger.EXCHANGES`.

    Raises:
        FeedError: The source cannot be opened, its kind is not known, an option is unknown or invalid, or a header is
            not valid, or an argument is not for this kind of source.
    """
    name = os.fspath(source)
    kind = kind_of(name)
    opening = kind.opening(name, follow=follow, headers=dict(headers or {}), exchanges=tuple(exchanges))
    if opening.headers and not kind.takes_headers:
        raise opening.error(f"headers are sent to a service, got {kind.noun}")
    if opening.exchanges and not kind.takes_exchanges:
        raise opening.error(f"exchanges are those of the ledger, got {kind.noun}")
    with kind.requirements(name, FeedError):
        return Feed(kind.open_source(opening))


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
    The servers of a bucket must acknowledge a change within `wait` seconds, otherwise `UnknownOutcome` is raised. With
    0, it is tried once. The durability of a bucket is configured at its servers.

    >>> from market_index import ADA, AssetId, OrderBook, Pair
    >>> from tempfile import TemporaryDirectory
    >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), bids=[("0.0041", 250)])
    >>> with TemporaryDirectory() as folder, open_store(f"{folder}/market.db") as store:
    ...     store.publish(book)
    ...     store.retract(book.pair)
    Receipt(published=1, retracted=0)
    Receipt(published=0, retracted=1)

    Raises:
        StoreError: The store cannot be opened, its kind is not known, or an argument is not valid.
    """
    name = os.fspath(target)
    kind, open_medium = _store_kind(name)
    shown = kind.shown(name)
    if type(wait) not in {int, float} or not wait >= 0:
        raise StoreError(f"{shown} cannot be opened: wait must be 0 or more seconds, got {safe_repr(wait)}")
    if synchronous not in get_args(Synchronous):
        raise StoreError(
            f"{shown} cannot be opened: synchronous must be 'full' or 'normal', got {safe_repr(synchronous)}"
        )
    options: dict[str, Any] = {"synchronous": synchronous} if kind.takes_synchronous else {}
    if synchronous != "full" and not options:
        raise StoreError(f"{shown} cannot be opened: synchronous must be 'full' for {kind.noun}, got 'normal'")
    with kind.requirements(name, StoreError):
        try:
            return open_medium(name, wait=wait, create=create, **options)
        except StoreError:
            raise
        except (FeedError, OSError) as error:  # of a kind of another package
            raise StoreError(f"{shown} cannot be opened: {reason_of(error)}") from error


def open_keeper(target: str) -> Keeper:
    """Return the keeper of the store that `target` names. Raises `StoreError`, as `open_store`."""
    kind, _ = _store_kind(target)
    with kind.requirements(target, StoreError):
        return kind.open_keeper(target)


def _store_kind(name: str) -> tuple[Kind, Callable[..., Store]]:
    """Return the kind of a store, and what opens it. Raises `StoreError`."""
    try:
        kind = kind_of(name)
    except FeedError as error:
        raise StoreError(str(error)) from None
    if kind is LINES and name != STANDARD_INPUT:
        kind = SQLITE  # a new file, or one that it rejects
    if kind.open_store is None:
        shown = safe_repr(kind.shown(name))
        raise StoreError(f"a store must be a file such as market.db, or a bucket, got {kind.noun}: {shown}")
    return kind, kind.open_store


# What opens each kind. Each imports what needs an extra when it is called.


def _open_sample(opening: Opening) -> Source:
    if opening.target:
        raise opening.error(f"nothing must follow {SAMPLE}, got {safe_repr(opening.target)}")
    return Replay(SAMPLE, loop=True)


def _open_replay(opening: Opening) -> Source:
    try:
        open_regular(Path(opening.target)).close()
    except (OSError, ValueError) as error:
        raise FeedError(f"{shown_name(opening.target)} cannot be replayed: {reason_of(error)}") from None
    return Replay(opening.target, speed=opening.options.get("speed", 1.0), loop="loop" in opening.options)


def _open_orders(opening: Opening) -> Source:
    if not opening.target:
        raise opening.error("the name of a file must follow orders:, or - for standard input")
    is_file = stat.S_ISREG(_mode(opening.target))
    history = opening.options.get("history", DEFAULT_HISTORY)
    return Orders(opening.target, history, is_stream=not (is_file and opening.follow))


def _open_service(opening: Opening) -> Source:
    from market_index_feeds.service import ServiceSource  # noqa: PLC0415  # it needs the extra `follow`

    return ServiceSource(opening.target, opening.headers)


def _open_kupo(opening: Opening) -> Source:
    from market_index_feeds.ledger import KupoSource  # noqa: PLC0415  # it needs the extra `ledger`

    return KupoSource(opening.target, _selection(opening), headers=opening.headers)


def _open_koios(opening: Opening) -> Source:
    from market_index_feeds.ledger import KoiosSource  # noqa: PLC0415  # it needs the extra `ledger`

    every = {name: value for name, value in opening.options.items() if name == "every"}
    return KoiosSource(opening.target, _selection(opening), headers=opening.headers, **every)


def _selection(opening: Opening) -> Selection:
    """Return which orders of the ledger are read."""
    from market_index_feeds.ledger import Selection  # noqa: PLC0415  # the same

    options = {name: value for name, value in opening.options.items() if name in _SELECTION}
    pairs = options.pop("pair", ())
    if "only" in options and not pairs:
        raise opening.error("only hides all pairs except those of pair=BASE/QUOTE, got no such pair")
    if len({frozenset({pair.base, pair.quote}) for pair in pairs}) < len(pairs):
        raise opening.error("pair must name two assets once, with one of them as the base")
    return Selection(opening.exchanges, pairs=pairs, **options)


def _open_bucket(opening: Opening) -> Source:
    from market_index_feeds.nats import BucketAddress, NatsSource  # noqa: PLC0415  # it needs the extra `nats`

    return NatsSource(BucketAddress.parse(opening.target))


def _open_bucket_store(name: str, *, wait: float, create: bool) -> Store:
    from market_index_feeds.nats import BucketAddress, NatsStore  # noqa: PLC0415  # it needs the extra `nats`

    return NatsStore(BucketAddress.parse(name), wait=wait, create=create)


def _open_bucket_keeper(name: str) -> Keeper:
    from market_index_feeds.nats import BucketAddress, BucketKeeper  # noqa: PLC0415  # it needs the extra `nats`

    return BucketKeeper(BucketAddress.parse(name))


def _open_lines(opening: Opening) -> Source:
    return BookLines(opening.target, is_stream=not stat.S_ISREG(_mode(opening.target)))


def _mode(name: str) -> int:
    """Return the mode of a file of lines. Raises `FeedError` if it is missing, or of another kind."""
    try:
        if name == STANDARD_INPUT:
            os.read(0, 0)  # fails if it is closed or write-only
            return stat.S_IFIFO
        mode = Path(name).stat().st_mode
    except (OSError, ValueError) as error:
        prefixes = [prefix for kind in KINDS for prefix in kind.prefixes]
        remedy = f" (a prefix must be {', '.join(prefixes)})" if ":" in name else ""
        raise FeedError(f"{shown_file(name)} cannot be opened: {reason_of(error)}{remedy}") from None
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISREG(mode)):
        raise FeedError(f"{shown_name(name)} cannot be opened: it must be a regular file, a pipe or a character device")
    return mode


# The conversions of options.


def _speed(text: str) -> float:
    with suppress(ValueError):
        if 0 < (speed := float(text)) < inf:
            return speed
    raise ValueError(f"speed must be a number above 0, got {safe_repr(text)}")


def _integer(option: str, what: str, bounds: range, text: str) -> int:
    with suppress(ValueError):
        if (number := int(text)) in bounds:
            return number
    raise ValueError(f"{option} must be {what}, got {safe_repr(text)}")


def _flag(option: str, text: str) -> bool:
    if text:
        raise ValueError(f"{option} must have no value, got {safe_repr(text)}")
    return True


def _pair(text: str) -> Pair:
    pair = Pair.parse(text)
    if pair.base == pair.quote:
        raise ValueError(f"a pair must have two assets, got {safe_repr(text)}")
    return pair


def _network(text: str) -> str:
    if text not in {"mainnet", "preprod", "preview"}:
        raise ValueError(f"network must be mainnet, preprod or preview, got {safe_repr(text)}")
    return text


_BLOCKS: Final = partial(_integer, "history", "a number of blocks, 0 or more", range(2**63))

_SELECTION: Final[Mapping[str, Callable[[str], Any]]] = {
    "pair": _pair,
    "only": partial(_flag, "only"),
    "hours": partial(_integer, "hours", "a number of hours, from 1 to 100000", range(1, 100_001)),
    "network": _network,
    "venues": lambda text: tuple(text.split(",")),
    "least_execution": partial(_integer, "least_execution", "a number of lovelace, 0 or more", range(2**63)),
}
"""The options of a feed of the ledger: the arguments of `Selection`."""

LINES: Final = Kind("lines of order books", Contents.CHANGES, _open_lines)

SQLITE: Final = Kind(
    "a store", Contents.COPY, lambda opening: SqliteSource(opening.target), SqliteStore, takes_synchronous=True
)

EVENTS: Final = Kind("events of orders", Contents.STATES, _open_orders, prefix="orders:", options={"history": _BLOCKS})

_KUPO: Final = Kind(
    "the ledger",
    Contents.STATES,
    _open_kupo,
    prefix="kupo:",
    options=_SELECTION,
    repeatable=frozenset({"pair"}),
    extra="ledger",
    takes_headers=True,
    takes_exchanges=True,
)

KINDS: Final = [
    LINES,
    SQLITE,
    Kind("the sample", Contents.STATES, _open_sample, prefix=SAMPLE),
    Kind(
        "a replay",
        Contents.STATES,
        _open_replay,
        prefix="replay:",
        options={"speed": _speed, "loop": partial(_flag, "loop")},
    ),
    EVENTS,
    _KUPO,
    evolve(
        _KUPO,
        noun="the ledger in Koios",
        open_source=_open_koios,
        prefix="koios:",
        options={**_SELECTION, "every": partial(_integer, "every", "a number of seconds, 1 or more", range(1, 86_401))},
        has_quota=True,
    ),
    Kind(
        "a service",
        Contents.COPY,
        _open_service,
        schemes=("http", "https"),
        extra="follow",
        takes_headers=True,
    ),
    Kind(
        "a bucket",
        Contents.COPY,
        _open_bucket,
        _open_bucket_store,
        _open_bucket_keeper,
        schemes=("nats", "tls"),
        extra="nats",
    ),
]
"""All kinds of feeds and stores that are registered."""
