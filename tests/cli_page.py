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

The output of `--help`, written by `python -m tests.cli_page`. `python -m market_index_cli` runs the same command. A
command that needs an extra that is not [installed](index.md#install) names it.

After a signal, `serve` answers requests in flight for up to 10 seconds. Then it ends with 0, as `relay` and `record`
do.
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
