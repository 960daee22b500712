"""Correct and incorrect uses of `market_index_http`, for type checkers alone."""

from typing import assert_type

from market_index import LiveIndex
from market_index_feeds import open_feed
from market_index_http import (
    ExactRoute,
    FeedStatus,
    MarketIndexApp,
    create_app,
    file_route,
    health_route,
    openapi_route,
)

live = LiveIndex()
app = create_app(live, max_age=2)
assert_type(app, MarketIndexApp)
app.end_waits()
app.router.routes.append(openapi_route())

create_app(live.current)  # error: mypy[arg-type] pyright[reportArgumentType]
create_app(live, max_age=0.5)  # error: mypy[arg-type] pyright[reportArgumentType]
create_app(live, 2)  # error: mypy[call-arg] pyright[reportCallIssue]
create_app()  # error: mypy[call-arg] pyright[reportCallIssue]


class MyFeed:
    revision: int | None = None
    age: float = 0.0
    quiet_age: float = 0.0
    change_age: float = 0.0
    problem: str | None = None
    is_unknown: bool = False
    current_rejections: int = 0
    retained_age: float | None = None


class Timeless:
    revision: int = 0


feed: FeedStatus = open_feed("market.db")
assert_type(health_route(live, feed, max_stale=0.5), ExactRoute)
health_route(live, MyFeed())

health_route(live, Timeless())  # error: mypy[arg-type] pyright[reportArgumentType]
health_route(live.current, feed)  # error: mypy[arg-type] pyright[reportArgumentType]

assert_type(file_route("/books", b"{}", ((b"x-name", b"value"),)), ExactRoute)

file_route("/books", "{}")  # error: mypy[arg-type] pyright[reportArgumentType]
file_route("/books", b"{}", {"x-name": "value"})  # error: mypy[arg-type] pyright[reportArgumentType]
