"""What a feed and a store have in common: both are open until `close`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closeable(ABC):
    """An object that is open until `close`, which the end of a `with` block calls."""

    @abstractmethod
    def close(self) -> None:
        """Close it. Closing twice does no harm."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
