"""Replicas with different compressors: their bodies, their entity tags, and clients that change between them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations

import pytest
from hypothesis import given

from market_index import LiveIndex, OrderBook, wire
from market_index.compressors import Compressor
from market_index.strategies import order_books
from market_index_http.app import MarketIndexApp
from market_index_http.bodies import Bodies, LargeBody, SmallBody, constant_fields
from market_index_http.compression import GzipEncoder
from market_index_http.counters import Counters
from market_index_http.endpoints import Endpoints
from market_index_http.operations.observation import Observation
from market_index_http.waiting import Waits
from tests.compressors import COMPRESSORS
from tests.market_index_http.books import LARGE, MIDDLE, PAIR_LIST, book, fetch, target
from tests.service import Client, served

EACH = pytest.mark.parametrize("compressor", COMPRESSORS.values(), ids=COMPRESSORS)
TARGETS = pytest.mark.parametrize("where", [target(MIDDLE.pair), target(LARGE.pair), PAIR_LIST])

WITHOUT_ISAL = """
import gzip, sys
sys.modules["isal"] = None  # its import fails
from market_index import LiveIndex
from market_index_http import create_app
from tests.market_index_http.books import MIDDLE, target
from tests.service import Client, served
with served(create_app(LiveIndex([MIDDLE]))) as service:
    client = Client(service.port)
    answer = client.request(target(MIDDLE.pair), headers="Accept-Encoding: gzip\\r\\n")
    client.close()
    print(answer.headers["etag"], gzip.decompress(answer.body) == service.request(target(MIDDLE.pair)).body)
"""


def app_of(live: LiveIndex, compressor: Compressor) -> MarketIndexApp:
    """Return the app of a replica with a compressor."""
    counters, waits = Counters(), Waits(live, 60)
    bodies = Bodies(None, counters, GzipEncoder(compressor))
    return MarketIndexApp(Endpoints(live, bodies, waits), Observation(live, counters, waits, None))


@pytest.fixture(scope="module")
def live() -> LiveIndex:
    return LiveIndex([MIDDLE, LARGE, *(book(number, 1) for number in range(10, 510))])


@pytest.fixture(scope="module")
def replicas(live: LiveIndex) -> Iterator[dict[str, Client]]:
    """Clients of one replica with each compressor."""
    with (
        served(app_of(live, COMPRESSORS["zlib"])) as first,
        served(app_of(live, COMPRESSORS["fastest"])) as second,
        served(app_of(live, COMPRESSORS["other version"])) as third,
    ):
        clients = {name: Client(one.port) for name, one in zip(COMPRESSORS, (first, second, third), strict=True)}
        yield clients
        for client in clients.values():
            client.close()


class TestReplicas:
    """Clients that change between replicas."""

    @TARGETS
    def test_equal_tags_mean_equal_bytes(self, replicas: dict[str, Client], where: str):
        plain = [fetch(client, where) for client in replicas.values()]
        packed = [fetch(client, where, accept_encoding="gzip") for client in replicas.values()]
        assert len({(one.body, one.headers["etag"]) for one in plain}) == 1
        contents = {one.headers["etag"]: one.body for one in packed}
        assert all(contents[one.headers["etag"]] == one.body for one in packed)
        assert {gzip.decompress(one) for one in contents.values()} == {plain[0].body}
        assert len(contents) == len(set(contents.values())) == len({*map(id, COMPRESSORS.values())})
        tags = [one.headers["etag"] for one in packed]
        digest = plain[0].headers["etag"].rstrip('"')
        assert tags == [f'{digest}-gzip-{one.identifier()}"' for one in COMPRESSORS.values()]

    @TARGETS
    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    def test_every_replica_knows_the_tags_of_the_others(self, replicas: dict[str, Client], where: str, method: str):
        for one, other in permutations(replicas.values(), 2):
            tag = fetch(one, where, accept_encoding="gzip").headers["etag"]
            answer = fetch(other, where, method, accept_encoding="gzip", if_none_match=tag)
            # A cache keeps the bytes that it has, under their own tag.
            assert (answer.status, answer.headers["etag"], answer.body) == (304, tag, b"")
            assert fetch(other, where, if_none_match=tag).status == 200, "the plain body is another representation"

    def test_the_tag_of_an_earlier_content_matches_nowhere(self, replicas: dict[str, Client], live: LiveIndex):
        for where in (target(MIDDLE.pair), PAIR_LIST):
            tags = [fetch(one, where, accept_encoding="gzip").headers["etag"] for one in replicas.values()]
            live.publish(book(2, 30, spot="7"))
            for tag in tags:
                for one in replicas.values():
                    answer = fetch(one, where, accept_encoding="gzip", if_none_match=tag)
                    assert (answer.status, json.loads(gzip.decompress(answer.body))) == (200, fetch(one, where).json)
            live.publish(MIDDLE)

    def test_a_client_waits_with_the_tag_of_another_replica(self, replicas: dict[str, Client]):
        tag = fetch(replicas["other version"], PAIR_LIST, accept_encoding="gzip").headers["etag"]
        answer = fetch(replicas["fastest"], PAIR_LIST, accept_encoding="gzip", if_none_match=tag, prefer="wait=1")
        assert (answer.status, answer.headers["etag"], answer.headers["preference-applied"]) == (304, tag, "wait=1")


@EACH
@given(book=order_books())
def test_the_standard_library_reads_every_compressed_body(compressor: Compressor, book: OrderBook):
    encoder, fields, parts = GzipEncoder(compressor), constant_fields(b"no-cache"), wire.encoded_order_book(book)
    small = SmallBody(wire.text_of(parts), "tag", fields, encoder)
    large = LargeBody(parts, "tag", fields, encoder)
    large._compress()
    assert large._gzip is not None
    for packed in (small._compress_quickly(), b"".join(large._gzip.texts())):
        assert gzip.decompress(packed) == wire.order_book_to_json(book)


def test_an_app_compresses_with_zlib_where_isal_is_not_installed():
    command = [sys.executable, "-c", WITHOUT_ISAL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    tag, is_readable = done.stdout.split()
    assert tag.endswith(f'-gzip-{COMPRESSORS["zlib"].identifier()}"')
    assert is_readable == "True"
