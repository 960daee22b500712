"""Correct and incorrect uses of `market_index_http`, for type checkers alone."""

from typing import assert_type

from starlette.applications import Starlette

from market_index import LiveIndex
from market_index_feeds import open_feed
from market_index_http import create_app
from market_index_http.operating import FeedStatus, Health, Metrics, description_route, probe_routes
from market_index_http.stream import Stream

live = LiveIndex()
feed: FeedStatus = open_feed("market.db").health
health = Health(feed, max_stale=0.5)
assert_type(health.failures(), list[str])
stream, metrics = Stream(live, limit=200), Metrics()
routes = [stream.route(), *probe_routes(live, health), metrics.route(), description_route()]
app = create_app(live, max_age=2, routes=routes)
assert_type(app, Starlette)
metrics.watch(app, live, health=health, streams=stream)

create_app(live.current)  # error: mypy[arg-type] pyright[reportArgumentType]
create_app(live, max_age=0.5)  # error: mypy[arg-type] pyright[reportArgumentType]
create_app(live, 2)  # error: mypy[call-arg] pyright[reportCallIssue]
create_app(live, routes=[stream])  # error: mypy[list-item] pyright[reportArgumentType]
create_app(live, middleware=metrics)  # error: mypy[arg-type] pyright[reportArgumentType]
Stream(live, limit="yes")  # error: mypy[arg-type] pyright[reportArgumentType]
Health(live)  # error: mypy[arg-type] pyright[reportArgumentType]
metrics.watch(app, live, name="other", streams=5)  # error: mypy[arg-type] pyright[reportArgumentType]
