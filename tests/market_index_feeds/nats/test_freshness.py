"""The freshness of a bucket: the as_of is never later than a stored book."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from nats.aio.client import Client

from market_index import Freshness, LiveIndex, OrderBook, wire
from market_index_feeds import (
    BooksRejected,
    Feed,
    Receipt,
    Store,
    StoreError,
    Unacknowledged,
    open_feed,
    open_store,
)
from market_index_feeds.feed import NO_ORDER_BOOK
from market_index_feeds.nats.bucket import configuration
from market_index_feeds.nats.publisher import Publisher
from market_index_feeds.nats.records import (
    COMPLETE_HEADER,
    DIGEST_HEADER,
    FRESHNESS_KEY,
    Statement,
    digest_of,
    key_of,
    pair_of,
    statement_record,
)
from market_index_feeds.nats.writes import Write, WriteBatch
from tests import nats
from tests.market_index_feeds.made_up import book, pair, spots
from tests.waiting import DEADLINE_SECONDS, eventually


def fresh(number: int) -> Freshness:
    """Return the freshness of a publication, by its number."""
    return Freshness(f"slot {number}", datetime(2026, 11, 22, tzinfo=UTC) + timedelta(seconds=number))


def is_complete(target: str) -> bool:
    with open_feed(target) as feed:
        feed.read()
        return feed.content.coverage.is_complete


def stored(target: str) -> Freshness:
    return open_feed(target).read().freshness


@pytest.fixture
def sent(sent: list[Write]) -> Callable[[], list[str]]:
    """The sent records in their order: the numbers of pairs, and the as_of of a freshness."""

    def name_of(write: Write) -> str:
        named = pair_of(write.key)
        value = b"{}" if write.record is None else write.record.value
        return str(json.loads(value)["as_of"] if named is None else int.from_bytes(named.base.policy_id))

    return lambda: list(map(name_of, sent))


class TestStored:
    """Written records, and their order."""

    def test_it_is_written_after_the_books_and_removals(self, store: Store, sent: Callable[[], list[str]]):
        store.update([book(1, 1), book(2, 2)], freshness=fresh(1))
        assert store.update([book(3, 3)], [pair(1), pair(9)], freshness=fresh(2)) == Receipt(6, 1, 1)
        assert store.update((), freshness=fresh(2)) == Receipt(7)
        assert sent() == ["1", "2", "slot 1", "3", "1", "slot 2", "slot 2"]
        assert stored(store.target) == fresh(2)

    def test_its_value_is_json_with_a_digest(self, store: Store, bucket: str, nats_server: nats.Server):
        async def work(client: Client) -> tuple[bytes | None, dict[str, str] | None]:
            entry = await client.jetstream().get_last_msg(
                f"KV_{nats.name_of(bucket)}", f"$KV.{nats.name_of(bucket)}.freshness"
            )
            return entry.data, entry.headers

        store.update((), freshness=fresh(1))
        value, headers = nats.plain(nats_server, work)
        assert value == wire.freshness_to_json(fresh(1))
        assert headers is not None
        assert headers[DIGEST_HEADER] == statement_record(Statement(fresh(1))).headers[DIGEST_HEADER]

    def test_no_pair_has_its_key(self):
        assert pair_of(FRESHNESS_KEY) is None
        assert "." not in FRESHNESS_KEY

    def test_without_an_as_of_the_stored_one_stays(self, store: Store):
        store.update([book(1, 1)], as_of="slot 1")
        store.publish(book(1, 2))
        store.retract(pair(1))
        with open_store(store.target) as other:
            other.publish(book(2, 1))
            assert stored(store.target).as_of == "slot 1"
            other.update((), as_of="slot 2")
            # This store does not know of that change.
            store.publish(book(3, 1))
        assert stored(store.target).as_of == "slot 2"

    def test_replacing_without_an_as_of_makes_it_unknown(self, store: Store):
        store.update([book(1, 1)], as_of="slot 1")
        store.replace([book(1, 1)])
        found = stored(store.target)
        assert (found.as_of, found.published_at is None) == (None, False)

    def test_replacing_by_what_is_stored_writes_nothing(self, store: Store):
        store.replace([book(1, 1)])
        for freshness in (fresh(1), Freshness(), Freshness("slot 1")):
            last = store.update([book(1, 1)], freshness=freshness).revision
            with open_store(store.target) as other:
                assert other.replace([book(1, 1)], freshness=freshness) == Receipt(last)
                assert other.is_unchanged_by_others()
                assert other.replace([book(1, 1)], freshness=fresh(9)) == Receipt(last + 1)
                assert other.is_unchanged_by_others()

    def test_replace_corrects_the_freshness_of_another_program(
        self, store: Store, bucket: str, nats_server: nats.Server
    ):
        store.replace([book(1, 1)], freshness=fresh(1))
        nats.put(nats_server, nats.name_of(bucket), FRESHNESS_KEY, b"nonsense")
        assert not store.is_unchanged_by_others()
        store.replace([book(1, 1)], freshness=fresh(1))
        assert store.is_unchanged_by_others()
        with open_feed(bucket) as feed:
            assert (feed.read().freshness, feed.rejected) == (fresh(1), 0)

    @pytest.mark.parametrize("before", [b"nonsense", b"", wire.freshness_to_json(Freshness()), None])
    def test_an_as_of_that_is_not_stored_is_not_kept(
        self, store: Store, bucket: str, nats_server: nats.Server, before: bytes | None
    ):
        headers = {"KV-Operation": "DEL"} if before is None else None
        nats.put(nats_server, nats.name_of(bucket), FRESHNESS_KEY, before or b"", headers)
        with open_store(bucket) as other:
            other.publish(book(1, 1))
        assert stored(bucket).as_of is None


class TestGoingBack:
    """The stored freshness is withdrawn before a book that may be older."""

    @pytest.mark.parametrize(
        "back",
        [
            fresh(4),
            Freshness("slot 4"),
            Freshness("other", fresh(5).published_at),
            fresh(6).without_as_of(),
            Freshness(),
        ],
    )
    def test_an_as_of_that_may_be_older_is_not_claimed_for_the_books_before_it(
        self, store: Store, sent: Callable[[], list[str]], back: Freshness
    ):
        store.update([book(1, 5)], freshness=fresh(5))
        store.update([book(1, 4)], freshness=back)
        store.replace([book(1, 3)], freshness=back)
        assert sent()[:5] == ["1", "slot 5", "None", "1", str(back.as_of)]
        assert stored(store.target) == back

    def test_it_is_noticed_by_another_store_too(self, store: Store, sent: Callable[[], list[str]]):
        store.update([book(1, 5)], freshness=fresh(5))
        with open_store(store.target) as other:
            other.replace([book(1, 4)], freshness=fresh(4))
        assert sent() == ["1", "slot 5", "None", "1", "slot 4"]

    def test_a_replace_may_go_back_even_if_its_time_is_later(self, store: Store, sent: Callable[[], list[str]]):
        """The source of a relay was rolled back while the relay was down, and then published into."""
        store.update([book(1, 5)], freshness=fresh(5))
        with open_store(store.target) as other:
            other.replace([book(1, 4)], freshness=Freshness("slot 4", fresh(6).published_at))
            other.replace([book(1, 4)], freshness=fresh(7))
        assert sent() == ["1", "slot 5", "None", "1", "slot 4", "slot 7"]

    def test_a_later_freshness_and_a_heartbeat_withdraw_nothing(self, store: Store, sent: Callable[[], list[str]]):
        for number in (5, 6):
            store.update([book(1, number)], freshness=fresh(number))
        store.update([book(1, 7)], freshness=fresh(6))
        store.update((), freshness=fresh(2))
        assert sent() == ["1", "slot 5", "1", "slot 6", "1", "slot 6", "slot 2"]

    def test_a_freshness_in_flight_is_withdrawn(self, store: Store, sent: Callable[[], list[str]]):
        """The freshness could be stored after the books, which may be older."""
        store.update([book(1, 1)], freshness=Freshness())
        store._publisher.unacknowledged.add(FRESHNESS_KEY)  # type: ignore[attr-defined]  # as if it was not answered
        store.update([book(1, 2)], freshness=fresh(2))
        store.update([book(1, 3)], freshness=fresh(3))
        assert sent() == ["1", "None", "None", "1", "slot 2", "1", "slot 3"]


class TestOutdated:
    """While a stored book is older than the published one, the as_of is not known."""

    @pytest.fixture
    def small(self, bucket: str, nats_server: nats.Server) -> Iterator[Store]:
        """A store in a bucket that does not accept a large book."""
        name = nats.name_of(bucket)
        nats.request(nats_server, f"STREAM.CREATE.KV_{name}", configuration(name, 1) | {"max_msg_size": 1000})
        with open_store(bucket) as store:
            yield store

    large = OrderBook.from_levels(pair(1), bids=[(f"0.{n * 7919 % 10**9:09}", n**5) for n in range(1, 600)])

    def test_the_as_of_is_unknown_until_the_pair_is_published_or_retracted(self, small: Store):
        small.update([book(1, 1), book(2, 2)], freshness=fresh(1))
        with pytest.raises(BooksRejected):
            small.update([self.large, book(2, 3)], freshness=fresh(2))
        assert stored(small.target) == fresh(2).without_as_of()
        small.update([book(2, 4)], freshness=fresh(3))
        assert stored(small.target) == fresh(3).without_as_of()
        with pytest.raises(BooksRejected):
            small.replace([self.large, book(2, 4)], freshness=fresh(3))
        assert stored(small.target) == fresh(3).without_as_of()
        small.update([book(1, 5)], freshness=fresh(4))
        assert stored(small.target) == fresh(4)
        with pytest.raises(BooksRejected):
            small.update([self.large], freshness=fresh(5))
        small.update((), [pair(1)], freshness=fresh(6))
        assert stored(small.target) == fresh(6)

    def test_a_pair_that_has_no_book_is_not_outdated(self, small: Store):
        with pytest.raises(BooksRejected):
            small.update([self.large, book(2, 2)], freshness=fresh(1))
        assert stored(small.target) == fresh(1)
        with pytest.raises(BooksRejected):
            small.replace([self.large, book(2, 2)], freshness=fresh(2))
        assert stored(small.target) == fresh(2)

    def test_a_pair_whose_removal_is_rejected_is_outdated(self, store: Store, bucket: str, nats_server: nats.Server):
        name = nats.name_of(bucket)
        store.update([book(1, 1), book(2, 2)], freshness=fresh(1))
        nats.request(nats_server, f"STREAM.UPDATE.KV_{name}", configuration(name, 1) | {"max_msg_size": 20})
        with pytest.raises(BooksRejected):
            store.update((), [pair(1)], freshness=fresh(2))
        assert stored(bucket) == fresh(1), "a lower bound: the servers do not take that it is unknown either"
        nats.request(nats_server, f"STREAM.UPDATE.KV_{name}", configuration(name, 1))
        store.update([book(2, 3)], freshness=fresh(3))
        assert stored(bucket) == fresh(3).without_as_of()


class TestNotAccepted:
    """If the servers do not accept the freshness, the earlier one stays stored. No book is older than it."""

    @pytest.fixture
    def tiny(self, bucket: str, nats_server: nats.Server) -> Iterator[Store]:
        """A store in a bucket that accepts books, but no long as_of."""
        name = nats.name_of(bucket)
        nats.request(nats_server, f"STREAM.CREATE.KV_{name}", configuration(name, 1) | {"max_msg_size": 300})
        with open_store(bucket) as store:
            yield store

    def test_the_books_are_stored_nevertheless(self, tiny: Store):
        tiny.update([book(1, 1)], freshness=fresh(1))
        with pytest.raises(StoreError, match="accept the freshness of its books: message size exceeds maximum"):
            tiny.update([book(1, 2)], freshness=Freshness("x" * 200, fresh(2).published_at))
        index = open_feed(tiny.target).read()
        assert (spots(index), index.freshness) == ({1: "2"}, fresh(1))

    def test_no_book_is_stored_if_it_cannot_be_withdrawn(self, store: Store, bucket: str, nats_server: nats.Server):
        name = nats.name_of(bucket)
        store.update([book(1, 1)], freshness=fresh(1))
        nats.request(nats_server, f"STREAM.UPDATE.KV_{name}", configuration(name, 1) | {"max_msg_size": 20})
        with pytest.raises(StoreError, match="does not accept the freshness of its books"):
            store.update((), [pair(1)], freshness=fresh(0))
        nats.request(nats_server, f"STREAM.UPDATE.KV_{name}", configuration(name, 1))
        index = open_feed(bucket).read()
        assert (spots(index), index.freshness) == ({1: "1"}, fresh(1))

    def test_a_failed_update_leaves_the_earlier_one(self, own_server: nats.Server):
        url = own_server.bucket("books")
        with open_store(url, wait=0.3) as store:
            store.update([book(1, 1)], freshness=fresh(1))
            own_server.stop()
            with pytest.raises(Unacknowledged):
                store.update([book(1, 2)], freshness=fresh(2))
            own_server.send(signal.SIGCONT)
            assert stored(url) == fresh(1)
            store.update((), freshness=fresh(3))
            assert stored(url) == fresh(3)

    def test_it_alone_can_be_unacknowledged(self, own_server: nats.Server, monkeypatch: pytest.MonkeyPatch):
        url = own_server.bucket("books")
        with open_store(url, wait=0.3) as store:
            store.update([book(1, 1)], freshness=fresh(1))
            write = Publisher.write

            async def stopping(self: Publisher, change: WriteBatch) -> None:
                if change.writes[0].key == FRESHNESS_KEY:
                    own_server.stop()
                await write(self, change)

            with monkeypatch.context() as stopped:
                stopped.setattr(Publisher, "write", stopping)
                with pytest.raises(Unacknowledged, match="did not acknowledge 1 of 1 changes") as raised:
                    store.update([book(1, 2)], freshness=fresh(2))
            assert raised.value.pairs == ()
            own_server.send(signal.SIGCONT)
            with open_store(url, wait=DEADLINE_SECONDS) as other:
                other.update([book(1, 3)], freshness=fresh(3))
            store.update((), freshness=fresh(4))
            assert stored(url) == fresh(4)


class TestFollowed:
    """The message as a feed reads it."""

    def test_a_freshness_goes_live_with_and_without_books(self, store: Store, feed: Feed, live: LiveIndex):
        store.update([book(1, 5)], freshness=fresh(5))
        eventually(lambda: live.current.freshness == fresh(5))
        assert spots(live)[1] == "5"
        kept, quiet = live.current.order_book(pair(1)), feed.quiet_age
        store.update((), freshness=fresh(6))
        eventually(lambda: live.current.freshness == fresh(6))
        assert live.current.order_book(pair(1)) is kept
        assert feed.quiet_age < quiet + 1
        assert (feed.books, feed.rejected) == (4, 0)

    def test_an_invalid_freshness_is_rejected_and_unknown(
        self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server
    ):
        for value, headers in (
            (b"nonsense", None),
            (b"\xff", None),
            (b'{"as_of":""}', None),
            (wire.freshness_to_json(fresh(9)), {DIGEST_HEADER: "another"}),
            (wire.freshness_to_json(fresh(9)), {DIGEST_HEADER: "another", COMPLETE_HEADER: "\xe9"}),
        ):
            store.update((), freshness=fresh(1))
            eventually(lambda: (live.current.freshness, feed.current_rejections) == (fresh(1), 0))
            nats.put(nats_server, nats.name_of(bucket), FRESHNESS_KEY, value, headers)
            eventually(lambda: feed.current_rejections == 1)
            eventually(lambda: live.current.freshness == Freshness())
            with open_feed(bucket) as other:
                assert (other.read().freshness, other.current_rejections) == (Freshness(), 1)
        assert feed.rejected == 5
        assert spots(live) == {1: "1", 2: "2", 3: "3"}

    @pytest.mark.parametrize("operation", ["delete", "purge"])
    def test_a_deleted_freshness_is_unknown(
        self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server, operation: str
    ):
        async def work(client: Client) -> None:
            kv = await client.jetstream().key_value(nats.name_of(bucket))
            await getattr(kv, operation)(FRESHNESS_KEY)

        store.update((), freshness=fresh(1))
        eventually(lambda: live.current.freshness == fresh(1))
        nats.plain(nats_server, work)
        eventually(lambda: live.current.freshness == Freshness())
        assert feed.rejected == 0

    def test_a_purge_of_its_message_is_noticed(
        self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server
    ):
        store.update((), freshness=fresh(1))
        eventually(lambda: live.current.freshness == fresh(1))
        name = nats.name_of(bucket)
        nats.request(nats_server, f"STREAM.PURGE.KV_{name}", {"filter": f"$KV.{name}.{FRESHNESS_KEY}"})
        eventually(lambda: live.current.freshness == Freshness())
        assert spots(live) == {1: "1", 2: "2", 3: "3"}

    def test_a_bucket_of_another_program_has_no_freshness(self, bucket: str, nats_server: nats.Server, live: LiveIndex):
        open_store(bucket).close()
        nats.put(nats_server, nats.name_of(bucket), key_of(pair(1)), wire.order_book_to_json(book(1, 1)))
        with open_feed(bucket) as feed:
            feed.start(live)
            assert (spots(live), live.current.freshness, feed.rejected) == ({1: "1"}, Freshness(), 0)

    def test_a_bucket_that_nothing_was_published_into_is_blank(self, store: Store, live: LiveIndex):
        with open_feed(store.target) as feed:
            feed.start(live)
            assert feed.problem == NO_ORDER_BOOK
            store.update((), freshness=fresh(1))
            eventually(lambda: feed.problem is None)
            assert live.current.freshness == fresh(1)


class TestComplete:
    """The mark that the bucket names all pairs: only `replace` sets it, and only for the books of this bucket."""

    def test_only_replace_sets_it_and_an_update_keeps_it(self, store: Store):
        store.update([book(1, 1), book(2, 2)], freshness=fresh(1))
        assert not is_complete(store.target)
        last = store.replace([book(1, 1)], [pair(2)], freshness=fresh(1)).revision
        assert not is_complete(store.target)
        assert store.replace([book(1, 1)], freshness=fresh(1)) == Receipt(last + 1), "only the mark is written"
        assert is_complete(store.target)
        store.update([book(2, 2)], freshness=fresh(2))
        store.replace([book(1, 3)], [pair(2)], freshness=fresh(3))
        with open_store(store.target) as other:
            other.update((), [pair(1)])
            store.publish(book(1, 4))
        assert is_complete(store.target)

    def test_a_bucket_that_is_purged_meanwhile_does_not_get_it(
        self, store: Store, nats_server: nats.Server, monkeypatch: pytest.MonkeyPatch
    ):
        store.update([book(1, 1), book(2, 2)], freshness=fresh(1))
        write = Publisher.write

        async def purging(self: Publisher, change: WriteBatch) -> None:
            if change.writes and change.writes[0].key != FRESHNESS_KEY:
                await asyncio.to_thread(nats.purge, nats_server, nats.name_of(store.target))
            await write(self, change)

        with monkeypatch.context() as purged:
            purged.setattr(Publisher, "write", purging)
            store.replace([book(1, 1), book(2, 9)], freshness=fresh(2))
        assert (spots(open_feed(store.target).read()), is_complete(store.target)) == ({2: "9"}, False)

    def test_a_book_that_may_be_older_keeps_it(self, store: Store):
        store.replace([book(1, 5)], freshness=fresh(5))
        store.update([book(1, 4)], freshness=fresh(4))
        assert is_complete(store.target)

    def test_a_withdrawn_freshness_has_it_until_the_books_are_replaced(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ):
        """An interrupted `replace` leaves a bucket whose books are a mixture, but all pairs are named."""
        store.replace([book(1, 5)], freshness=fresh(5))
        write = Publisher.write

        async def failing(self: Publisher, change: WriteBatch) -> None:
            if change.writes[0].key != FRESHNESS_KEY:
                raise OSError("no route")
            await write(self, change)

        with monkeypatch.context() as failed:
            failed.setattr(Publisher, "write", failing)
            with pytest.raises(StoreError, match="no route"):
                store.replace([book(1, 4), book(2, 4)], freshness=fresh(4))
        index = open_feed(store.target).read()
        assert (spots(index), index.freshness, is_complete(store.target)) == ({1: "5"}, Freshness(), True)

    def test_a_bucket_that_was_created_again_lacks_it(self, store: Store, bucket: str, nats_server: nats.Server):
        """Also if the publisher that replaced the earlier one writes at the same sequences."""
        store.replace([book(1, 1), book(2, 2)])
        nats.delete(nats_server, nats.name_of(bucket))
        with open_store(bucket) as other:
            other.publish(book(1, 1), book(3, 3))
        store.publish(book(1, 2))
        assert not is_complete(bucket)

    def test_a_mark_of_another_program_does_not_count(self, store: Store, bucket: str, nats_server: nats.Server):
        value = wire.freshness_to_json(fresh(1))
        store.replace([book(1, 1)], freshness=fresh(1))
        for headers, found in (
            ({COMPLETE_HEADER: "true"}, fresh(1)),
            ({COMPLETE_HEADER: "true", DIGEST_HEADER: digest_of(value)}, Freshness()),
            ({DIGEST_HEADER: statement_record(Statement(fresh(1), "then")).headers[DIGEST_HEADER]}, Freshness()),
        ):
            nats.put(nats_server, nats.name_of(bucket), FRESHNESS_KEY, value, headers)
            assert (stored(bucket), is_complete(bucket)) == (found, False)
            with open_store(bucket) as other:
                other.publish(book(1, 1))
                assert not is_complete(bucket)
                other.replace([book(1, 1)], freshness=fresh(1))
            assert (stored(bucket), is_complete(bucket)) == (fresh(1), True)

    def test_replace_does_not_set_it_while_the_servers_do_not_accept_a_new_pair(
        self, bucket: str, nats_server: nats.Server
    ):
        """Otherwise, readers of an earlier bucket would retract the pair."""
        name, large = nats.name_of(bucket), OrderBook(pair(1), nats.noise(1).bids)
        nats.request(nats_server, f"STREAM.CREATE.KV_{name}", configuration(name, 1) | {"max_bytes": 40_000})
        with open_store(bucket) as store:
            for _ in range(2):
                with pytest.raises(BooksRejected):
                    store.replace([large, book(2, 2)])
                assert not is_complete(bucket)
            store.publish(book(1, 1))
            with pytest.raises(BooksRejected):
                store.replace([large, book(2, 2)])
            assert is_complete(bucket), "the bucket has an older book of the pair"
