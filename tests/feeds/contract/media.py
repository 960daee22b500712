"""All media of the contract, and the laws' parameters."""

from __future__ import annotations

from typing import Final

import pytest

from tests.feeds.contract.buckets import NatsBucket
from tests.feeds.contract.ledger import LedgerOrders
from tests.feeds.contract.lines import AppendedLines, OrderLines, PipedLines, RecordedLines, RenamedLines
from tests.feeds.contract.medium import Can, Medium
from tests.feeds.contract.services import PolledService, StreamedService
from tests.feeds.contract.stores import RecordedFile, SqliteFile

MEDIA: Final[tuple[type[Medium], ...]] = (
    AppendedLines,
    RenamedLines,
    PipedLines,
    RecordedLines,
    RecordedFile,
    OrderLines,
    SqliteFile,
    NatsBucket,
    PolledService,
    StreamedService,
    LedgerOrders,
)


def law(*needed: Can) -> pytest.MarkDecorator:
    """Run a test for each medium that has these capabilities."""
    kinds = [kind for kind in MEDIA if kind.can.issuperset(needed)]
    return pytest.mark.parametrize("medium", kinds, indirect=True, ids=[kind.__name__ for kind in kinds])
