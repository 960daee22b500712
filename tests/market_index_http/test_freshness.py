"""The header fields that say how fresh a response is."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from threading import Thread

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from market_index import ADA, AssetId, Freshness, LiveIndex, OrderBook, Pair
from market_index_http import create_app
from market_index_http.freshness import freshness_fields
from tests.asgi import Response, request
from tests.service import Client, served

SNEK = Pair(AssetId(bytes(28), b"SNEK"), ADA)
LIST = "/trading-view/pair-list"
BOOK = f"/trading-view/order-book?base={SNEK.base}&quote=ADA"
UPPER = f"/trading-view/order-book?base={str(SNEK.base).upper()}&quote=ADA"
TIME = datetime(2026, 11, 22, 4, 17, 3, 123_456, UTC)
FIELDS = {"market-index-as-of": "slot 7", "market-index-published-at": "2026-11-22T04:17:03.123Z"}


def book(spot: int) -> OrderBook:
    return OrderBook.from_levels(SNEK, asks=[(str(price), price) for price in range(1, 40)], spot=str(spot))


def fresh_live() -> LiveIndex:
    live = LiveIndex()
    live.update([book(1)], freshness=Freshness("slot 7", TIME))
    return live


def fields_of(answer: Response) -> Mapping[str, str]:
    return {name: text for name, text in answer.headers.items() if name.startswith("market-index-")}


@pytest.fixture(params=["fast path", "routes"])
def live_and_app(request: pytest.FixtureRequest) -> tuple[LiveIndex, Starlette]:
    live = fresh_live()
    app = create_app(live)
    if request.param == "routes":
        # Middleware disables the fast path.
        app.user_middleware.append(Middleware(CORSMiddleware))
    return live, app


@pytest.mark.decision(23)
@pytest.mark.parametrize("target", [LIST, BOOK, UPPER])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_both_endpoints_send_freshness_also_with_304(
    live_and_app: tuple[LiveIndex, Starlette], target: str, method: str, coding: str
):
    _, app = live_and_app
    # The second time the response is cached.
    first, answer = (request(app, target, method, {"Accept-Encoding": coding}) for _ in range(2))
    assert (first.status, fields_of(first)) == (answer.status, fields_of(answer)) == (200, FIELDS)
    same = request(app, target, method, {"Accept-Encoding": coding, "If-None-Match": answer.headers["etag"]})
    assert (same.status, fields_of(same)) == (304, FIELDS)


def test_an_unknown_value_has_no_field(live_and_app: tuple[LiveIndex, Starlette]):
    live, app = live_and_app
    live.update([], freshness=Freshness())
    assert fields_of(request(app, LIST)) == fields_of(request(app, BOOK)) == {}
    live.update([], freshness=Freshness(published_at=TIME))
    assert fields_of(request(app, BOOK)) == {"market-index-published-at": "2026-11-22T04:17:03.123Z"}


@pytest.mark.decision(23)
@pytest.mark.parametrize("target", [LIST, BOOK])
def test_a_publication_without_a_change_alters_these_fields_alone(
    live_and_app: tuple[LiveIndex, Starlette], target: str
):
    live, app = live_and_app
    before = request(app, target)
    live.update([], freshness=Freshness("slot 8", TIME))
    after = request(app, target)
    assert (after.body, after.headers["etag"]) == (before.body, before.headers["etag"])
    assert fields_of(after) == FIELDS | {"market-index-as-of": "slot 8"}


def test_errors_do_not_have_the_fields():
    assert fields_of(request(create_app(fresh_live()), "/trading-view/order-book?base=ADA&quote=ADA")) == {}


def test_the_fields_of_a_freshness():
    assert freshness_fields(Freshness()) == ()
    assert freshness_fields(Freshness("a")) == ((b"market-index-as-of", b"a"),)


@pytest.mark.decision(23)
@pytest.mark.parametrize("publications", [300, pytest.param(10_000, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("target", [LIST, BOOK, UPPER])
def test_no_response_of_a_live_index_names_another_as_of_than_that_of_its_book(target: str, publications: int):
    live = LiveIndex()
    live.update([book(1)], freshness=Freshness("1"))

    def publish() -> None:
        for spot in range(1, publications):
            live.update([book(spot)], freshness=Freshness(str(spot)))

    with served(create_app(live)) as service, closing(Client(service.port)) as client:
        publisher = Thread(target=publish)
        publisher.start()
        while publisher.is_alive():
            answer = client.request(target)
            found = answer.json
            spot = found["spot"] if "spot" in found else found["pairs"][0]["last_spot"]
            assert answer.headers["market-index-as-of"] == spot
        publisher.join()
