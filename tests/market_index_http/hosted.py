"""A host with what the documentation of Starlette shows, for servers that import it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from market_index import LiveIndex
from market_index_http import create_app
from market_index_http.stream import Stream
from tests.market_index_http.books import MIDDLE

live = LiveIndex()
stream = Stream(live)


class Stamp:
    """Middleware that adds a header field to each response."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"x-stamp", b"seen")]}
            await send(message)

        await self.app(scope, receive, send_stamped)


async def own(_: Any) -> PlainTextResponse:
    return PlainTextResponse("the host's own")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    live.publish(MIDDLE)
    yield
    stream.end()


inner = Starlette(routes=[Route("/own", own)])
app = create_app(live, routes=[stream.route()])
app.add_route("/added", own)
app.mount("/below", inner)
app.host("sub.example", inner)
app.add_middleware(Stamp)

host = FastAPI(lifespan=lifespan)
host.mount("/api", app)
host.include_router(APIRouter(routes=create_app(live).routes), prefix="/included")
