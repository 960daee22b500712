"""What feeds and stores have in common: they are opened by a name, and closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from market_index.errors import shown


class Opened(ABC):
    """Something that is open until it is closed, or left by the `with` that it was opened in."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it. Closing twice does no harm."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def shown_name(name: str) -> str:
    """Return a name as messages show it: as it is, unless that could break their lines."""
    return name if name.isprintable() else shown(name)
