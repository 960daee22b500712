"""Short pauses of the event loop in a process whose feed holds millions of objects.

A garbage collection blocks all threads while it inspects objects. One of the oldest generation inspects all orders,
which takes seconds. Their memory is freed without it: books, orders and indexes refer to older values only.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

from market_index_cli.loading import only_young_collected

_SWITCH_SECONDS: Final = 0.0005
"""How long a thread runs while another one waits for the interpreter. Most events take less than Python's 5 ms."""


@contextmanager
def short_pauses(source: str) -> Iterator[None]:
    """Inspect only young objects in garbage collections, and switch threads more often.

    `source` is the name of the feed. With a URL, all generations are collected as usual: the client of a bucket or a
    service leaves cycles of references whenever it reconnects, and old ones would never be freed.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        with nullcontext() if "://" in source else only_young_collected():
            yield
    finally:
        # So that the exit of the interpreter does not inspect all objects.
        gc.freeze()
        sys.setswitchinterval(interval)
