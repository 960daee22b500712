"""Requests that wait for a change, instead of a response that says that there is none (decision 28, RFC 7240).

Theory of operation
    A request with `Prefer: wait=20` whose response would be 304 takes a place, and waits until its response is another
    one, or the time is over. It holds neither an index nor a body: whenever it is woken, it makes its response from the
    current index, as any other request does. So a wait never changes what is sent, only when.

    It is woken by a change of its pair, or of the pair list; at its deadline; when its client disconnects; and when the
    app ends all waits. It is registered before it compares the index again, so no change is lost in between.

    For each event loop with waiting requests, one task waits for changes of the live index. It compares each new index
    with the one before, and wakes only the requests for what has changed.
"""

from __future__ import annotations

import asyncio
import re
from asyncio import AbstractEventLoop, Event, Task
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Final, TypeAlias, final
from weakref import ref

from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope

from market_index import LiveIndex, MarketIndex, Pair
from market_index.errors import safe_repr
from market_index_http.bodies import Fields, Response, matches_any

MAX_WAIT_SECONDS: Final = 86_400
"""The longest wait that an app can allow: one day."""

DEFAULT_MAX_WAITING: Final = 1_000
"""How many requests of an app may wait by default."""

WAKE_SECONDS: Final = 0.005
"""The shortest time between two indexes that a task compares. The first change after it is noticed immediately."""

_MAX_PREFER_BYTES: Final = 1024
_APPLIED: Final = "preference-applied"

# RFC 7240, 2: a token, a value that is a token or a quoted string, and parameters of the same form. Possessive, so that
# the time is linear in the length of any text.
_SPACE: Final = r"[ \t]*+"
_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_VALUE: Final = rf'(?:{_NAME}|"(?:[^"\\]|\\.)*+")'
_PREFERENCE: Final = re.compile(
    rf"{_SPACE}(?:({_NAME})(?:{_SPACE}={_SPACE}({_VALUE})?+)?+"
    rf"(?:{_SPACE};{_SPACE}(?:{_NAME}(?:{_SPACE}={_SPACE}{_VALUE}?+)?+)?+)*+)?+{_SPACE}(?:,|\Z)"
)
_IS_SECONDS: Final = re.compile(r"[0-9]+", re.ASCII).fullmatch

Respond: TypeAlias = Callable[[Fields], Awaitable[Response]]
"""Makes the response to one request from the current index, with additional header fields."""


def prefers_to_wait(scope: Scope) -> bool:
    """Whether a request has a `Prefer` field, which may ask to wait."""
    return any(name == b"prefer" for name, _ in scope["headers"])


def preferred_wait(scope: Scope) -> int:
    """Return how many seconds a request prefers to wait for a change; 0 if it must not wait.

    It must name an entity tag. `*` in `If-None-Match` matches any content, so no change would end its wait.
    """
    prefer = b",".join(value for name, value in scope["headers"] if name == b"prefer")
    tags = b",".join(value for name, value in scope["headers"] if name == b"if-none-match")
    if not prefer or len(prefer) > _MAX_PREFER_BYTES or matches_any(tags):
        return 0
    return _wait_in(prefer.decode("latin-1"))


@lru_cache(maxsize=256)  # clients send few different values
def _wait_in(prefer: str) -> int:
    """Return the value of the first preference `wait`; 0 if it is malformed, or there is none."""
    position = 0
    while position < len(prefer):
        found = _PREFERENCE.match(prefer, position)
        if found is None:
            return 0
        name, value = found.groups()
        if name is not None and name.lower() == "wait":
            return int(value) if value is not None and _IS_SECONDS(value) else 0
        position = found.end()
    return 0


@final
class _Wait:
    """The wait of one request."""

    __slots__ = ("event", "is_over")

    def __init__(self) -> None:
        self.event = Event()
        self.is_over = False

    def end(self, _: object = None) -> None:
        """End the wait: its time is over, its client has disconnected, or the app ends all waits."""
        self.is_over = True
        self.event.set()


@final
class Waits:
    """The waiting requests of one app.

    Args:
        live: The live index.
        max_seconds: How long a request may wait. If it is 0, none waits.
        max_requests: How many requests may wait. Any further one gets its response without waiting.

    Raises:
        ValueError: `max_seconds` is not a whole number from 0 to 86,400, or `max_requests` not one from 0.
    """

    def __init__(self, live: LiveIndex, max_seconds: int = 0, max_requests: int = DEFAULT_MAX_WAITING) -> None:
        if type(max_seconds) is not int or not 0 <= max_seconds <= MAX_WAIT_SECONDS:
            raise ValueError(
                f"max_wait must be a whole number of seconds from 0 to {MAX_WAIT_SECONDS}, got {safe_repr(max_seconds)}"
            )
        if type(max_requests) is not int or max_requests < 0:
            raise ValueError(f"max_waiting must be 0 or more requests, got {safe_repr(max_requests)}")
        self._live = live
        self._max_seconds = max_seconds
        self._max_requests = max_requests
        self._watches: dict[AbstractEventLoop, _Watch] = {}
        self._is_ended = False

    @property
    def are_allowed(self) -> bool:
        """Whether a request may wait at all."""
        return self._max_seconds > 0 and not self._is_ended

    def end(self) -> None:
        """End all waits, and let no further request wait. Any thread may call it."""
        self._is_ended = True
        for loop, watch in list(self._watches.items()):
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(watch.end_all)

    async def respond(self, scope: Scope, receive: Receive, pair: Pair | None, respond: Respond) -> Response:
        """Return the response to a request for the book of a pair; None: for the pair list. Wait if it prefers that."""
        known = ref(self._live.current)
        response = await respond(())
        if not self.are_allowed or not response.is_not_modified:
            return response
        seconds = min(preferred_wait(scope), self._max_seconds)
        if seconds == 0 or not _runs_in_asyncio() or self.requests >= self._max_requests:
            return response
        del response
        return await self._respond_later(receive, pair, respond, seconds, known)

    @property
    def requests(self) -> int:
        """How many requests wait. Those of a closed loop never run again."""
        return sum(watch.requests for loop, watch in list(self._watches.items()) if not loop.is_closed())

    async def _respond_later(
        self, receive: Receive, pair: Pair | None, respond: Respond, seconds: int, known: ref[MarketIndex]
    ) -> Response:
        """Respond after a wait. `known` is an index whose response is 304."""
        applied = f"wait={seconds}"
        fields = ((_APPLIED.encode("ascii"), applied.encode("ascii")),)
        with self._waiting(pair, seconds, receive) as wait:
            if known() is self._live.current and not self._is_ended:
                # Most often nothing has changed since the first response.
                await wait.event.wait()
            while True:
                wait.event.clear()
                is_last = wait.is_over or self._is_ended
                try:
                    response = await respond(fields)
                except HTTPException as error:
                    error.headers = {**(error.headers or {}), _APPLIED: applied}
                    raise
                if is_last or not response.is_not_modified:
                    return response
                del response
                await wait.event.wait()

    @contextmanager
    def _waiting(self, pair: Pair | None, seconds: int, receive: Receive) -> Iterator[_Wait]:
        """Register a wait that ends after so many seconds, or when the client disconnects."""
        loop = asyncio.get_running_loop()
        watch = self._watches.get(loop)
        if watch is None:
            # The tasks of a closed loop can be freed.
            for closed in [one for one in list(self._watches) if one.is_closed()]:
                self._watches.pop(closed, None)
            watch = self._watches[loop] = _Watch(self._live)
        wait = _Wait()
        deadline = loop.call_later(seconds, wait.end)
        disconnected = loop.create_task(_disconnected(receive))
        disconnected.add_done_callback(wait.end)
        watch.add(pair, wait)
        try:
            yield wait
        finally:
            if watch.remove(pair, wait):
                self._watches.pop(loop, None)
            deadline.cancel()
            if not loop.is_closed():
                disconnected.cancel()


def _runs_in_asyncio() -> bool:
    """Whether an event loop of asyncio runs this task; Starlette also runs in trio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _disconnected(receive: Receive) -> None:
    """Wait until the client has disconnected, which is the only message after the body of the request."""
    message = await receive()
    while message["type"] == "http.request":
        is_last = not message.get("more_body", False)
        message = await receive()
        if is_last:
            return


@final
class _Watch:
    """The waiting requests of one app in one event loop, and the task that wakes them."""

    def __init__(self, live: LiveIndex) -> None:
        self._live = live
        self._loop = asyncio.get_running_loop()
        self._waits: dict[Pair | None, set[_Wait]] = {}
        self._task: Task[None] | None = None
        self.requests: int = 0

    def add(self, pair: Pair | None, wait: _Wait) -> None:
        """Add a wait for changes of the book of a pair; None: of the pair list."""
        self._waits.setdefault(pair, set()).add(wait)
        self.requests += 1
        if self._task is None:
            self._task = self._loop.create_task(self._watch(self._live.current))

    def remove(self, pair: Pair | None, wait: _Wait) -> bool:
        """Remove a wait. Return whether it was the last one; then the task ends."""
        waits = self._waits[pair]
        waits.remove(wait)
        self.requests -= 1
        if not waits:
            del self._waits[pair]
        if self._waits:
            return False
        if self._task is not None and not self._loop.is_closed():
            self._task.cancel()
        return True

    def end_all(self) -> None:
        """End all waits."""
        for waits in self._waits.values():
            for wait in waits:
                wait.end()

    async def _watch(self, seen: MarketIndex) -> None:
        while True:
            current = await self._live.changed(seen)
            for pair in self._changed(seen, current):
                for wait in self._waits.get(pair, ()):
                    wait.event.set()
            seen = current
            await asyncio.sleep(WAKE_SECONDS)

    def _changed(self, seen: MarketIndex, current: MarketIndex) -> Iterable[Pair | None]:
        """Yield the pairs whose book was published or retracted, and None if the pair list has changed."""
        books, retracted = current.changes_since(seen)
        yield from retracted
        yield from [book.pair for book in books]
        if None in self._waits:
            before = (seen.get(book.pair) for book in books)
            if retracted or any(
                earlier is None or earlier.spot != book.spot for earlier, book in zip(before, books, strict=True)
            ):
                yield None
