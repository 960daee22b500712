"""Files of version 0.1, whose schema has no freshness: they are read, and upgraded by the first publish."""

from __future__ import annotations

import zlib
from base64 import b64decode
from pathlib import Path

import pytest

from market_index import LiveIndex, OrderBook
from market_index.freshness import UNKNOWN
from market_index_feeds import FeedError, Receipt, StoreError, open_feed, open_store
from market_index_feeds.sqlite import file
from market_index_http import create_app
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.sqlite.files import plain
from tests.service import served
from tests.waiting import eventually

# What market-index 0.1.0 wrote: one process published pairs 1 and 2, another one pair 3, and retracted pair 2.
STORE_OF_0_1 = """
eNrt2ktoE0EYB/DZ3aRp2iYrVk17UIYFpZW1tRYfBBRTu0pqTDWmtVVK2CSrLk27SXaj1tpDVBAEQUQ96EFQqCcPFvSi9uClFx83
iycFD4riwaqooOJkG23r69CAqPx/MDsz32Zn95s5zZDt20K6pdHdRrZPtWgzmUN4nqynlBDCs+IkUwRWHNP6XLGQvl5LJz/Hk4YE
5xHfE4e3j4hB8a73NWsAAAAAAADA/y0vOFy++fO5vG6p8ZSWzfWbheLcEFECUYVGAy0hhRYitG63njUtGgxHlU1KhG6NBLcEIt10
s9It05Q67U64PUrDHaGQTC2jV+unLaH2lhlBS03NDNZHhTJfo4/L6P1J7UDcMHrNWHwgltX26aZu9NsBR/GLguFWpYv+8BvaHp4M
0rqvofo8x7l8Ph+XV+3c7Nv2hZ+RXfGxtKpnaVTpin77LNoRDm7rUGT67SU/ppjU92gs9+9yjBvJAXus+nq+zLfWxxE7MzOTYjv7
mJqzDLsfm0yjya4Ke/nywpJ4vNVE8Gwk3kfeY6wCAAAAAACA329s2wRXvpKT8+by2Wn2r1YbA60BPpS9dvRcxYmll6663qVv14wP
SnHV1CS/VMLAkixlcoZVGIW9gvXMtGGxTjNrxvWkKfl39ciSavbarSGWj/WnJ7CTLyvMH5llliuK0yeMfBivbXk+cbBnbPTQvSdV
Dw4v4tjCuOUjC2c5clNx5E7XnYlI+d63r623TU9r0plS16XpN+uyvGHlyqmlGZTSWT2hTcZZWE0kcn25lGppyVhKz+T0pG4NSP7V
Q1NrOP2RVb9+ZM1Qz1AFm3xBXEHEm+J+VgEAAAAAAACArdWRr+RKPOYRShnk62EHv4EN4i7xXKNCfMf2/y+I+FF8xSoAAAAAAAAA
+Lc5BY4T+MKVL/z930kEwe32sBYvXiXiQ3YBAAAAAAAAgL/DEt5JOFkWqqoXjO1Y5ufL15kDtdWfz3RY3ScbPj079+bljeElt84u
Wsw5iVuWzydHj/uHL7ZW3Ww79fj+yMa5x2IXiOf66Z2X53280nj2yhedI3Kb
"""

BOOK = OrderBook.from_levels(pair(1), bids=[("0.5", 7)], asks=[("0.6", 8)], spot="0.55")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "market.db"
    path.write_bytes(zlib.decompress(b64decode(STORE_OF_0_1)))
    return path


def version(path: Path) -> object:
    return plain(path, "PRAGMA user_version")[0][0]


class TestReading:
    def test_it_has_its_books_and_no_freshness(self, old: Path):
        before = old.read_bytes()
        with open_feed(old) as feed:
            index = feed.read()
            assert (feed.revision, feed.rejected, feed.is_blank) == (3, 0, False)
        assert (spots(index), index.order_book(pair(1)), index.freshness) == ({1: "0.55", 3: "3"}, BOOK, UNKNOWN)
        assert old.read_bytes() == before

    def test_it_is_served(self, old: Path, live: LiveIndex):
        with open_feed(old) as feed, served(create_app(live)) as service:
            feed.start(live)
            answer = service.order_book(str(pair(3).base), "ADA")
            assert (answer.status, answer.json["spot"]) == (200, "3")
            assert not [name for name in answer.headers if name.startswith("market-index")]

    def test_opening_a_store_does_not_upgrade_it(self, old: Path):
        before = old.read_bytes()
        with open_store(old) as store:
            assert (store.revision, store.is_unchanged_by_others()) == (3, False)
            assert store.publish() == store.retract() == Receipt(3)
            assert version(old) == 1
        assert old.read_bytes() == before


class TestUpgrading:
    def test_the_first_publish_upgrades_it_under_a_reader(self, old: Path, live: LiveIndex):
        with open_feed(old) as feed, open_store(old) as store:
            feed.start(live)
            kept = live.current.order_book(pair(1))
            assert store.update([book(3, 4)], as_of="slot 4") == Receipt(4, published=1)
            eventually(lambda: (spots(live), live.current.as_of) == ({1: "0.55", 3: "4"}, "slot 4"))
            assert live.current.order_book(pair(1)) is kept
            assert (feed.books, feed.revision) == (3, 4)
        assert version(old) == 2
        assert open_feed(old).read().as_of == "slot 4"

    @pytest.mark.parametrize("change", ["update", "replace", "retract"])
    def test_so_does_any_change(self, old: Path, change: str):
        with open_store(old) as store:
            if change == "retract":
                assert store.retract(pair(9)) == Receipt(4)
            elif change == "update":
                assert store.update(()) == Receipt(4)
            else:
                assert store.replace([BOOK, book(3, 3)]) == Receipt(4)
        assert version(old) == 2
        index = open_feed(old).read()
        assert (spots(index), index.published_at is None) == ({1: "0.55", 3: "3"}, False)

    def test_replacing_by_what_is_stored_with_an_unknown_freshness_does_not(self, old: Path):
        with open_store(old) as store:
            assert store.replace([BOOK, book(3, 3)], freshness=UNKNOWN) == Receipt(3)
        assert version(old) == 1

    def test_a_change_that_fails_does_not(self, old: Path):
        with open_store(old) as store, pytest.raises(ZeroDivisionError):
            store.replace([book(3, 9)], lambda _: bool(1 / 0))
        assert version(old) == 1

    def test_a_program_that_reads_only_version_1_reports_the_schema(self, old: Path, monkeypatch: pytest.MonkeyPatch):
        """Version 0.1.0 is such a program."""
        with open_store(old) as store:
            store.publish(book(1, 1))
        monkeypatch.setattr(file, "READ_VERSIONS", (1,))
        monkeypatch.setattr(file, "SCHEMA_VERSION", 1)
        message = r"its schema must be 1, got 2 \(a later version of market-index wrote it\)"
        with pytest.raises(FeedError, match=message):
            open_feed(old)
        with pytest.raises(StoreError, match=message):
            open_store(old)
