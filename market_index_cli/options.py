"""Arguments and options that several commands share, and the conversion of the text of an option."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from market_index.errors import safe_repr
from market_index_cli.logs import LOG_FORMATS, LOG_LEVELS
from market_index_feeds import Feed, open_feed
from market_index_feeds.sources import kind_of

T = TypeVar("T")


def converted(convert: Callable[[str], T]) -> Callable[[str], T]:
    """Return the type of an option that converts its text. An error of the conversion is wrong usage."""

    def of_option(text: str) -> T:
        try:
            return convert(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return of_option


def _seconds(text: str) -> float:
    """Return a number of seconds, 0 or more. Raises `ValueError`. A `click.FloatRange` accepts nan and inf."""
    with suppress(ValueError):
        if 0 <= (number := float(text)) < inf:
            return number
    raise ValueError(f"must be a number of seconds, 0 or more, got {safe_repr(text)}")


SECONDS: Final = converted(_seconds)

VARIABLES: Final = {"auto_envvar_prefix": "MARKET_INDEX"}
"""The context of a command whose options have variables: that of `--max-age` is MARKET_INDEX_MAX_AGE."""

option: Final = partial(click.option, show_default=True, show_envvar=True)
"""An option whose help names its default and its variable, if it has them."""

FEED: Final = click.argument("source", metavar="FEED")
STORE: Final = click.argument("target", metavar="STORE")
BASE: Final = click.argument("base", metavar="BASE")
QUOTE: Final = click.argument("quote", metavar="QUOTE")
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print the JSON of the read API.")
LOG_FORMAT: Final = option(
    "--log-format",
    default="text",
    type=click.Choice(LOG_FORMATS),
    help="Format of the log on standard error: lines of text, or one JSON object per line.",
)
LOG_LEVEL: Final = option(
    "--log-level",
    default="info",
    type=click.Choice(LOG_LEVELS),
    help="The least severe records that are logged. Libraries log only warnings and errors.",
)
HEADERS: Final = option(
    "--headers",
    metavar="FILE",
    envvar="MARKET_INDEX_HEADERS_FILE",
    allow_from_autoenv=False,
    type=click.Path(path_type=Path),
    help="Send headers to a service, such as an API key: a line Name: value for each. Another FEED ignores them.",
)
ADD_EXCHANGES: Final = option(
    "--add-exchanges",
    metavar="MODULE:NAME",
    help="Read exchanges of the ledger besides the known ones: NAME of a Python module is an Exchange, or a list.",
)
TOKENS: Final = option(
    "--tokens",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Show names and whole units by the token registry (CIP-26): its folder of mappings, or a file of its entries. "
    "JSON stays in smallest units. Without it, the names of a service are those that it was served with.",
)
HOST: Final = option(
    "--host", default="127.0.0.1", help="Address to listen on. The default is reachable only from this machine."
)
MAX_STALE: Final = option(
    "--max-stale",
    metavar="SECONDS",
    type=SECONDS,
    help="How long FEED may be unreachable before /healthz responds with 503. By default without limit.",
)
MAX_QUIET: Final = option(
    "--max-quiet",
    metavar="SECONDS",
    type=SECONDS,
    help="How long the publisher may publish nothing before /healthz responds with 503. By default without limit.",
)
WAIT: Final = option(
    "--wait",
    default=5.0,
    metavar="SECONDS",
    type=SECONDS,
    help="Timeout while others write to STORE, or its servers do not acknowledge a change.",
)


def opened(source: str, headers: Path | None, add_exchanges: str | None = None, *, follow: bool = True) -> Feed:
    """Open FEED; a service, with the headers of a file. Raises `FeedError` or `click.BadParameter`."""
    sent = headers_of(headers) if kind_of(source).takes_headers else None
    exchanges = () if add_exchanges is None else _exchanges_of(add_exchanges)
    return open_feed(source, follow=follow, headers=sent, exchanges=exchanges)


def _exchanges_of(text: str) -> tuple[Any, ...]:
    """Return the exchanges that a module has by a name, which `module:NAME` names."""
    module, _, name = text.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: the module may be in the current folder
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(f"{safe_repr(text)} names nothing: {error}", param_hint="'--add-exchanges'") from None
    return tuple(found) if isinstance(found, (list, tuple)) else (found,)


def headers_of(path: Path | None) -> dict[str, str]:
    """Return the headers of a file; none without one. A message shows no line of it, because it may contain a key."""
    found = dict[str, str]()
    if path is None:
        return found
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it must be ASCII text"
        raise click.BadParameter(f"{path} cannot be read: {reason}", param_hint="'--headers'") from None
    for number, line in enumerate(lines, 1):
        name, mark, value = line.partition(":")
        if mark:
            found[name] = value.strip()
        elif line.strip():
            raise click.BadParameter(f"line {number} of {path} must be 'Name: value'", param_hint="'--headers'")
    return found
