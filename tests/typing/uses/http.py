"""Correct and incorrect uses of `market_index_http`, for type checkers alone."""

from typing import assert_type

from market_index import LiveIndex
from market_index_feeds import open_feed
from market_index_http import Health, create_app
from market_index_http.app import MarketIndexApp
from market_index_http.counters import Counters
from market_index_http.health import FeedStatus

live = LiveIndex()
app = create_app(live, max_age=2)
assert_type(app, MarketIndexApp)
app.end_streams()
app.observe()

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
    rejected: int = 0
    current_rejections: int = 0
    retries: int = 0
    retained_age: float | None = None


class Timeless:
    revision: int = 0


feed: FeedStatus = open_feed("market.db")
health = Health(feed, max_stale=0.5)
health.feed = MyFeed()
assert_type(health.failures(), list[str])
create_app(live, health=health, metrics=True, openapi=True)
create_app(live, metrics=Counters())
create_app(live, stream=True)
create_app(live, stream=200)

Health(Timeless())  # error: mypy[arg-type] pyright[reportArgumentType]
create_app(live, health=feed)  # error: mypy[arg-type] pyright[reportArgumentType]
create_app(live, metrics="yes")  # error: mypy[arg-type] pyright[reportArgumentType]
create_app(live, stream="yes")  # error: mypy[arg-type] pyright[reportArgumentType]
