"""Waiting for what another thread or process is about to do."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(holds: Callable[[], object], seconds: float = 20) -> None:
    """Return as soon as `holds` does; fail when it never does."""
    patience = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < patience, "it did not come about"
        time.sleep(0.002)
