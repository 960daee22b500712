"""Closing the feed of a bucket at any moment."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from threading import Event, Timer
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from nats.aio.client import Client

from market_index import LiveIndex
from market_index_feeds import (
    Feed,
    FeedError,
    Store,
    open_feed,
)
from market_index_feeds.errors import Unavailable
from market_index_feeds.nats import open_nats_source
from market_index_feeds.nats import source as nats_source
from market_index_feeds.nats.connection import RetryTimeouts
from market_index_feeds.nats.event_loop import EventLoop
from market_index_feeds.nats.watch import Watch
from tests import nats
from tests.market_index_feeds.made_up import book, pair
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread, raised_in_thread


class TestClosing:
    def test_an_interrupted_source_reads_no_more(self, store: Store, bucket: str):
        source = open_nats_source(bucket)
        source.interrupt()
        assert list(source.updates(Event(), None)) == []
        with pytest.raises(Unavailable, match="it was closed"):
            source.read_order_book(pair(1))

    def test_a_signal_handler_may_interrupt_a_source_while_it_starts(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch
    ):
        source = open_nats_source(bucket)

        def loop(name: str) -> EventLoop:
            source.interrupt()
            return EventLoop(name)

        monkeypatch.setattr(nats_source, "EventLoop", loop)
        assert list(source.updates(Event(), None)) == []

    def test_a_stopped_source_does_not_read_again(self, watches: list[Watch], store: Store, bucket: str):
        store.publish(book(1, 1))
        stop = Event()
        updates = open_nats_source(bucket).updates(stop, None)
        first = next(updates)
        assert first.replaces_all
        assert list(first.books) == [book(1, 1)]
        stop.set()
        watches[0]._delivered -= 1  # as if the last message was not delivered
        store.publish(book(1, 2))
        assert all(update.revision == 1 and not update.books for update in updates)
        assert len(watches) == 1

    def test_a_forked_process_may_close_the_feed_of_its_parent(self, bucket: str):
        script = (
            "import os, sys\n"
            "from market_index import LiveIndex\n"
            "from market_index_feeds import open_feed, open_store\n"
            "from tests.market_index_feeds.made_up import book, spots\n"
            "from tests.waiting import eventually\n"
            "live = LiveIndex()\n"
            "with open_store(sys.argv[1]) as store, open_feed(sys.argv[1]) as feed:\n"
            "    feed.start(live)\n"
            "    if child := os.fork():\n"
            "        os.waitpid(child, 0)\n"
            "    else:\n"
            "        feed.close()\n"
            "        print('closed', flush=True)\n"
            "        os._exit(0)\n"
            "    store.publish(book(1, 1))\n"
            "    eventually(lambda: spots(live) == {1: '1'})\n"
            "    print('followed')\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, bucket], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=True
        )
        assert done.stdout.splitlines() == ["closed", "followed"]

    def test_closing_ends_the_opening(self, live: LiveIndex, retried: Event):
        feed = Feed(open_nats_source(f"nats://127.0.0.1:{nats.spare_port()}/books", RetryTimeouts(1e6, 1e6)))

        def close() -> None:
            assert retried.wait(DEADLINE_SECONDS)
            feed.close()

        closing = in_thread(close)
        with pytest.raises(FeedError, match="was closed while it was loaded"):
            feed.start(live)
        closing.join()

    def test_closing_ends_the_opening_even_if_the_client_library_swallows_the_cancellation(
        self, store: Store, bucket: str, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        """`asyncio.wait_for` on Python 3.11 does that if the connection is made at that moment."""
        connecting, swallowed, connecting_again = Event(), Event(), Event()
        connect = Client.connect

        async def swallowing(self: Client, *arguments: Any, **options: Any) -> None:
            if swallowed.is_set():
                connecting_again.set()
            else:
                connecting.set()
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    swallowed.set()
            await connect(self, *arguments, **options)

        monkeypatch.setattr(Client, "connect", swallowing)
        feed = open_feed(bucket)
        raised: list[str] = []
        starting = in_thread(lambda: raised.append(raised_in_thread(lambda: feed.start(live))))
        assert connecting.wait(DEADLINE_SECONDS)
        feed.close()
        starting.join()
        assert "was closed while it was loaded" in raised[0]
        assert swallowed.is_set()
        assert not connecting_again.is_set()

    def test_closing_at_any_moment_leaves_no_thread(self, store: Store, bucket: str, live: LiveIndex):
        store.publish(*map(book, range(500)))
        for attempt in range(20):
            feed = open_feed(bucket)
            closing = Timer(attempt / 1000, feed.close)  # the moment is the subject
            closing.start()
            try:
                feed.start(live)
            except FeedError as error:
                assert "was closed while it was loaded" in str(error)  # noqa: PT017  # it may succeed as well
            except RuntimeError as error:
                assert "a feed is started once" in str(error)  # noqa: PT017  # it was closed before
            closing.join()
            feed.close()
        eventually(lambda: not [one for one in enumerate_threads() if one.name.startswith(("connection to", "feed"))])

    def test_closing_does_not_wait_for_a_name_that_is_looked_up(self, live: LiveIndex, monkeypatch: pytest.MonkeyPatch):
        looking_up, released = Event(), Event()

        def look_up(*_: object, **__: object) -> list[object]:
            looking_up.set()
            released.wait(DEADLINE_SECONDS)
            return []

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        feed = open_feed("nats://nowhere.example/books")

        def close() -> None:
            assert looking_up.wait(DEADLINE_SECONDS)
            feed.close()

        closing = in_thread(close)
        try:
            with pytest.raises(FeedError, match="was closed while it was loaded"):
                feed.start(live)
            closing.join()
            assert not released.is_set()
        finally:
            released.set()
