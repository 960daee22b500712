"""The app for servers that import it, such as granian; the variable BOOKS names the file of order books."""

from __future__ import annotations

import os
from pathlib import Path

from starlette.types import ASGIApp

from market_index import LiveIndex, wire
from market_index_http import create_app


def create() -> ASGIApp:
    lines = Path(os.environ["BOOKS"]).read_bytes().splitlines()
    return create_app(LiveIndex(map(wire.order_book_from_json, lines)))
