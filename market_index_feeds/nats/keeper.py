"""The turn to keep a bucket: who has stored the last message of a stream beside it.

It is no message of the bucket, because readers take the as_of from its last message. The servers store one message, and
remove it after 5 seconds. A keeper stores its id if there is no message, and again each second if the last message is
its own. So two of them never have the turn, also if a cluster is cut in two. A keeper that cannot store its id any
more, because it is suspended or cut off, stops a second before another one can take over.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Final, final
from uuid import uuid4

from nats.js.api import StreamConfig
from nats.js.errors import NoStreamResponseError

from market_index_feeds.errors import FeedError, Rejected, StoreError, Unreachable, reason_of
from market_index_feeds.event_loop import EventLoop
from market_index_feeds.keeper import Keeper
from market_index_feeds.nats.address import BucketAddress
from market_index_feeds.nats.bucket import WRONG_SEQUENCE, create_stream
from market_index_feeds.nats.connection import Connection, shown_text
from market_index_feeds.nats.reading import OPENING_SECONDS

RENEW_SECONDS: Final = 1.0
"""Interval between two attempts to take or to renew the turn."""

KEPT_SECONDS: Final = 5.0
"""How long the servers store a turn that is not renewed."""

MARGIN_SECONDS: Final = 1.0
"""How long before the servers remove its turn a keeper stops."""


@final
class BucketKeeper(Keeper):
    """The turn to keep a bucket. An event loop takes and renews it, from the first `is_keeping` on."""

    def __init__(self, address: BucketAddress) -> None:
        super().__init__(address.shown)
        self._subject = f"market-index.{address.bucket}.keeper"
        self._stream = f"market-index-{address.bucket}-keeper"
        self._id = f"process {os.getpid()} of {socket.gethostname()} ({uuid4().hex[:8]})"
        self._connection = Connection(address)
        # The sequence of the last message, 0 if there is none, and the monotonic time until which this one keeps.
        self._sequence, self._until = 0, -inf
        self._loop: EventLoop | None = None

    def _take(self) -> bool:
        if self._loop is None:
            loop = EventLoop()
            try:
                loop.run(self._connection.retried(self._renew, OPENING_SECONDS))
            except (FeedError, OSError) as error:
                loop.close()
                raise StoreError(f"{self.name} cannot be opened: {reason_of(error)}") from None
            self._loop = loop
            loop.start(self._renewals())
        return monotonic() < self._until

    def close(self) -> None:
        """Give the turn back, so that another one takes it soon."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            with suppress(FeedError, OSError):
                loop.run(self._give_back())
            loop.close()

    async def _renewals(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                await self._renew()
            except (FeedError, OSError) as error:
                self._obstacle = reason_of(error)

    async def _renew(self) -> None:
        """Take the turn if it is free, or renew it. Raises `Unreachable` or `Rejected`."""
        asked_at, header = monotonic(), {"Nats-Expected-Last-Subject-Sequence": str(self._sequence)}
        try:
            stored = await self._connection.ask(
                lambda stream: stream.publish(self._subject, self._id.encode(), headers=header)
            )
            self._sequence, self._until = stored.seq, asked_at + KEPT_SECONDS - MARGIN_SECONDS
        except NoStreamResponseError:
            config = StreamConfig(
                name=self._stream,
                subjects=[self._subject],
                max_age=KEPT_SECONDS,
                max_msgs_per_subject=1,
            )
            await create_stream(self._connection, config)
            raise Unreachable("its stream was created") from None
        except Rejected as error:
            if error.code not in WRONG_SEQUENCE:
                raise
            await self._find()

    async def _find(self) -> None:
        """Find who keeps the bucket. It may be this one, if a reply was lost."""
        self._sequence = 0
        with suppress(Rejected):  # there is no message any more
            found = await self._connection.ask(lambda stream: stream.get_last_msg(self._stream, self._subject))
            keeper = (found.data or b"").decode(errors="replace")
            self._obstacle = f"{shown_text(keeper)} keeps it"
            if keeper == self._id:
                self._sequence = found.seq or 0

    async def _give_back(self) -> None:
        if monotonic() < self._until:
            self._until = -inf
            await self._connection.ask(lambda stream: stream.delete_msg(self._stream, self._sequence))
        await self._connection.close()
