"""The stream of changes: server-sent events at `/stream` (decision 28).

Theory of operation
    For each client the server knows only the version that it has sent, which is an immutable index. It sends the
    difference to the current version when the client has accepted what was sent before. So a slow client gets fewer
    versions, each consistent and exact, and there is no queue.

    One task for each event loop waits for the next version, and wakes the clients whose pairs it changes. A client that
    waits refers to no version: the task gives it the version before the change. The text of an event is made once for
    each step from one version to the current one, and shared by all clients that take this step.
"""

from __future__ import annotations

import asyncio
import random
import signal
from asyncio import AbstractEventLoop
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, final

from attrs import define, field, frozen
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from market_index import AssetId, InvalidAssetId, LiveIndex, MarketIndex, Pair
from market_index.errors import safe_repr
from market_index.wire import freshness_to_json, order_book_changes_to_json, order_book_to_json, pair_to_json
from market_index_http.bodies import NOT_STORED
from market_index_http.endpoints import parameter, require_small

PING_SECONDS: Final = 5
"""After which silence a comment is sent. A client that has received nothing for 15 seconds knows that it is cut off."""

SEND_SECONDS: Final = 30
"""How long a client may accept nothing."""

RETRY_MILLISECONDS: Final = 1_000
"""After which time a browser connects again, up to a quarter more, so that clients do not return together."""

CHECK_SECONDS: Final = 0.5
"""The interval of checks of all clients, and whether uvicorn shuts down."""

MAX_STREAMS: Final = 1_000
"""How many streams may be open by default."""

PIECE_BYTES: Final = 16 * 1024
"""How many bytes of events are joined before they are sent."""

# nginx does not buffer a response with the last field.
_FIELDS: Final = (*NOT_STORED, (b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"))


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

    send: Send
    pairs: frozenset[Pair] | None
    """The pairs; None for all."""
    as_changes: bool
    sent: _Version | None = _NOTHING
    """None: the client waits, and its books are those of the current version."""
    woken: asyncio.Event = field(factory=asyncio.Event)
    timeout: asyncio.Timeout = field(factory=partial(asyncio.timeout, None))
    """Ends the stream even while the client accepts nothing."""
    silent_seconds: float = 0.0
    """How long ago the last text was sent, as the checks of the audience count it."""
    has_ended: bool = False

    def end(self) -> None:
        """End the stream."""
        self.has_ended = True
        self.woken.set()

    async def start(self) -> None:
        """Send the status and the fields."""
        await self.send({"type": "http.response.start", "status": 200, "headers": [*_FIELDS]})

    async def write(self, text: bytes) -> None:
        """Send a text once the client accepts it."""
        await self.send({"type": "http.response.body", "body": text, "more_body": True})
        self.silent_seconds = 0.0

    async def finish(self) -> None:
        """Send the end of the response."""
        await self.send({"type": "http.response.body"})

    async def listen(self, receive: Receive) -> None:
        """End the stream once the client disconnects."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end()


@final
class _Step:
    """The difference of two versions, and the text of its events."""

    def __init__(self, before: _Version, after: _Version) -> None:
        self.before: Final = before
        self.after: Final = after
        self.is_first: Final = before is _NOTHING
        self.changes_freshness: Final = self.is_first or before.index.freshness != after.index.freshness
        changed, removed = after.index.changes_since(before.index)
        self.pairs: Final = frozenset([*[book.pair for book in changed], *removed])
        self._events: dict[tuple[Pair, bool], bytes] = {}
        self._version: Final = _event(b"version", freshness_to_json(after.index.freshness))

    def events(self, client: _Client) -> Iterator[bytes]:
        """Yield the events for a client; none if nothing has changed for it."""
        pairs = self.pairs
        if client.pairs is not None:
            pairs = client.pairs if self.is_first else client.pairs & pairs
        for pair in pairs:
            event = self._events.get((pair, client.as_changes))
            if event is None:
                event = self._event(pair, as_changes=client.as_changes)
                # The books of a first step are not cached: all of them may be a hundred megabytes.
                if not self.is_first:
                    self._events[pair, client.as_changes] = event
            yield event
        if pairs or self.changes_freshness:
            yield self._version

    def _event(self, pair: Pair, *, as_changes: bool) -> bytes:
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


def _joined(events: Iterable[bytes]) -> Iterator[bytes]:
    """Join events to pieces: each piece that is sent costs a system call."""
    piece = bytearray()
    for event in events:
        piece += event
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


@final
class _Audience:
    """The clients of one event loop, and the tasks that wake and end them."""

    def __init__(self, live: LiveIndex) -> None:
        self._live = live
        self.clients: Final[set[_Client]] = set()
        # The clients to wake for a change of a pair; under None those of all pairs.
        self._by_pair: defaultdict[Pair | None, set[_Client]] = defaultdict(set)
        self._current = _NOTHING
        # The steps to the current version, by the version before.
        self._steps: dict[_Version, _Step] = {}
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._check())]

    async def serve(self, client: _Client) -> None:
        """Send the events of a client until it ends."""
        self.clients.add(client)
        for pair in client.pairs or (None,):
            self._by_pair[pair].add(client)
        try:
            await client.start()
            # The first bytes open the stream in a browser.
            retry = int(RETRY_MILLISECONDS * random.uniform(1, 1.25))  # noqa: S311  # jitter, no secret
            await client.write(b"retry: %d\n\n" % retry)
            while not client.has_ended:
                client.woken.clear()
                if not self._has_all(client):
                    await self._write_changes(client)
                elif client.silent_seconds >= PING_SECONDS:
                    await client.write(b":\n\n")
                else:
                    await client.woken.wait()
            await client.finish()
        finally:
            self.clients.remove(client)
            for pair in client.pairs or (None,):
                self._by_pair[pair].remove(client)
                if not self._by_pair[pair]:
                    del self._by_pair[pair]

    def end(self) -> None:
        """End all streams."""
        for client in self.clients:
            client.end()

    def close(self) -> None:
        """End the tasks."""
        for task in self._tasks:
            task.cancel()

    def _has_all(self, client: _Client) -> bool:
        if client.sent is self._current:
            client.sent = None  # a client that waits keeps no old version alive
        # What was never published is no version (decision 31): the first version of a stream has a pair.
        return client.sent is None or (client.sent is _NOTHING and not self._current.index)

    async def _write_changes(self, client: _Client) -> None:
        """Send the events from the version of a client to the current one."""
        step = self._step_since(client.sent or _NOTHING)
        for piece in _joined(step.events(client)):
            await client.write(piece)
            if len(piece) >= PIECE_BYTES:
                # Let others run. A server also accepts all that is sent to a client that has just disconnected.
                await asyncio.sleep(0)
            if client.has_ended:
                return
        client.sent = step.after

    def _step_since(self, sent: _Version) -> _Step:
        """Return the step from a version to the current one, with the text that all clients share that take it."""
        step = self._steps.get(sent)
        if step is None:
            step = self._steps[sent] = _Step(sent, self._current)
        return step

    async def _follow(self) -> None:
        index = None
        while True:
            before, index = self._current, await self._live.changed(index)
            self._current, self._steps = _Version(index), {}
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

    async def _check(self) -> None:
        """End the streams of clients that accept nothing, and all at a shutdown. Wake those that need a comment."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            # These have not accepted the end of their stream since the last check.
            ended = {client for client in self.clients if client.has_ended}
            # uvicorn waits for streams, and reports its shutdown to no app. A method of its server handles the signal.
            if getattr(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), "should_exit", False):
                self.end()
            for client in self.clients:
                client.silent_seconds += CHECK_SECONDS
                if client in ended or client.silent_seconds >= SEND_SECONDS:
                    if client.timeout.when() is None:  # a timeout may end only once
                        client.timeout.reschedule(0)
                elif client.silent_seconds >= PING_SECONDS:
                    client.woken.set()


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
        self._audiences: dict[AbstractEventLoop, _Audience] = {}

    def __len__(self) -> int:
        return sum(len(audience.clients) for audience in list(self._audiences.values()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request with the stream that it asks for.

        Raises:
            HTTPException: 400 if a parameter is malformed, 503 if there are too many streams.
        """
        client = _client_of(scope, send)
        if len(self) >= self._most:
            raise HTTPException(503, f"Too many streams: the limit is {self._most:,}", {"Retry-After": "5"})
        if scope["method"] == "HEAD":
            await client.start()
            await client.finish()
            return
        # After a timeout the client has accepted nothing for too long: the response stays without an end.
        with suppress(TimeoutError):
            async with client.timeout:
                await self._serve(client, receive)

    async def _serve(self, client: _Client, receive: Receive) -> None:
        loop = asyncio.get_running_loop()
        audience = self._audiences.get(loop)
        if audience is None:
            audience = self._audiences[loop] = _Audience(self._live)
        listening = loop.create_task(client.listen(receive))
        try:
            await audience.serve(client)
        finally:
            listening.cancel()
            if not audience.clients:
                del self._audiences[loop]
                audience.close()

    def end(self) -> None:
        """End all streams of all event loops. Any thread may call it."""
        for loop, audience in list(self._audiences.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(audience.end)


def _client_of(scope: Scope, send: Send) -> _Client:
    require_small(scope)
    parameters = QueryParams(scope["query_string"])
    levels = parameter(parameters, "levels")
    if levels not in {None, "changed"}:
        raise HTTPException(400, f"Query parameter 'levels' must be 'changed', got {safe_repr(levels)}")
    texts = parameter(parameters, "pairs")
    pairs = None if texts is None else frozenset(map(_pair_of, texts.split(",")))
    return _Client(send, pairs, as_changes=levels == "changed")


def _pair_of(text: str) -> Pair:
    base, slash, quote = text.partition("/")
    if not slash:
        raise HTTPException(400, f"Query parameter 'pairs': a pair must be BASE/QUOTE, got {safe_repr(text)}")
    try:
        return Pair(AssetId.parse(base), AssetId.parse(quote))
    except InvalidAssetId as error:
        raise HTTPException(400, f"Query parameter 'pairs': {error}") from None
