"""Names of feeds and stores in messages. A name may contain credentials, which no message shows."""

from __future__ import annotations

import re
from typing import Final

from market_index.errors import safe_repr

STANDARD_INPUT: Final = "-"
"""The name of standard input."""

_USERINFO_MARK: Final = re.compile(r":/*|//")


def shown_name(name: str) -> str:
    """Return a name as messages show it: on one line, without credentials."""
    shown = without_credentials(name)
    return shown if shown.isprintable() else safe_repr(shown)


def shown_file(path: str) -> str:
    """Return the path of a file as messages show it; `-` is standard input."""
    return "standard input" if path == STANDARD_INPUT else shown_name(path)


def without_credentials(url: str) -> str:
    """Return a URL without the parts that may contain credentials: everything before its last `@`, and its query.

    >>> without_credentials("nats://publisher:secret@127.0.0.1:4222/books")
    'nats://127.0.0.1:4222/books'
    """
    # A password may contain any character, also a slash or a question mark. A malformed URL may contain one, too.
    before, _, after = url.rpartition("@")
    mark = _USERINFO_MARK.search(before)
    shown = before[: mark.end()] + after if mark else url
    return shown.partition("?")[0] if "://" in shown else shown
