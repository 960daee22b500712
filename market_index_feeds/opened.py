"""What feeds and stores have in common: they are opened by a name, and closed."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Self

from market_index.errors import safe_repr

# Whatever somebody took for a password may stand there, a slash or a question mark as well; and what is not quite a URL
# may have one all the same.
_USERINFO: Final = re.compile(r"(:/*|//).*@", re.DOTALL)


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
    """Return a name as messages show it: as it is, unless that could break their lines; of a URL, no credentials."""
    told = without_credentials(name)
    return told if told.isprintable() else safe_repr(told)


def without_credentials(url: str) -> str:
    """Return a URL without the credentials that it may hold: what stands before its last `@`, and its query.

    >>> without_credentials("nats://publisher:secret@127.0.0.1:4222/books")
    'nats://127.0.0.1:4222/books'
    """
    told = _USERINFO.sub(r"\1", url, count=1)
    return told.partition("?")[0] if "://" in told else told
