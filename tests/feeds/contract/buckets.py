"""Buckets of NATS in the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from market_index import Pair
from market_index_feeds.nats.record import Mark, Record
from market_index_feeds.nats.values import key_of
from tests import nats
from tests.feeds.contract.medium import Can, Fence
from tests.feeds.contract.stores import STORE, StoreMedium


class NatsBucket(StoreMedium):
    """A bucket on the server of this test process. It is hidden by a setting that no reader accepts."""

    can = STORE - {Can.UNNAMED, Can.COPY}
    """A key that names no pair is only counted."""

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(path, request)
        # Otherwise a reader waits a second for each check that finds nothing.
        request.getfixturevalue("monkeypatch").setattr("market_index_feeds.nats.reading.CHECK_SECONDS", 0.15)
        self._url: str = request.getfixturevalue("bucket")
        self._server: nats.Server = request.getfixturevalue("nats_server")
        self.store().close()

    @property
    def name(self) -> str:
        return self._url

    def spoil(self, pair: Pair | None) -> Fence:
        assert pair is not None
        damaged = Record(mark=Mark.WHOLE).headers()  # it is the value of a publisher, not of another program
        nats.put(self._server, nats.name_of(self._url), key_of(pair), b"not a book", damaged)
        return lambda version: pair in version.invalid

    def hide(self) -> None:
        nats.edit(self._server, nats.name_of(self._url), max_age=3_600_000_000_000)

    def show(self) -> None:
        nats.edit(self._server, nats.name_of(self._url), max_age=0)

    def reset(self) -> None:
        nats.delete(self._server, nats.name_of(self._url))
        self.store().close()
