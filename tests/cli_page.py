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

The output of `market-index --help`, and of `market-index COMMAND --help` for each command. What happens in every case:
[serving](serving.md), and [many machines](scaling.md). The command needs the extra `cli`
(`pip install 'market-index[cli]'`), `serve` the extra `server`, and buckets the extra `nats` as well.
`python -m market_index_cli` runs the same command.

(`python -m tests.cli_page` writes this page.)
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
