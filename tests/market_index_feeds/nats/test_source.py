"""The feed of a bucket shows its content after any change of the bucket or failure of its server."""

from __future__ import annotations

import asyncio
import shutil
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, rule
from nats.aio.client import Client

from market_index import Freshness, LiveIndex, wire
from market_index_feeds import (
    Feed,
    FeedError,
    Store,
    StoreError,
    open_feed,
    open_store,
)
from market_index_feeds.feed import NO_ORDER_BOOK
from market_index_feeds.nats import open_nats_store
from market_index_feeds.nats import records as nats_records
from market_index_feeds.nats.bucket import BucketState, Message, configuration, state_of
from market_index_feeds.nats.connection import BucketConnection
from market_index_feeds.nats.errors import Unreachable
from market_index_feeds.nats.watch import Watch
from tests import links, nats
from tests.market_index_feeds.followed import Followed
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.nats.conftest import SHORT, feed_with_short_timeouts
from tests.waiting import DEADLINE_SECONDS, WITHOUT_SHRINKING, eventually

LACKS = "lacks live pairs, and is not complete: it must be replaced as a whole"


def purge_of(server: nats.Server, bucket: str, number: int) -> None:
    """Purge the messages of one pair, so that not even its deletion is stored."""
    name = nats.name_of(bucket)
    nats.request(server, f"STREAM.PURGE.KV_{name}", {"filter": f"$KV.{name}.{nats_records.key_of(pair(number))}"})


class TestNoticing:
    @pytest.mark.parametrize("is_complete", [True, False])
    def test_a_purge_retracts_nothing_until_the_bucket_is_complete_again(
        self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server, is_complete: bool
    ):
        if is_complete:
            store.replace([book(1, 1), book(2, 2), book(3, 3)], as_of="slot 1")
            eventually(lambda: feed.content.coverage.is_complete)
        revision = store.revision
        nats.purge(nats_server, nats.name_of(bucket))
        eventually(lambda: feed.problem == NO_ORDER_BOOK)
        assert (spots(live), live.current.freshness) == ({1: "1", 2: "2", 3: "3"}, Freshness())
        assert feed.revision == store.revision == revision
        store.update([book(2, 8)], as_of="slot 2")
        eventually(lambda: (spots(live), feed.problem) == ({1: "1", 2: "8", 3: "3"}, LACKS))
        assert live.current.as_of is None
        store.replace([book(2, 8), book(3, 9)], as_of="slot 3")
        eventually(lambda: (spots(live), feed.problem) == ({2: "8", 3: "9"}, None))
        assert live.current.as_of == "slot 3"

    def test_a_partial_purge(self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server):
        """The mark of the bucket says whether the pair is retracted."""
        purge_of(nats_server, bucket, 3)
        eventually(lambda: feed.problem == LACKS)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        assert feed.books == 3, "unchanged books were not read again"
        store.replace([book(1, 1), book(2, 2)])
        eventually(lambda: (spots(live), feed.problem) == ({1: "1", 2: "2"}, None))
        purge_of(nats_server, bucket, 2)
        eventually(lambda: (spots(live), feed.problem) == ({1: "1"}, None))

    def test_a_deleted_bucket_stays_live_until_it_is_created_again(
        self,
        store: Store,
        feed: Feed,
        bucket: str,
        live: LiveIndex,
        nats_server: nats.Server,
        logged: pytest.LogCaptureFixture,
    ):
        nats.delete(nats_server, nats.name_of(bucket))
        eventually(lambda: "cannot be read: there is no such bucket; keeping its 3 pairs" in logged.text)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        with pytest.raises(StoreError, match="there is no such bucket"):
            store.publish(book(1, 9))
        with open_store(bucket) as again:
            eventually(lambda: feed.problem == NO_ORDER_BOOK)
            assert spots(live) == {1: "1", 2: "2", 3: "3"}
            again.publish(book(2, 9))
            eventually(lambda: (spots(live), feed.problem) == ({1: "1", 2: "9", 3: "3"}, LACKS))
            eventually(lambda: feed.revision == again.revision == 2)
            again.replace([book(2, 9)])
            eventually(lambda: spots(live) == {2: "9"})
        eventually(lambda: "recovered after" in logged.text)
        eventually(lambda: feed.age < 1)

    def test_a_bucket_that_is_edited_to_keep_a_history_is_a_problem_until_it_is_repaired(
        self,
        store: Store,
        feed: Feed,
        bucket: str,
        live: LiveIndex,
        nats_server: nats.Server,
        logged: pytest.LogCaptureFixture,
    ):
        """With a history, deleting the last message of a key would show its older book to new readers only."""
        name = nats.name_of(bucket)
        edited = configuration(name, 1) | {"max_msgs_per_subject": 5}
        nats.request(nats_server, f"STREAM.UPDATE.KV_{name}", edited)
        eventually(lambda: "got max_msgs_per_subject 5; run: nats stream edit" in logged.text)
        with pytest.raises(StoreError, match="was not written to: the bucket must store the last value of each key"):
            store.replace([book(1, 9)])
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        nats.request(nats_server, f"STREAM.UPDATE.KV_{name}", edited | {"max_msgs_per_subject": 1})
        eventually(lambda: "recovered after" in logged.text)
        store.replace([book(1, 9)])
        eventually(lambda: spots(live) == {1: "9"})

    def test_a_bucket_that_is_deleted_and_created_again(
        self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server
    ):
        nats.delete(nats_server, nats.name_of(bucket))
        with open_store(bucket) as again:
            # As many keys and messages as before.
            again.publish(book(1, 5), book(2, 6), book(3, 7))
        eventually(lambda: spots(live) == {1: "5", 2: "6", 3: "7"})

    def test_a_deleted_consumer(self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server):
        async def work(client: Client) -> None:
            manager = client.jetstream()
            for consumer in await manager.consumers_info(f"KV_{nats.name_of(bucket)}"):
                await manager.delete_consumer(f"KV_{nats.name_of(bucket)}", consumer.name)

        nats.plain(nats_server, work)
        store.publish(book(1, 9))
        eventually(lambda: spots(live) == {1: "9", 2: "2", 3: "3"})

    def test_a_server_that_lost_its_last_messages(
        self, own_server: nats.Server, own_store: Store, own_feed: Feed, live: LiveIndex, tmp_path: Path
    ):
        own_server.send(signal.SIGTERM)
        assert own_server.process
        own_server.process.wait(DEADLINE_SECONDS)
        shutil.copytree(own_server.folder / "one", tmp_path / "copy")
        own_server.start()
        own_server.wait()
        own_store.publish(book(1, 3), book(4, 4))
        eventually(lambda: spots(live) == {1: "3", 2: "2", 4: "4"})
        own_server.kill()
        own_server.empty()
        shutil.copytree(tmp_path / "copy", own_server.folder / "one")
        own_server.start()
        own_server.wait()
        # As many messages and as many keys as before: the numbers do not show it.
        own_store.publish(book(5, 5), book(2, 6))
        eventually(lambda: spots(live) == {1: "1", 2: "6", 4: "4", 5: "5"})
        eventually(lambda: own_feed.problem == LACKS)
        own_store.replace([book(1, 1), book(2, 6), book(5, 5)])
        eventually(lambda: spots(live) == {1: "1", 2: "6", 5: "5"})

    def test_an_emptied_disk(
        self, own_server: nats.Server, own_feed: Feed, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        own_server.kill()
        own_server.empty()
        eventually(lambda: "; keeping its 2 pairs" in logged.text)
        with pytest.raises(StoreError):
            open_nats_store(own_feed.source, wait=0.2, opening=SHORT).publish(book(1, 1))
        own_server.start()
        own_server.wait()
        eventually(lambda: "there is no such bucket; keeping its 2 pairs" in logged.text)
        assert spots(live) == {1: "1", 2: "2"}
        with open_store(own_feed.source) as again:
            again.replace([book(2, 2), book(3, 3)])
        eventually(lambda: spots(live) == {2: "2", 3: "3"})

    def test_a_message_that_was_not_delivered(
        self, watches: list[Watch], store: Store, feed: Feed, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        watches[0]._delivered -= 1  # as if the last message was not delivered
        store.publish(book(1, 9))
        eventually(lambda: spots(live) == {1: "9", 2: "2", 3: "3"})
        message = "reloaded, because a message was delivered twice, or not at all: 0 pairs dropped"
        eventually(lambda: message in logged.text)

    def test_an_invalid_value_when_all_is_read_again(
        self, watches: list[Watch], store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server
    ):
        nats.put(nats_server, nats.name_of(bucket), nats_records.key_of(pair(1)), b"nonsense")
        eventually(lambda: feed.rejected == 1)
        watches[0]._delivered -= 1  # as if the last message was not delivered
        store.publish(book(2, 9))
        eventually(lambda: spots(live)[2] == "9")
        assert spots(live) == {1: "1", 2: "9", 3: "3"}, "the last good book stays"

    def test_a_pair_that_a_complete_bucket_lacks_is_kept_while_a_value_is_invalid(
        self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server
    ):
        store.replace([book(1, 1), book(2, 2), book(3, 3)], as_of="slot 1")
        nats.put(nats_server, nats.name_of(bucket), nats_records.key_of(pair(1)), b"nonsense")
        eventually(lambda: pair(1) in feed.content.coverage.invalid)
        purge_of(nats_server, bucket, 2)
        eventually(lambda: pair(2) in feed.content.coverage.absent)
        assert (spots(live), live.current.as_of) == ({1: "1", 2: "2", 3: "3"}, None)
        store.publish(book(1, 4))
        eventually(lambda: (spots(live), live.current.as_of) == ({1: "4", 3: "3"}, "slot 1"))

    def test_a_server_that_dies_during_a_read(
        self, own_server: nats.Server, own_store: Store, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        own_store.publish(*(book(number, 1) for number in range(2_000)))
        deliver, kills = Watch.next, 0

        async def deliver_and_kill(self: Watch) -> list[Message]:
            nonlocal kills
            messages = await deliver(self)
            if messages and not kills:
                kills += 1
                own_server.kill()
                own_server.start()
            return messages

        monkeypatch.setattr(Watch, "next", deliver_and_kill)
        with open_feed(own_store.target) as feed:
            feed.start(live)
        assert kills == 1
        assert len(live.current) == 2_000

    def test_more_than_a_server_sends_before_an_answer(
        self, store: Store, bucket: str, nats_server: nats.Server, monkeypatch: pytest.MonkeyPatch
    ):
        """The server continues once the watch acknowledges that everything sent so far was read."""
        answers: list[str] = []
        reply = BucketConnection.reply

        async def counted(self: BucketConnection, subject: str) -> None:
            answers.append(subject)
            await reply(self, subject)

        monkeypatch.setattr(BucketConnection, "reply", counted)

        async def work(client: Client) -> None:
            for number in range(40):
                await client.jetstream().publish(f"$KV.{nats.name_of(bucket)}.noise.{number}", bytes(100_000))

        nats.plain(nats_server, work)
        store.publish(book(1, 1))
        with open_feed(bucket) as feed:
            assert spots(feed.read()) == {1: "1"}
            assert feed.rejected == 40
        assert answers

    @pytest.mark.thorough
    def test_a_slow_link(self, store: Store, bucket: str, nats_server: nats.Server, live: LiveIndex):
        """The answers of the server wait behind its deliveries, for seconds."""
        store.publish(*map(nats.noise, range(25)))
        with (
            links.slow_link(nats_server.port, 1_000_000) as port,
            open_feed(f"nats://127.0.0.1:{port}/{nats.name_of(bucket)}") as feed,
        ):
            feed.start(live)
            assert len(live.current) == 25
            store.publish(book(1, 1))
            eventually(lambda: len(live.current) == 26)

    def test_a_server_that_does_not_answer(
        self,
        own_server: nats.Server,
        own_store: Store,
        own_feed: Feed,
        live: LiveIndex,
        logged: pytest.LogCaptureFixture,
    ):
        own_server.stop()
        eventually(lambda: "cannot be read: no answer within 1 seconds; keeping its 2 pairs" in logged.text)
        with pytest.raises(FeedError, match="no answer within 2 seconds"):
            feed_with_short_timeouts(own_feed.source).read()
        own_server.send(signal.SIGCONT)
        own_store.publish(book(1, 2))
        eventually(lambda: spots(live) == {1: "2", 2: "2"})

    def test_a_server_that_lost_its_last_messages_and_kept_its_connections(
        self, watches: list[Watch], store: Store, feed: Feed, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        watches[0]._sequence += 5  # as if messages with these sequences were delivered
        eventually(lambda: "reloaded, because it was purged or rolled back" in logged.text)
        store.publish(book(1, 9))
        eventually(lambda: spots(live) == {1: "9", 2: "2", 3: "3"})

    def test_the_state_of_a_server_without_a_leader_is_ignored(self):
        """The answer of a server with an emptied disk, for some fifty milliseconds, and that of a leader."""
        state = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0}
        followers = [{"name": "n0", "current": True}, {"name": "n1", "current": False}]
        alone: dict[str, Any] = {
            "created": "then",
            "config": {**configuration("books", 3), "max_age": 0, "retention": "limits"},
            "state": state,
            "cluster": {"name": "three", "replicas": followers},
        }
        with pytest.raises(Unreachable, match="the servers have not agreed who leads"):
            state_of(alone)
        leading = {"name": "three", "leader": "n1", "replicas": followers[:1]}
        assert state_of(alone | {"cluster": leading}) == BucketState("then", 0, 0, 0)
        full = {"bytes": 9, "last_seq": 7, "num_subjects": 5}
        single = {"created": "then", "config": alone["config"], "state": full}
        assert state_of(single) == BucketState("then", 7, 5, 9)

    def test_a_feed_that_is_started_in_an_event_loop(self, store: Store, bucket: str, live: LiveIndex):
        """For example, in the lifespan of an app."""
        store.publish(book(1, 1))

        async def lifespan() -> None:
            with open_feed(bucket) as feed, open_store(bucket) as another:
                feed.start(live)
                another.publish(book(2, 2))
                while len(live.current) < 2:
                    await asyncio.sleep(0.01)

        asyncio.run(lifespan())
        assert spots(live) == {1: "1", 2: "2"}

    @pytest.mark.parametrize(
        "error", [OSError(24, "Too many open files"), RuntimeError("Too many open files, and threads")]
    )
    def test_without_a_thread_it_cannot_be_opened(
        self, bucket: str, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, error: Exception
    ):
        def event_loop(_: str) -> None:
            raise error

        for module in ("source", "store"):
            monkeypatch.setattr(f"market_index_feeds.nats.{module}.EventLoop", event_loop)
        with pytest.raises(FeedError, match="cannot be read: Too many open files"):
            open_feed(bucket).start(live)
        with pytest.raises(StoreError, match="cannot be opened: Too many open files"):
            open_store(bucket)

    def test_a_key_of_another_program_is_ignored(
        self,
        store: Store,
        feed: Feed,
        bucket: str,
        live: LiveIndex,
        nats_server: nats.Server,
        logged: pytest.LogCaptureFixture,
    ):
        for _ in range(3):
            nats.put(nats_server, nats.name_of(bucket), "config.of.mine", b"{}")
        nats.put(nats_server, nats.name_of(bucket), nats_records.key_of(pair(4)), wire.order_book_to_json(book(4, 4)))
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3", 4: "4"})
        assert feed.rejected == logged.text.count("value config.of.mine rejected") == 1
        store.update((), as_of="slot 1")
        eventually(lambda: live.current.as_of == "slot 1")
        assert store.replace([book(1, 1)]).retracted == 3
        eventually(lambda: spots(live) == {1: "1"})
        with open_feed(bucket) as other:
            other.read()
            assert other.rejected == 1, "foreign keys are left alone"

    def test_a_key_that_others_purge_is_retracted(
        self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server
    ):
        async def work(client: Client) -> None:
            kv = await client.jetstream().key_value(nats.name_of(bucket))
            await kv.purge(nats_records.key_of(pair(1)))
            await kv.delete(nats_records.key_of(pair(2)))

        nats.plain(nats_server, work)
        eventually(lambda: spots(live) == {3: "3"})

    def test_a_removed_value_that_names_no_pair_is_no_current_rejection(
        self, store: Store, feed: Feed, bucket: str, nats_server: nats.Server
    ):
        nats.put(nats_server, nats.name_of(bucket), "odd", b"{}")
        eventually(lambda: feed.current_rejections == 1)

        async def work(client: Client) -> None:
            await (await client.jetstream().key_value(nats.name_of(bucket))).delete("odd")

        nats.plain(nats_server, work)
        eventually(lambda: feed.current_rejections == 0)


class FollowedBucket(Followed):
    """Publishers, a purge, and a new bucket: the reader shows what the bucket contains."""

    per_call = False
    server: nats.Server
    numbers = count()

    @initialize()
    def begin(self) -> None:
        self.name = f"followed{next(self.numbers)}"
        self.initialize(f"{self.server.url}/{self.name}")

    @rule()
    def purge(self) -> None:
        nats.purge(self.server, self.name)
        self.lose_all()

    @rule()
    def make_again(self) -> None:
        nats.delete(self.server, self.name)
        for store in self.stores:
            store.close()
        self.stores = [self.opened() for _ in range(2)]
        self.lose_all()
        self.revision = 0

    def lose_all(self) -> None:
        self.absent, self.model, self.is_complete = self.absent | self.model, {}, False

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "name"):
            nats.delete(self.server, self.name)


def test_a_reader_shows_the_content_of_the_bucket(nats_server: nats.Server):
    FollowedBucket.server = nats_server
    FollowedBucket.TestCase.settings = settings(
        max_examples=8, stateful_step_count=12, deadline=None, phases=WITHOUT_SHRINKING
    )
    FollowedBucket.TestCase().runTest()
