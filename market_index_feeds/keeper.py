"""Who keeps a store: one relay, while others wait to take over (decision 40).

Two relays into one store would undo each other's changes for ever. So each has a `Keeper`, and writes only while
`is_keeping` is true. A keeper of a file holds the lock of another file beside it, which ends with its process. See
`market_index_feeds.nats.keeper` for a bucket.

A process can lose its turn between this question and its write: it is suspended, and another one takes over. Its write
then fails, because it expects the position that the store had before (`Conflict`).
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, Self, final

from market_index_feeds.errors import StoreError, reason_of
from market_index_feeds.file_lock import try_lock
from market_index_feeds.names import shown_name

LOG: Final = logging.getLogger(__name__)


class Keeper(ABC):
    """The turn to keep a store. Only one of all keepers of a store has it. Close it when done.

    `name` is that of the store, without credentials.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._was_keeping = True
        self._obstacle = "another process keeps it"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_keeping(self) -> bool:
        """Take the turn if it is free. Return whether this keeper has it. A change is logged.

        Raises `StoreError` if the first attempt fails.
        """
        is_keeping = self._take()
        if is_keeping != self._was_keeping:
            LOG.warning("%s: %s", self.name, "taking over" if is_keeping else f"waiting, because {self._obstacle}")
            self._was_keeping = is_keeping
        return is_keeping

    @abstractmethod
    def _take(self) -> bool:
        """Take the turn if it is free. Return whether this keeper has it; if not, `_obstacle` is why."""

    @abstractmethod
    def close(self) -> None:
        """Give the turn back. Closing twice does no harm."""


@final
class FileKeeper(Keeper):
    """The turn to keep a file: the lock of `market.db.keeper`. The paths of links to one file are one path."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(shown_name(os.fspath(path)))
        self._path = Path(f"{os.path.realpath(path)}.keeper")
        self._file = -1

    def _take(self) -> bool:
        if self._file < 0:
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                reason = reason_of(error, "to read and write it, and to write its folder")
                raise StoreError(f"{self.name} cannot be opened: {self._path.name}: {reason}") from None
        return try_lock(self._file)

    def close(self) -> None:
        """Give the turn back. The lock file stays: another process may be waiting for its lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
