"""Correct and incorrect uses of `market_index_http`, for type checkers alone."""

from typing import assert_type

from market_index import LiveIndex
from market_index_feeds import open_feed
from market_index_http import Health, create_app
from market_index_http.app import MarketIndexApp
from market_index_http.counters import Counters
from market_index_http.health import FeedStatus

live = LiveIndex()
feed: FeedStatus = open_feed("market.db")
health = Health(feed, max_stale=0.5)
assert_type(health.failures(), list[str])
app = create_app(live, max_age=2, stream=200, health=health, metrics=Counters(), openapi=True)
assert_type(app, MarketIndexApp)
create_app(live, metrics=True, stream=True)

create_app(live.current)  # error: mypy[arg-type] pyright[reportArgumentType]
create_app(live, max_age=0.5)  # error: mypy[arg-type] pyright[reportArgumentType]
create_app(live, 2)  # error: mypy[call-arg] pyright[reportCallIssue]
create_app(live, health=feed)  # error: mypy[arg-type] pyright[reportArgumentType]
create_app(live, metrics="yes")  # error: mypy[arg-type] pyright[reportArgumentType]
create_app(live, stream="yes")  # error: mypy[arg-type] pyright[reportArgumentType]
Health(live)  # error: mypy[arg-type] pyright[reportArgumentType]
