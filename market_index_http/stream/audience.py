"""The clients of an event loop: what each has, who is woken by a version, and who has accepted nothing for too long."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, final

from attrs import define, field
from starlette.types import Receive, Send

from market_index import LiveIndex
from market_index_http.stream.shutdown import uvicorn_ends
from market_index_http.stream.steps import NOTHING, PIECE_BYTES, Asked, Step, Version

LOG: Final = logging.getLogger("market_index_http")

PING_SECONDS: Final = 2
"""A comment is sent after this silence. A client that receives nothing for 5 seconds is cut off."""

SEND_SECONDS: Final = 30
"""How long a client may accept nothing."""

RETRY_MILLISECONDS: Final = 1_000
"""A browser connects again after this time and up to a quarter more, so that clients do not return together."""

CHECK_SECONDS: Final = 0.5
"""The interval of checks: of the clients, and whether uvicorn shuts down."""

# nginx does not buffer a response with the last field.
_FIELDS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
)


@final
@define(eq=False)
class Client:
    """One stream: what it asked for, and the version that it has."""

    send: Send
    asked: Asked
    sent: Version | None = NOTHING
    """None: the client waits, and its books are those of the current version."""
    woken: asyncio.Event = field(factory=asyncio.Event)
    timeout: asyncio.Timeout = field(factory=partial(asyncio.timeout, None))
    """Ends the stream even while the client accepts nothing."""
    silent_seconds: float = 0.0
    """The time since the last text was sent, as counted by the checks of the audience."""
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
class Audience:
    """The clients of one event loop, and the tasks that wake and end them.

    Args:
        live: The live index.
        on_failure: Called if a task has failed.
    """

    def __init__(self, live: LiveIndex, on_failure: Callable[[], object]) -> None:
        self._live = live
        self._on_failure = on_failure
        self.clients: Final[set[Client]] = set()
        self._current = NOTHING
        # The steps to the current version, by the version before.
        self._steps: dict[Version, Step] = {}
        self._turns = asyncio.Lock()
        self._tasks = [asyncio.create_task(self._repeat(one)) for one in (self._follow, self._check)]

    async def serve(self, client: Client) -> None:
        """Send the events of a client until it ends."""
        self.clients.add(client)
        try:
            await client.start()
            # A browser considers the stream open at its first bytes: here the first line of the first event.
            retry = int(RETRY_MILLISECONDS * random.uniform(1, 1.25))  # noqa: S311  # jitter, no secret
            await client.write(b"retry: %d\n" % retry)
            while not client.has_ended:
                client.woken.clear()
                if not self._has_all(client):
                    await self._write_changes(client)
                elif client.silent_seconds >= PING_SECONDS:
                    await client.write(b":\n")
                else:
                    await client.woken.wait()
            await client.finish()
        finally:
            self.clients.remove(client)

    def end(self) -> None:
        """End all streams."""
        for client in self.clients:
            client.end()

    def close(self) -> None:
        """End the tasks."""
        for task in self._tasks:
            task.cancel()

    def _has_all(self, client: Client) -> bool:
        if client.sent is self._current:
            client.sent = None  # a client that waits keeps no old version alive
        # What was never published is no version (decision 31): the first version of a stream has a pair.
        return client.sent is None or (client.sent is NOTHING and not self._current.index)

    async def _write_changes(self, client: Client) -> None:
        """Send the events from the version of a client to the current one."""
        if client.sent is NOTHING:
            await self._turn()
        step = self._step_since(client.sent or NOTHING)
        for piece in step.pieces(client.asked):
            await client.write(piece)
            if len(piece) >= PIECE_BYTES:
                # The books of a first version are encoded for each client. The text of a change is shared.
                await (self._turn() if step.is_first else asyncio.sleep(0))
            # After a disconnection, the server still accepts everything that is sent.
            if client.has_ended:
                return
        client.sent = step.after

    async def _turn(self) -> None:
        """Wait until it is the turn of a client: one turn of the event loop for each client that waits."""
        async with self._turns:
            await asyncio.sleep(0)

    def _step_since(self, sent: Version) -> Step:
        """Return the step from a version to the current one, with the text that all clients share that take it."""
        step = self._steps.get(sent)
        if step is None:
            step = self._steps[sent] = Step(sent, self._current)
        return step

    async def _repeat(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task. If it fails, end all streams, whose clients would wait for ever, and run it again."""
        while True:
            try:
                await task()
            except Exception:
                LOG.exception("unexpected error: all streams end")
                self._on_failure()
                self.end()
                await asyncio.sleep(CHECK_SECONDS)

    async def _follow(self) -> None:
        index = None
        while True:
            before, index = self._current, await self._live.changed(index)
            self._current, self._steps = Version(index), {}
            self._wake(before)
            # `changed` does not wait if the next version is there already.
            await asyncio.sleep(0)

    def _wake(self, before: Version) -> None:
        """Wake the clients that a change concerns."""
        step = self._step_since(before)
        for client in self.clients:
            if step.concerns(client.asked):
                if client.sent is None:
                    client.sent = before
                client.woken.set()

    async def _check(self) -> None:
        """End the streams of clients that accept nothing, and all at a shutdown. Wake those that need a comment."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            # These have not accepted the end of their stream since the last check.
            ended = {client for client in self.clients if client.has_ended}
            if uvicorn_ends():
                self.end()
            for client in self.clients:
                client.silent_seconds += CHECK_SECONDS
                if client in ended or client.silent_seconds >= SEND_SECONDS:
                    if client.timeout.when() is None:  # a timeout may end only once
                        client.timeout.reschedule(0)
                elif client.silent_seconds >= PING_SECONDS:
                    client.woken.set()
