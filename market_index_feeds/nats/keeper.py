"""The turn to keep a bucket: who answers requests to `market-index.BUCKET.keeper` has it.

Theory of operation
===================

It is no message of the bucket, because readers take the as_of from its last message. Each keeper asks twice a second,
and hears all answers, also its own:

    WAITING ──nobody subscribes, or 18 rounds without an answer──▶ CLAIMING ──two rounds──▶ KEEPING
       ▲                                                           │  ▲                      │  │
       │                                                           │  └──connection is lost──┘  │
       └──another keeps, or claims with a lower id─────────────────┴──another with a lower id───┘
                                                                      keeps, or no own answer for 8 s

Only CLAIMING and KEEPING subscribe and answer. The servers report at once that nobody subscribes, as after a kill. A
process that is suspended or cut off still subscribes, but does not answer. Of two claims, the one that is made later
hears the earlier one in both of its rounds, and the earlier one hears the later one in its second round, so one of them
returns. A keeper that does not hear its own answer may be the one that is cut off: it stops a second before another one
can take over. `is_keeping` also compares the times, for a process that was suspended.

Keepers on two sides of a cluster that is cut hear each other again later. Meanwhile only the side that has a majority
can store a change.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import suppress
from enum import Enum
from functools import partial
from math import inf
from threading import Event, Thread
from time import monotonic
from typing import Final, TypeAlias, final
from uuid import uuid4

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from market_index_feeds.errors import FeedError, StoreError, reason_of
from market_index_feeds.keeper import Keeper
from market_index_feeds.names import shown_name
from market_index_feeds.nats.address import BucketAddress
from market_index_feeds.nats.connection import Connection, shown_text
from market_index_feeds.nats.reading import OPENING_SECONDS

ROUND_SECONDS: Final = 0.5
"""How long a keeper waits for answers before it asks again."""

SILENT_ROUNDS: Final = 18
"""After so many rounds without an answer, another one takes over, which takes two rounds."""

CONFIRMED_SECONDS: Final = 8.0
"""How long a keeper keeps its turn without hearing its own answer."""

_CLOSE_SECONDS: Final = 1.0

Claim: TypeAlias = tuple[bool, str]
"""Whether a process does not keep the bucket yet, and its id. The lowest one has precedence."""


class _State(Enum):
    WAITING = "waiting"
    CLAIMING = "claiming"
    KEEPING = "keeping"


@final
class BucketKeeper(Keeper):
    """The turn to keep a bucket. A thread asks for it and defends it, from the first `is_keeping` on."""

    def __init__(self, address: BucketAddress) -> None:
        super().__init__(address.shown)
        self._subject = f"market-index.{address.bucket}.keeper"
        self._id = f"process {os.getpid()} of {socket.gethostname()} ({uuid4().hex[:8]})"
        self._connection = Connection(address, self._subscribe)
        self._state, self._rounds_left, self._silent_rounds = _State.WAITING, 0, 0
        # The monotonic time of the last request that this keeper answered itself.
        self._confirmed_at = -inf
        self._inbox, self._round = "", 0
        self._claims: set[Claim] = set()
        self._is_vacant, self._hears_itself = False, False
        self._answering: Subscription | None = None
        self._thread: Thread | None = None
        self._decided, self._closed = Event(), Event()
        self._error: FeedError | OSError | None = None

    def _take(self) -> bool:
        if self._thread is None:
            work = partial(asyncio.run, self._run())
            self._thread = Thread(target=work, name=f"keeper {self.name}", daemon=True)
            self._thread.start()
        self._decided.wait()
        if self._error is not None:
            raise StoreError(f"{self.name} cannot be opened: {reason_of(self._error)}")
        return self._state is _State.KEEPING and not self._is_expired()

    def close(self) -> None:
        """Give the turn back, so that another one takes it at once."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    async def _run(self) -> None:
        try:
            await self._connection.retried(self._ask, OPENING_SECONDS)
            self._decide()
            while not self._closed.is_set():
                try:
                    await self._ask()
                    self._decide()
                except (FeedError, OSError) as error:
                    self._obstacle = reason_of(error)
                    if self._state is not _State.WAITING:
                        self._claim()  # meanwhile it had no subscription
                    await asyncio.sleep(ROUND_SECONDS)
        except (FeedError, OSError) as error:
            self._error = error
        finally:
            self._state = _State.WAITING
            self._decided.set()
            await self._connection.close()

    async def _ask(self) -> None:
        """Ask who keeps the bucket, and wait for the answers. Raises `Unreachable` or `Rejected`."""
        self._claims.clear()
        self._is_vacant = self._hears_itself = False
        self._round += 1
        client, asked_at = await self._connection.client(), monotonic()
        await self._connection.answer(self._send(client))
        await asyncio.sleep(0 if self._is_vacant else ROUND_SECONDS)
        if self._hears_itself and not self._is_expired():
            self._confirmed_at = asked_at

    def _decide(self) -> None:
        """Enter the next state, after a round."""
        own: Claim = (self._state is not _State.KEEPING, self._id)
        if self._state is _State.WAITING:
            self._silent_rounds = 0 if self._claims else self._silent_rounds + 1
            if self._is_vacant or self._silent_rounds >= SILENT_ROUNDS:
                self._claim()
        elif self._is_expired() or min(self._claims, default=own) < own:
            self._state, self._silent_rounds = _State.WAITING, 0
        elif self._state is _State.CLAIMING:
            self._rounds_left -= self._hears_itself
            if not self._rounds_left:
                self._state = _State.KEEPING
        if self._state is not _State.CLAIMING:
            self._decided.set()

    def _claim(self) -> None:
        self._state, self._rounds_left, self._confirmed_at = _State.CLAIMING, 2, monotonic()

    def _is_expired(self) -> bool:
        """Return whether the own answer was not heard for so long that another one may have the turn."""
        return monotonic() > self._confirmed_at + CONFIRMED_SECONDS

    async def _subscribe(self, client: Client) -> None:
        self._inbox, self._answering = client.new_inbox(), None
        await client.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def _send(self, client: Client) -> None:
        """Send a request to all keepers, after subscribing to their requests, unless this one waits."""
        if self._state is not _State.WAITING and self._answering is None:
            self._answering = await client.subscribe(self._subject, cb=self._on_request)
        elif self._state is _State.WAITING and self._answering is not None:
            answering, self._answering = self._answering, None
            await answering.unsubscribe()
        await client.publish(self._subject, reply=f"{self._inbox}.{self._round}")
        await client.flush()

    async def _on_request(self, request: Msg) -> None:
        if request.reply and self._state is not _State.WAITING:
            answer = {"id": self._id, "keeps": self._state is _State.KEEPING}
            with suppress(nats.errors.Error, OSError):
                await request.respond(json.dumps(answer).encode())

    async def _on_answer(self, answer: Msg) -> None:
        if answer.subject.rpartition(".")[2] != str(self._round):
            return
        if (answer.headers or {}).get("Status") == "503":
            self._is_vacant = True
            return
        with suppress(ValueError, KeyError, TypeError):
            found = json.loads(answer.data)
            if found["id"] == self._id:
                self._hears_itself = True
            else:
                self._claims.add((not found["keeps"], str(found["id"])))
                self._obstacle = f"{shown_text(str(found['id']))} keeps it"


def open_bucket_keeper(target: str) -> BucketKeeper:
    """Return the keeper of a bucket. Raises `StoreError` if its name is not valid."""
    try:
        return BucketKeeper(BucketAddress.parse(target))
    except ValueError as error:
        raise StoreError(f"{shown_name(target)} cannot be opened: {error}") from None
