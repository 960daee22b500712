"""Loading a feed, which creates many objects that stay."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from market_index_cli.console import loading_progress
from market_index_feeds import Progress


@contextmanager
def loading(label: str, is_ending: Callable[[], bool] | None = None) -> Iterator[Progress]:
    """Yield a progress callback, as `loading_progress`. Then exclude all objects from garbage collections.

    Otherwise each full collection, and the exit of the interpreter, would inspect all of them and block all threads.
    """
    try:
        with loading_progress(label, is_ending) as progress:
            yield progress
    finally:
        gc.freeze()
