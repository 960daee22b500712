"""A server of the command, real and with fakes, for the tests of its limits and of its responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from market_index import LiveIndex
from market_index_cli.server.http_server import Server
from market_index_http import create_app, find_response
from tests.service import Client, Service, served


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with served(create_app(LiveIndex())) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with closing(Client(service.port)) as client:
        yield client


@pytest.fixture
def server() -> Server:
    app = create_app(LiveIndex())
    server = Server(app, respond=partial(find_response, app))
    server.clients.max_connections = 3
    return server
