"""Fixtures: a service of a small, a medium-sized and a large book, and a client connection to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from market_index import LiveIndex
from market_index_http import create_app
from tests.market_index_http.books import LARGE, MIDDLE, SMALL
from tests.service import Client, Service, served


@pytest.fixture(scope="module")
def live() -> LiveIndex:
    return LiveIndex([SMALL, MIDDLE, LARGE])


@pytest.fixture(scope="module")
def service(live: LiveIndex) -> Iterator[Service]:
    with served(create_app(live)) as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    client = Client(service.port)
    yield client
    client.close()
