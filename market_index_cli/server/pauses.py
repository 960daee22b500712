"""Short pauses of the event loop in a process whose feed holds millions of objects.

Theory of operation
    A garbage collection blocks all threads while it inspects objects. Inspecting a million orders takes seconds, and
    Python does so whenever a feed has replaced enough of them. Their memory is freed without it: books, orders and
    indexes refer to older values only, so they form no cycles.

    A collection that frees nothing therefore excludes what it inspected from later ones (`gc.freeze`), so a collection
    inspects only what is new. While cycles are made, as by errors of a NATS client that reconnects, collections find
    them, nothing is excluded, and the next collections inspect it again.

    A cycle that is excluded and becomes garbage later is never freed. Connections and requests make no cycles, however
    they end: `test_no_connection_leaves_a_garbage_cycle`.

    The event loop and the thread that applies changes take turns in the interpreter. A thread that waits for its turn
    asks for it after the switch interval. Python's interval of 5 ms is longer than the work of most events.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

_SWITCH_SECONDS: Final = 0.0005


@contextmanager
def short_pauses() -> Iterator[None]:
    """Shorten garbage collections, and the time for which a thread waits for another one."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.callbacks.append(_freeze_unless_freed)
    try:
        yield
    finally:
        gc.callbacks.remove(_freeze_unless_freed)
        sys.setswitchinterval(interval)


def _freeze_unless_freed(phase: str, collection: Mapping[str, Any]) -> None:
    if phase == "stop" and not collection["collected"]:
        gc.freeze()
