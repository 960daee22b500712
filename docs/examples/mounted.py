"""Mounts the two endpoints, with the books of a store, in a FastAPI app."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from market_index import LiveIndex
from market_index_feeds import open_feed
from market_index_http import create_app

live = LiveIndex()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    with open_feed("market.db") as feed:  # or books.ndjson, a bucket, a service
        feed.start(live)  # loads the feed, then follows it in a thread until it is closed
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/api", create_app(live))
