"""Parameter types, arguments and options that several commands share."""

from __future__ import annotations

from ipaddress import ip_network
from math import nan
from typing import Final

import click

from market_index import Freshness, InvalidFreshness
from market_index.errors import safe_repr
from market_index_cli.logs import LOG_FORMATS, LOG_LEVELS
from market_index_cli.server.origins import read_host, read_origin


class AsOf(click.ParamType[str]):
    """What order books reflect, in the publisher's terms."""

    name = "as_of"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the text."""
        try:
            Freshness(str(value))
        except InvalidFreshness as error:
            self.fail(str(error), param, ctx)
        return str(value)


class Seconds(click.ParamType[float]):
    """A number of seconds, 0 or more."""

    name = "seconds"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the number."""
        try:
            seconds = float(str(value))
        except ValueError:
            seconds = nan
        if not seconds >= 0:
            self.fail(f"must be a number of seconds, 0 or more, got {safe_repr(str(value))}", param, ctx)
        return seconds


class Origin(click.ParamType[str]):
    """The origin of a web page, or `*` for any."""

    name = "origin"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the origin."""
        try:
            return read_origin(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Host(click.ParamType[str]):
    """A host that a Host field can name."""

    name = "host"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the host."""
        try:
            return read_host(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ProxyAddress(click.ParamType[str]):
    """The address of a proxy, a network of proxies, or `*` for any client."""

    name = "address"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the address."""
        try:
            return str(value) if value == "*" else str(ip_network(str(value)))
        except ValueError:
            self.fail(
                f"must be an IP address, a network such as 10.0.0.0/8, or *, got {safe_repr(str(value))}", param, ctx
            )


LOG_FORMAT: Final = click.Choice(LOG_FORMATS)
LOG_FORMAT_HELP: Final = "Format of the log on standard error: lines of text, or one JSON object per line."
LOG_LEVEL: Final = click.Choice(LOG_LEVELS)
LOG_LEVEL_HELP: Final = "The least severe records that are logged. Libraries log only warnings and errors."
FEED: Final = click.argument("source", metavar="FEED")
STORE: Final = click.argument("target", metavar="STORE")
BASE: Final = click.argument("base", metavar="BASE")
QUOTE: Final = click.argument("quote", metavar="QUOTE")
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print the JSON of the read API.")
LOGGED_AS: Final = click.option(
    "--log-format", default="text", show_default=True, type=LOG_FORMAT, help=LOG_FORMAT_HELP
)
LOGGED_FROM: Final = click.option("--log-level", default="info", show_default=True, type=LOG_LEVEL, help=LOG_LEVEL_HELP)
WAIT: Final = click.option(
    "--wait",
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    type=Seconds(),
    help="Timeout while others write to STORE, or its servers do not acknowledge a change.",
)
