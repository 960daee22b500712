"""The stream of changes: server-sent events at `/stream` (decision 28).

Theory of operation
    For each client the server knows only the version that it has sent, which is an immutable index. It sends the
    difference to the current version when the client has accepted what was sent before. So a slow client gets fewer
    versions, each consistent and exact, and there is no queue.

    One task for each event loop waits for the next version, and wakes the clients whose pairs it changes. A client that
    waits refers to no version: the task gives it the version before the change. The text of an event is made once for
    each step from one version to the current one, and shared by all clients that take this step.

    sse-starlette sends the comments that keep a connection open, closes a client that accepts nothing, and ends the
    streams when uvicorn shuts down.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from typing import Final, cast, final
from weakref import WeakKeyDictionary

from anyio import Event
from attrs import define, field, frozen
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from market_index import AssetId, InvalidAssetId, LiveIndex, MarketIndex, Pair
from market_index.errors import safe_repr
from market_index.wire import freshness_to_json, order_book_changes_to_json, order_book_to_json, pair_to_json
from market_index_http.endpoints import require_small

PING_SECONDS: Final = 5
"""The interval of comments. A client that has received nothing for 15 seconds knows that the connection is dead."""

SEND_SECONDS: Final = 30
"""How long a client may accept nothing."""

RETRY_MILLISECONDS: Final = 1_000
"""After which time a browser connects again, up to a quarter more, so that clients do not return together."""

SHUTDOWN_SECONDS: Final = 1.0
"""How long a shutdown of uvicorn waits for a stream to end before it cancels it."""

MAX_STREAMS: Final = 1_000
"""How many streams may be open by default."""

PIECE_BYTES: Final = 16 * 1024
"""How many bytes of events are joined before they are sent. A longer event is sent alone, without a copy."""


@final
@frozen(eq=False)
class _Version:
    """A version of the index, compared by identity."""

    index: MarketIndex


_NOTHING: Final = _Version(MarketIndex())
"""What a client has at first."""


@final
@define(eq=False)
class _Client:
    """One stream: what it asked for, and the version that it has."""

    pairs: frozenset[Pair] | None
    """The pairs; None for all."""
    as_changes: bool
    sent: _Version | None
    """None: the client waits, and its books are those of the current version."""
    woken: asyncio.Event = field(factory=asyncio.Event)
    has_ended: bool = False

    def is_open(self) -> bool:
        """Whether the stream has not been ended."""
        return not self.has_ended

    def set(self) -> None:
        """End the stream. sse-starlette calls this at a shutdown, as the method of an event."""
        self.has_ended = True
        self.woken.set()


@final
class _Step:
    """The difference of two versions, and the text of its events."""

    def __init__(self, before: _Version, after: _Version) -> None:
        self.before: Final = before
        self.after: Final = after
        self._is_first: Final = before is _NOTHING
        self.changes_freshness: Final = self._is_first or before.index.freshness != after.index.freshness
        changed, removed = after.index.changes_since(before.index)
        self.pairs: Final = frozenset([*[book.pair for book in changed], *removed])
        self._events: dict[tuple[Pair, bool], bytes] = {}

    def pieces(self, client: _Client) -> Iterator[bytes]:
        """Yield the events for a client in pieces; nothing if there is nothing to send."""
        pairs = self.pairs
        if client.pairs is not None:
            pairs = client.pairs if self._is_first else client.pairs & pairs
        piece: list[bytes] = []
        size = 0
        for pair in pairs:
            event = self._event(pair, as_changes=client.as_changes)
            if piece and size + len(event) > PIECE_BYTES:
                yield b"".join(piece)
                piece, size = [], 0
            piece.append(event)
            size += len(event)
        if pairs or self.changes_freshness:
            yield b"".join([*piece, _event(b"version", freshness_to_json(self.after.index.freshness))])

    def _event(self, pair: Pair, *, as_changes: bool) -> bytes:
        event = self._events.get((pair, as_changes))
        if event is None:
            event = self._new_event(pair, as_changes=as_changes)
            # The books of a first step are not kept: all of them may be a hundred megabytes.
            if not self._is_first:
                self._events[pair, as_changes] = event
        return event

    def _new_event(self, pair: Pair, *, as_changes: bool) -> bytes:
        book, earlier = self.after.index.get(pair), self.before.index.get(pair)
        if book is None:
            return _event(b"retract", pair_to_json(pair))
        text = order_book_to_json(book)
        if as_changes and earlier is not None:
            changes = order_book_changes_to_json(book, earlier)
            if len(changes) < len(text):
                return _event(b"change", changes)
        return _event(b"book", text)


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, data)


@final
class _Audience:
    """The clients of one event loop, and the task that wakes them."""

    def __init__(self, live: LiveIndex) -> None:
        self._live = live
        self.clients: Final[set[_Client]] = set()
        # The clients to wake for a change of a pair; under None those of all pairs.
        self._by_pair: dict[Pair | None, set[_Client]] = {}
        self._current = _NOTHING
        # The steps to the current version, by the version before.
        self._steps: dict[_Version, _Step] = {}
        self._task: asyncio.Task[None] | None = None

    async def events(self, client: _Client) -> AsyncIterator[bytes]:
        """Yield the events of a client until it ends."""
        self._add(client)
        try:
            # The first bytes open the stream in a browser.
            yield b"retry: %d\n\n" % int(RETRY_MILLISECONDS * random.uniform(1, 1.25))  # noqa: S311  # jitter, no secret
            while client.is_open():
                if self._has_all(client):
                    # A client that waits keeps no old version alive.
                    client.sent = None if client.sent is self._current else _NOTHING
                    client.woken.clear()
                    await client.woken.wait()
                    continue
                for piece in self._pieces(client):
                    yield piece
                    if not client.is_open():
                        break
        finally:
            self._remove(client)

    def end(self) -> None:
        """End all streams."""
        for client in self.clients:
            client.set()

    def _has_all(self, client: _Client) -> bool:
        # What was never published is no version (decision 31): the first version of a stream has a pair.
        return client.sent is self._current or (client.sent is _NOTHING and not self._current.index)

    def _pieces(self, client: _Client) -> Iterator[bytes]:
        """Yield the events from the version of a client to the current one, in pieces."""
        step = self._step_since(client.sent or _NOTHING)
        yield from step.pieces(client)
        client.sent = step.after

    def _step_since(self, sent: _Version) -> _Step:
        """Return the step from a version to the current one, with the text that all clients share that take it."""
        step = self._steps.get(sent)
        if step is None:
            step = self._steps[sent] = _Step(sent, self._current)
        return step

    async def _follow(self) -> None:
        while True:
            before = self._current
            self._current, self._steps = _Version(await self._live.changed(before.index)), {}
            for client in self._affected(self._step_since(before)):
                if client.sent is None:
                    client.sent = before
                client.woken.set()
            # `changed` does not wait if the next version is there already.
            await asyncio.sleep(0)

    def _affected(self, step: _Step) -> Iterable[_Client]:
        if step.changes_freshness or not step.before.index:
            return self.clients
        return set[_Client]().union(*[self._by_pair.get(pair, ()) for pair in (None, *step.pairs)])

    def _add(self, client: _Client) -> None:
        self.clients.add(client)
        for pair in client.pairs or (None,):
            self._by_pair.setdefault(pair, set()).add(client)
        if self._task is None:
            self._current = _Version(self._live.current)
            self._task = asyncio.create_task(self._follow())

    def _remove(self, client: _Client) -> None:
        self.clients.discard(client)
        for pair in client.pairs or (None,):
            of_pair = self._by_pair[pair]
            of_pair.discard(client)
            if not of_pair:
                del self._by_pair[pair]
        if self._task is not None and not self.clients:
            self._task.cancel()
            self._task, self._current, self._steps = None, _NOTHING, {}


@final
class Streams:
    """The endpoint of streams.

    Args:
        live: The live index.
        most: How many streams may be open; any further one gets 503.
    """

    def __init__(self, live: LiveIndex, most: int) -> None:
        self._live = live
        self._most = most
        self._audiences: WeakKeyDictionary[AbstractEventLoop, _Audience] = WeakKeyDictionary()

    def __len__(self) -> int:
        return sum(len(audience.clients) for audience in list(self._audiences.values()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request with the stream that it asks for.

        Raises:
            HTTPException: 400 if a parameter is malformed, 503 if there are too many streams.
        """
        client = _client_of(scope)
        if len(self) >= self._most:
            raise HTTPException(503, f"Too many streams: the limit is {self._most:,}", {"Retry-After": "5"})
        audience = self._audiences.setdefault(asyncio.get_running_loop(), _Audience(self._live))
        response = EventSourceResponse(
            audience.events(client),
            ping=PING_SECONDS,
            ping_message_factory=lambda: ServerSentEvent(comment="", sep="\n"),
            send_timeout=SEND_SECONDS,
            shutdown_event=cast(Event, client),
            shutdown_grace_period=SHUTDOWN_SECONDS,
        )
        with suppress(SendTimeoutError):
            await response(scope, receive, send)

    def end(self) -> None:
        """End all streams of all event loops. Any thread may call it."""
        for loop, audience in list(self._audiences.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(audience.end)


def _client_of(scope: Scope) -> _Client:
    require_small(scope)
    parameters = QueryParams(scope["query_string"])
    levels = _once(parameters, "levels")
    if levels not in {None, "changed"}:
        raise HTTPException(400, f"Query parameter 'levels' must be 'changed', got {safe_repr(levels)}")
    texts = _once(parameters, "pairs")
    pairs = None if texts is None else frozenset(map(_pair_of, texts.split(",")))
    return _Client(pairs, as_changes=levels == "changed", sent=_NOTHING)


def _once(parameters: QueryParams, name: str) -> str | None:
    values = parameters.getlist(name)
    if len(values) > 1:
        raise HTTPException(400, f"Query parameter '{name}' must be given once, got {safe_repr(values)}")
    return values[0] if values else None


def _pair_of(text: str) -> Pair:
    base, slash, quote = text.partition("/")
    if not slash:
        raise HTTPException(400, f"Query parameter 'pairs': a pair must be BASE/QUOTE, got {safe_repr(text)}")
    try:
        return Pair(AssetId.parse(base), AssetId.parse(quote))
    except InvalidAssetId as error:
        raise HTTPException(400, f"Query parameter 'pairs': {error}") from None
