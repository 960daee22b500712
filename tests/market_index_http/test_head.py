"""HEAD, tested on the app without a server: a server such as uvicorn would drop any body."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair
from market_index_http import Health, create_app, file_route
from tests.asgi import request
from tests.feed_state import FeedState

SNEK = Pair(AssetId(bytes(28), b"SNEK"), ADA)
BOOK = OrderBook.from_levels(SNEK, asks=[(str(price), price) for price in range(1, 2_000)], spot="1")


def app(age: float = 0) -> Starlette:
    made = create_app(LiveIndex([BOOK]), health=Health(FeedState(age=age), 60), openapi=True)
    made.router.routes.append(file_route("/file", b"content" * 200))
    return made


@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/trading-view/pair-list", 200),
        (f"/trading-view/order-book?base={SNEK.base}&quote=ADA", 200),
        (f"/trading-view/order-book?base={str(SNEK.base).upper()}&quote=ADA", 200),
        ("/trading-view/order-book?base=ADA&quote=ADA", 404),
        ("/trading-view/order-book", 400),
        ("/nowhere", 404),
        ("/healthz", 200),
        ("/livez", 200),
        ("/readyz", 200),
        ("/openapi.json", 200),
        ("/file", 200),
    ],
)
def test_the_response_has_the_headers_of_get_and_no_body(target: str, status: int, coding: str):
    headers = {"Accept-Encoding": coding}
    one = app()
    for _ in range(2):  # the second time the response is cached
        get, head = request(one, target, headers=headers), request(one, target, "HEAD", headers)
        assert (get.status, get.headers["content-length"]) == (status, str(len(get.body)))
        assert get.body
        assert (head.status, head.headers, head.body) == (status, get.headers, b"")


def test_failures_have_no_body(monkeypatch: pytest.MonkeyPatch):
    stale = app(age=61)
    assert request(stale, "/healthz").status == 503
    assert request(stale, "/healthz", "HEAD").body == b""

    def fail(_: LiveIndex) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(LiveIndex, "current", property(fail))
    get, head = (request(app(), "/trading-view/pair-list", method) for method in ("GET", "HEAD"))
    assert (get.status, get.body) == (500, b'{"error":"Internal Server Error"}')
    assert (head.status, head.headers, head.body) == (500, get.headers, b"")
