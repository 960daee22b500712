"""Sources of the ledger do not wait in these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from market_index_feeds.ledger import koios, kupo, source


@pytest.fixture(autouse=True, scope="module")
def _no_wait() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kupo, "POLL_SECONDS", 0)
        patch.setattr(kupo, "MOVED_SECONDS", 0)
        patch.setattr(koios, "LIMIT_SECONDS", 0.0)
        patch.setattr(source, "TICK_SECONDS", 0.01)
        yield
