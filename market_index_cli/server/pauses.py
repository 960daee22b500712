"""Short pauses of the event loop in a process whose feed holds millions of objects.

Theory of operation
    A garbage collection blocks all threads while it inspects objects. Inspecting a million orders takes seconds, and
    Python does so whenever a feed has replaced enough of them. Their memory is freed without it: books, orders and
    indexes refer to older values only, so they form no cycles.

    A collection that frees nothing therefore excludes what it inspected from later ones (`gc.freeze`), so each inspects
    only the few objects that are new. Once one frees a cycle, older generations contain objects that the next one does
    not inspect. Then nothing is excluded until a collection of all generations, which is soon, frees nothing.

    A cycle that is excluded while it is in use is never freed afterwards. Connections and requests form no cycles,
    however they end: `test_no_connection_leaves_a_garbage_cycle`. The clients of NATS and HTTP services do, and a feed
    replaces them when it reconnects. So only a feed without a URL excludes objects.

    The event loop and the thread that applies changes take turns in the interpreter. A thread that waits for its turn
    requests it after the switch interval. Python's interval of 5 ms is longer than the work of most events.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from attrs import define

_SWITCH_SECONDS: Final = 0.0005

_ALL_GENERATIONS: Final = 2

_NEW_OBJECTS: Final = 700
"""How many new objects start a collection, as by default."""


@contextmanager
def short_pauses(source: str) -> Iterator[None]:
    """Shorten garbage collections, and the time for which a thread waits for another one.

    `source` is the name of the feed. A feed with a URL keeps the garbage collections of Python.
    """
    interval, thresholds, freeze = sys.getswitchinterval(), gc.get_threshold(), _Freeze()
    sys.setswitchinterval(_SWITCH_SECONDS)
    excludes = "://" not in source
    if excludes:
        # Objects that survive a collection are inspected by the next one, together with the next older generation.
        gc.set_threshold(_NEW_OBJECTS, 0, 0)
        gc.callbacks.append(freeze)
    try:
        yield
    finally:
        if excludes:
            gc.callbacks.remove(freeze)
            gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)


@define(eq=False)
class _Freeze:
    """Called before and after each collection: excludes what it inspected if it freed nothing."""

    older_are_empty: bool = False
    """Whether all objects that are not excluded are younger than the last collection."""

    def __call__(self, phase: str, collection: Mapping[str, Any]) -> None:
        if phase == "stop":
            inspected_all = self.older_are_empty or collection["generation"] == _ALL_GENERATIONS
            self.older_are_empty = inspected_all and not collection["collected"]
            if self.older_are_empty:
                gc.freeze()
