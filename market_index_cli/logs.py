"""The log on standard error: one record per line, as text or as JSON, with a time and without control characters.

Workers share standard error. A pipe takes at most 4096 bytes in one piece (PIPE_BUF), so a longer line could be mixed
with lines of another worker. Longer lines are cut.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from math import inf
from time import monotonic
from typing import Final, TextIO, TypeAlias

import click

from market_index.wire import format_time

LOG: Final = logging.getLogger("market_index_cli")
"""The log of the command."""

LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("info", "warning", "error")

REQUESTS: Final = "uvicorn.access"
"""The logger of requests. The arguments of its records are client, method, target, HTTP version and status."""

Fields: TypeAlias = dict[str, object]

_LINE_BYTES: Final = 4096
_CUT: Final = "..."

# Another parameter may contain a secret, such as the key of a proxy.
_OTHER_PARAMETERS: Final = re.compile(r"(?<=[?&])(?!(?:base|quote)=)[^&]+")


def log_plainly() -> None:
    """Log warnings without times, for a command that ends by itself."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)


def log_with_times(log_format: str = "text", log_level: str = "info", *, with_process: bool = False) -> None:
    """Log with times, for a command that runs until a signal ends it.

    Args:
        log_format: One of `LOG_FORMATS`.
        log_level: One of `LOG_LEVELS`. Libraries log only warnings and errors. Requests are logged at any level.
        with_process: Whether lines of text contain the process id.
    """
    handler = LineHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter(with_process=with_process))
    level = logging.getLevelNamesMapping()[log_level.upper()]
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING))
    for name in ("market_index_feeds", "market_index_cli"):
        logging.getLogger(name).setLevel(level)
    logging.getLogger(REQUESTS).setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").addFilter(OncePerSecond())


@contextmanager
def errors_logged(*, instead_of_printed: bool = True) -> Iterator[None]:
    """Log the error that ends the process, or leave it to the command, which prints it."""
    try:
        yield
    except click.ClickException as error:
        if not instead_of_printed:
            raise
        LOG.log(logging.ERROR, "%s", error.format_message())
        sys.exit(error.exit_code)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes each line of a record to standard error in one piece."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            for line in self.format(record).split("\n"):
                self.stream.write(f"{line}\n")
                self.flush()
        except Exception:  # noqa: BLE001  # as the base class does
            self.handleError(record)


class TextFormatter(logging.Formatter):
    """Formats a record as a line of text: time, level, logger, message. Each line of a traceback has the same start."""

    def __init__(self, *, with_process: bool = False) -> None:
        super().__init__()
        self._with_process = with_process

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        fields = fields_of(record)
        process = f"[{fields['process']}]" if self._with_process else ""
        start = f"{fields['time']} {fields['level']} {fields['logger']}{process}: "
        lines = [str(fields["message"]), *str(fields.get("traceback", "")).splitlines()]
        return "\n".join(_cut(start + line) for line in lines)


def _cut(line: str) -> str:
    """Return a line that fits in one piece, in any encoding of standard error."""
    text = line.encode("ascii", errors="backslashreplace")
    return line if len(text) < _LINE_BYTES else text[: _LINE_BYTES - len(_CUT) - 1].decode("ascii") + _CUT


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record. If it is too long, its longest texts are cut: the traceback at its start."""
        fields = fields_of(record)
        while len(line := json.dumps(fields)) >= _LINE_BYTES:
            name, text = max(((name, text) for name, text in fields.items() if isinstance(text, str)), key=_length)
            half = len(text) // 2
            fields[name] = _CUT + text[-half:] if name == "traceback" else text[:half] + _CUT
        return line


def _length(field: tuple[str, str]) -> int:
    return len(field[1])


def fields_of(record: logging.LogRecord) -> Fields:
    """Return the fields of a record, without control characters. docs/operating.md describes them."""
    fields: Fields = {
        "time": format_time(datetime.fromtimestamp(record.created, UTC)),
        "level": record.levelname,
        "logger": record.name,
        "process": record.process,
    }
    if record.name == REQUESTS and isinstance(record.args, tuple):
        client, method, target, version, status = record.args
        shown = printable(_OTHER_PARAMETERS.sub("***", str(target)))
        fields["message"] = printable(f"{client} {method} {shown} {status}".lstrip())
        fields |= {"client": client, "method": method, "target": shown, "http_version": version, "status": status}
    else:
        fields["message"] = printable(record.getMessage().rstrip("\n"))
    if record.exc_info:
        lines = logging.Formatter().formatException(record.exc_info).splitlines()
        fields["traceback"] = "\n".join(map(printable, lines))
    return fields


def printable(text: str) -> str:
    r"""Return a text with an escape sequence for each character that is not printable, such as a newline.

    >>> print(printable("one\ntwo \x1b[2J"))
    one\ntwo \x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


class OncePerSecond(logging.Filter):
    """A rate limit for messages that clients can cause: each message passes at most once per second.

    Messages that differ only in their arguments count as one. A message with a traceback always passes.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is the first of its message within a second, or has a traceback."""
        if record.exc_info:
            return True
        now = self._clock()
        if now < self._passed.get(record.msg, -inf) + 1:
            return False
        self._passed[record.msg] = now
        return True
