"""Writes docs/cli.md, the page of the command, from what `--help` says: `python -m tests.cli_page`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from click.testing import CliRunner

from market_index_cli.main import main

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "cli.md"

COLUMNS: Final = 90
"""How wide the terminal is whose help the page shows."""

MARGIN: Final = 2
"""How many columns of a terminal click leaves free."""

HEAD: Final = """\
# The command

What `market-index --help` says, and `market-index COMMAND --help` of each command. What happens in every case:
[serving](serving.md), and [many machines](scaling.md). The command comes with the extra `http`
(`pip install 'market-index[http]'`); buckets want the extra `nats` as well.

(This page is written by `python -m tests.cli_page`.)
"""


def page() -> str:
    """Return the page, for the command as it is now."""
    sections = [HEAD, shown()]
    for name, command in main.commands.items():
        sections.append(f"\n## {name}\n\n{command.get_short_help_str(limit=COLUMNS)}\n")
        sections.append(shown(name))
    return "".join(sections)


def shown(*command: str) -> str:
    name, arguments = "market-index", [*command, "--help"]
    told = CliRunner().invoke(main, arguments, prog_name=name, terminal_width=COLUMNS - MARGIN)
    assert told.exit_code == 0, told.output
    return f"\n```console\n$ {' '.join((name, *arguments))}\n{told.output}```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
