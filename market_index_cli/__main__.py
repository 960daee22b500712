"""Entry point of `market-index` and of `python -m market_index_cli`."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command. Without click, name the extra that installs it and exit with 2."""
    try:
        from market_index_cli.errors import output_errors  # noqa: PLC0415  # it needs click, as main does
        from market_index_cli.main import main  # noqa: PLC0415  # click is an extra: report it if it is missing
    except ModuleNotFoundError as missing:
        if missing.name != "click":
            raise
        sys.stderr.write("market-index needs click, which comes with its extra: pip install '.[cli]'\n")
        sys.exit(2)
    with output_errors():
        main(prog_name="market-index")


# Worker processes import this module again, under another name.
if __name__ == "__main__":
    run()
