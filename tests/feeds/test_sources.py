"""Names of feeds: their options, and the sample."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair, wire
from market_index_feeds import (
    Contents,
    FeedError,
    Kind,
    Opening,
    Store,
    StoreError,
    open_feed,
    open_store,
    register_kind,
    replay,
    sources,
)
from market_index_feeds.ledger import EXCHANGES
from market_index_feeds.sources import KINDS, kind_of
from tests.command import SAMPLE
from tests.feeds.event_lines import RESET, block, place, rollback
from tests.feeds.made_up import pair as made_up_pair
from tests.feeds.made_up import spots
from tests.feeds.scripted import MemoryStore, ScriptedSource

RECORDED = b'{"as_of":null,"recorded_at":"2026-11-22T00:00:00Z"}\n'


def line(number: int, spot: str) -> bytes:
    return wire.order_book_to_json(OrderBook(made_up_pair(number), spot=spot)) + b"\n"


NUMBER = "speed must be a number above 0, got "
BLOCKS = "history must be a number of blocks, 0 or more, got "


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("replay:FILE?speed=0", f"{NUMBER}'0'"),
        ("replay:FILE?speed=-1", f"{NUMBER}'-1'"),
        ("replay:FILE?speed=inf", f"{NUMBER}'inf'"),
        ("replay:FILE?speed=nan", f"{NUMBER}'nan'"),
        ("replay:FILE?speed=fast&loop", f"{NUMBER}'fast'"),
        ("replay:FILE?speed", f"{NUMBER}''"),
        ("replay:FILE?loop=yes", "loop must have no value, got 'yes'"),
        ("replay:FILE?loop&speed=1&loop", "option loop must be given once"),
        ("replay:FILE?history=1", "an option, after '?', must be speed or loop, got 'history'"),
        ("replay:FILE?loop&", "an option, after '?', must be speed or loop, got ''"),
        ("orders:FILE?history=-1", f"{BLOCKS}'-1'"),
        ("orders:FILE?history=1.0", f"{BLOCKS}'1.0'"),
        ("orders:-?history=", f"{BLOCKS}''"),
        ("orders:FILE?loop", "an option, after '?', must be history, got 'loop'"),
    ],
)
def test_an_unknown_or_invalid_option_is_named(name: str, message: str):
    with pytest.raises(FeedError) as raised:
        open_feed(name)
    assert str(raised.value).startswith(f"{name} cannot be opened: {message}")


def test_a_path_that_contains_a_question_mark_is_followed_by_another_one(tmp_path: Path):
    path = tmp_path / "odd?name"
    path.write_bytes(line(1, "1") + RECORDED)
    assert spots(open_feed(f"replay:{path}?").read()) == {1: "1"}
    with open_feed(f"replay:{path}?loop&speed=1000") as feed:
        assert feed.is_endless
    with pytest.raises(FeedError, match=r"got 'name' \(a path that contains '\?' must be followed by another '\?'\)$"):
        open_feed(f"replay:{path}")
    # Other feeds have no options.
    assert spots(open_feed(path).read()) == {1: "1"}


@pytest.mark.parametrize("name", ["market.db", "books.ndjson", "replay:books.ndjson", "orders:events.ndjson"])
def test_the_path_is_that_at_the_opening(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with open_store("market.db") as store:
        store.publish(wire.order_book_from_json(line(1, "1")))
    Path("books.ndjson").write_bytes(line(1, "1") + RECORDED)
    Path("events.ndjson").write_bytes(RESET + place("a") + block("1"))
    feed = open_feed(name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(feed.read()) == 1


def test_a_loop_is_read_up_to_its_first_content(tmp_path: Path):
    path = tmp_path / "recording.ndjson"
    path.write_bytes(line(1, "1") + RECORDED + line(1, "2") + RECORDED)
    assert spots(open_feed(f"replay:{path}?loop").read()) == {1: "1"}


def test_the_history_is_how_far_back_a_rollback_may_go(tmp_path: Path):
    path = tmp_path / "events.ndjson"
    path.write_bytes(RESET + place("a") + block("1") + place("c") + block("2") + rollback("1"))
    for options in ("", "?history=1"):
        assert open_feed(f"orders:{path}{options}").read().as_of == "1"
    feed = open_feed(f"orders:{path}?history=0")
    assert feed.read().as_of == "2"
    assert "block '1' must be retained for a rollback to it" in str(feed.health.problem)


def test_the_sample_has_all_its_pairs_and_changes_most_of_them_in_a_loop():
    live = LiveIndex()
    sample = open_feed("sample:").read()
    assert sample.keys() == open_feed(SAMPLE).read().keys()
    with open_feed("sample:") as feed:
        assert (feed.name, feed.is_endless, feed.is_stream) == ("sample:", True, True)
        feed.start(live)
        assert live.current == sample
        assert live.wait(after=live.current).changes_since(sample)[0]
    indexes = [index for _, index in replay("sample:")]
    assert {index.keys() == sample.keys() for index in indexes} == {True}
    changed = {pair for index in indexes for pair in index if index[pair] != sample[pair]}
    assert len(changed) == 9
    # The page shows the first pair of these: it changes, and is never crossed.
    pair = next(pair for pair, book in sample.items() if book.bids and book.asks and not book.is_crossed)
    assert (pair.base, pair in changed) == (ADA, True)
    assert not any(index[pair].is_crossed or index[pair].is_locked for index in indexes)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.noun)
def test_no_credentials_of_a_name_are_shown(kind: Kind):
    names = [f"{scheme}://user:pa:ss@w@host/x?key=secret" for scheme in kind.schemes]
    if kind.prefix:
        names = [f"{kind.prefix}{name}" for name in (*names, "http://user:pa:ss@host/x?key=secret", "a.ndjson")]
    for name in names:
        shown = kind.shown(name)
        assert not any(secret in shown for secret in ("user", "pa:", "ss@", "secret")), shown
        assert shown.startswith(kind.prefix or name.partition("//")[0])
        assert shown.endswith(("host/x", "a.ndjson"))


class TestRegistration:
    @pytest.fixture(autouse=True)
    def _own_table(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sources, "KINDS", [*KINDS])
        sources._register_installed.cache_clear()

    def kind(self, **more: Any) -> Kind:
        content = {made_up_pair(1): OrderBook(made_up_pair(1), spot="1")}

        def open_source(opening: Opening) -> ScriptedSource:
            source = ScriptedSource(opening.shown)
            source.books = content
            return source

        return Kind("a made-up medium", Contents.COPY, open_source, MemoryStore, **more)

    def test_a_registered_kind_is_opened_by_its_name(self):
        register_kind(self.kind(prefix="made-up:"))
        register_kind(self.kind(schemes=("invented",)))
        for name in ("made-up:x", "invented://x"):
            assert spots(open_feed(name).read()) == {1: "1"}
        with pytest.raises(StoreError, match="synchronous must be 'full' for a made-up medium, got 'normal'"):
            open_store("made-up:x", synchronous="normal")

    def test_a_kind_of_an_installed_package_is_found_by_its_entry_point(self, monkeypatch: pytest.MonkeyPatch):
        entry = SimpleNamespace(load=lambda: self.kind(prefix="made-up:"))
        monkeypatch.setattr(sources, "entry_points", lambda group: [entry] if group == "market_index.kinds" else [])
        assert spots(open_feed("made-up:x").read()) == {1: "1"}

    def test_a_kind_of_an_installed_package_that_is_not_valid_is_named(self, monkeypatch: pytest.MonkeyPatch):
        def load() -> Kind:
            raise ImportError("No module named 'redis'")

        entry = SimpleNamespace(load=load, value="my_package:KIND")
        monkeypatch.setattr(sources, "entry_points", lambda group: [entry])
        with pytest.raises(FeedError, match=r"the kind my_package:KIND of an installed .*No module named 'redis'"):
            open_feed("made-up:x")

    @pytest.mark.parametrize("error", [OSError(111, "Connection refused"), FeedError("Connection refused")])
    def test_a_store_that_cannot_be_opened_raises_a_store_error(self, error: Exception):
        """A relay then opens it again."""

        def open_broken(name: str, **_: object) -> Store:
            raise error

        register_kind(Kind("a broken medium", Contents.COPY, lambda _: ScriptedSource(), open_broken, prefix="broken:"))
        with pytest.raises(StoreError, match="broken:x cannot be opened: Connection refused"):
            open_store("broken:x")

    @pytest.mark.parametrize("names", [{}, {"prefix": "made-up"}, {"prefix": "orders:"}, {"schemes": ("nats",)}])
    def test_its_name_must_be_its_own(self, names: dict[str, Any]):
        with pytest.raises(ValueError, match=r"a kind must have a prefix|must have a name of its own"):
            register_kind(self.kind(**names))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("orders:", "orders: cannot be opened: the name of a file must follow orders:, or - for standard input"),
        ("order:x.ndjson", "order:x.ndjson cannot be opened: No such file or directory (a prefix must be sample:, "),
    ],
)
def test_an_error_names_what_the_user_wrote(name: str, message: str):
    with pytest.raises(FeedError) as raised:
        open_feed(name)
    assert str(raised.value).startswith(message)


def test_the_ledger_is_a_url_with_options_and_credentials():
    kind = kind_of(name := "kupo:http://u:p@h:1442?pair=ADA/00:&only&hours=48".replace("00:", "00" * 28 + ":"))
    opening = kind.opening(name, headers={"X-API-Key": "secret"})
    token = AssetId(bytes(28), b"")
    assert (opening.target, opening.shown) == ("http://u:p@h:1442", "kupo:http://h:1442")
    assert opening.options == {"pair": [Pair(ADA, token)], "only": True, "hours": 48}
    assert "secret" not in repr(opening)
    with open_feed(name, headers={"X-API-Key": "secret"}) as feed:
        assert (feed.name, repr(feed)) == ("kupo:http://h:1442", "<Feed of kupo:http://h:1442>")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "after=1",
            "an option, after '?', must be pair or only or hours or network or venues or least_execution, got 'after'",
        ),
        ("pair=ADA", "a pair must be base/quote, got 'ADA'"),
        ("pair=ADA/ADA", "a pair must have two assets, got 'ADA/ADA'"),
        ("only=yes", "only must have no value, got 'yes'"),
        ("hours=0", "hours must be a number of hours, from 1 to 100000, got '0'"),
        ("hours=1&hours=2", "option hours must be given once"),
        ("only", "only hides all pairs except those of pair=BASE/QUOTE, got no such pair"),
    ],
)
def test_an_invalid_option_of_the_ledger_is_named_without_credentials(options: str, message: str):
    with pytest.raises(FeedError) as raised:
        open_feed(f"kupo:http://u:p@h?{options}")
    assert str(raised.value).startswith(f"kupo:http://h cannot be opened: {message}")
    assert "path" not in str(raised.value), "the remedy for the name of a file"


def test_exchanges_are_for_the_ledger():
    with pytest.raises(
        FeedError, match=r"^sample: cannot be opened: exchanges are those of the ledger, got the sample$"
    ):
        open_feed("sample:", exchanges=EXCHANGES)


@pytest.mark.parametrize(
    ("name", "headers", "message"),
    [
        ("sample:", {"X-API-Key": "secret"}, "headers are sent to a service, got the sample"),
        ("books.ndjson", {"X-API-Key": "secret"}, "headers are sent to a service, got lines of order books"),
        ("http://127.0.0.1:1", {"X API": "secret"}, "the name of a header must be a token"),
        ("http://127.0.0.1:1", {"X-Key": "secret\r\n"}, "the value of the header X-Key must be printable ASCII"),
    ],
)
def test_headers_are_for_services_and_are_not_shown(name: str, headers: dict[str, str], message: str):
    with pytest.raises(FeedError, match=f"^{name} cannot be opened: {message}") as raised:
        open_feed(name, headers=headers)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["sample:x", "sample:?loop"])
def test_nothing_follows_the_name_of_the_sample(name: str):
    with pytest.raises(FeedError, match=f"{name.replace('?', '.')} cannot be opened: nothing must follow sample:"):
        open_feed(name)


@pytest.mark.parametrize("target", ["market.db", "nats://127.0.0.1:1/books"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wait": -1}, "wait must be 0 or more seconds, got -1"),
        ({"wait": float("nan")}, "wait must be 0 or more seconds, got nan"),
        ({"wait": "1"}, "wait must be 0 or more seconds, got '1'"),
        ({"wait": None}, "wait must be 0 or more seconds, got None"),
        ({"synchronous": "off"}, "synchronous must be 'full' or 'normal', got 'off'"),
        ({"synchronous": None}, "synchronous must be 'full' or 'normal', got None"),
    ],
)
def test_a_wrong_argument_of_a_store_is_one_kind_of_error(
    target: str, arguments: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=f"^{target} cannot be opened: {message}$"):
        open_store(target, **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "noun"),
    [
        ("-", "lines of order books"),
        ("replay:x?y", "a replay"),
        ("orders:-", "events of orders"),
        ("http://127.0.0.1:1", "a service"),
    ],
)
def test_a_name_of_another_kind_is_no_store(name: str, noun: str):
    with pytest.raises(StoreError) as raised:
        open_store(name)
    assert str(raised.value) == f"a store must be a file such as market.db, or a bucket, got {noun}: {name!r}"


def test_the_sample_is_no_store():
    with pytest.raises(StoreError, match="or a bucket, got the sample: 'sample:'"):
        open_store("sample:")
