"""Generates docs/cli.md from the output of `--help`: `python -m tests.cli_page`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from click.testing import CliRunner

from market_index_cli.main import main

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "cli.md"

COLUMNS: Final = 90
"""The width of the terminal in columns."""

MARGIN: Final = 2
"""The columns that click leaves free."""

HEAD: Final = """\
# The command

The output of `market-index --help`, and of `market-index COMMAND --help` for each command. How to use them:
[publish](publish.md), [serve](serving.md), [many machines](scaling.md). The command needs the extra `cli`
(`pip install 'market-index[cli]'`), `serve` the extra `server`, and buckets the extra `nats` as well. If an extra is
missing, the command names it. `python -m market_index_cli` runs the same command.

(`python -m tests.cli_page` writes this page.)

| exit code | meaning |
|---|---|
| 0 | everything was done; `serve`, `relay`: ended by SIGTERM or Ctrl-C; requests in flight were \
answered, within up to 10 seconds |
| 1 | `book`, `retract`: there is no such pair; `publish`: it was interrupted; any: the reader of standard \
output closed it, as `head` does |
| 2 | wrong usage, the extra `cli` or `server` is missing, or too few files may be open (`ulimit -n`) |
| 3 | FEED or STORE cannot be opened, read or written, standard output cannot be written, or the extra `nats` is \
missing |
| 4 | `serve`: the address cannot be listened on |
| 5 | `publish`, `pairs`: a line, a row, a value, or a book that is too large was rejected, or `publish` left \
out books without a commit line, or events without a block, or the state of the orders is unknown at the end; \
everything else was done. Also BOOKS has no order book for --replace or --as-of: then nothing was changed |

If standard output cannot be written, the changes that `publish` made before its report are stored.
If standard error cannot be written, its messages are lost, and the command continues: `serve` serves without a log.
"""


def page() -> str:
    """Return the page for the current command."""
    sections = [HEAD, help_block()]
    for name, command in main.commands.items():
        sections.append(f"\n## {name}\n\n{command.get_short_help_str(limit=COLUMNS)}\n")
        sections.append(help_block(name))
    return "".join(sections)


def help_block(*command: str) -> str:
    """Return a `console` block with the help of a command."""
    name, arguments = "market-index", [*command, "--help"]
    result = CliRunner().invoke(main, arguments, prog_name=name, terminal_width=COLUMNS - MARGIN)
    assert result.exit_code == 0, result.output
    return f"\n```console\n$ {' '.join((name, *arguments))}\n{result.output}```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
