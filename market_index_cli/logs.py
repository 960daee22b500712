"""The log on standard error: lines of text, or one JSON object per line, with times in UTC."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

LOG: Final = logging.getLogger("market_index_cli")
"""The log of the command."""

LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("info", "warning", "error")

REQUEST_LOG: Final = LOG.getChild("requests")
"""The log of requests."""

MAX_LOGGED_BYTES: Final = 256
"""A longer target is cut, because a client could fill the disk."""

_REQUEST_FIELDS: Final = ("client", "method", "target", "http_version", "status", "milliseconds")
"""The arguments of a record of a request."""


def log_plainly() -> None:
    """Log warnings without times, for a command that ends by itself."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)


def log_with_times(log_format: str, log_level: str) -> None:
    """Log with times, for a command that runs until a signal ends it.

    Args:
        log_format: One of `LOG_FORMATS`.
        log_level: One of `LOG_LEVELS`. Libraries log only warnings and errors. Requests are logged at any level.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    level = logging.getLevelNamesMapping()[log_level.upper()]
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING))
    for name in ("market_index_feeds", "market_index_cli"):
        logging.getLogger(name).setLevel(level)
    REQUEST_LOG.setLevel(logging.INFO)
    # Its warnings are about invalid requests: a client could fill the disk.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


class TextFormatter(logging.Formatter):
    """Formats a record as a line of text without control characters: time, level, logger, process, message."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__(
            "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s[%(process)d]: %(message)s", "%Y-%m-%dT%H:%M:%S"
        )

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name is that of the base class
        """Return the line without a traceback."""
        return printable(super().formatMessage(record))


class JsonFormatter(TextFormatter):
    """Formats a record as a JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        fields: dict[str, object] = {
            "time": f"{self.formatTime(record, self.datefmt)}.{record.msecs:03.0f}Z",
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if record.name == REQUEST_LOG.name and isinstance(record.args, tuple):
            fields |= {"message": "request", **dict(zip(_REQUEST_FIELDS, record.args, strict=True))}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def log_request(scope: Mapping[str, Any], status: int, seconds: float) -> None:
    """Log a request, which is described by its ASGI scope, at the end of its response."""
    target = scope["raw_path"] + b"?" + scope["query_string"] if scope["query_string"] else scope["raw_path"]
    if len(target) > MAX_LOGGED_BYTES:
        target = target[:MAX_LOGGED_BYTES] + b"..."
    client, version = "{}:{}".format(*scope["client"] or ("", "")), scope["http_version"]
    arguments = client, scope["method"], target.decode("latin-1"), version, status, round(1_000 * seconds, 3)
    REQUEST_LOG.info('%s "%s %s HTTP/%s" %d %.1f ms', *arguments)


def printable(text: str) -> str:
    r"""Return a text with an escape sequence for each character that is not printable, such as a newline.

    >>> print(printable("one\ntwo \x1b[2J"))
    one\ntwo \x1b[2J
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
