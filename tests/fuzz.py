"""Coverage-guided fuzzing: `make fuzz`, or `python -m tests.fuzz --seconds 60 prices`.

atheris draws the bytes from which Hypothesis draws the examples of properties, so that fuzzing and `make test` have the
same properties. A failure is printed as by pytest: the test finds and shrinks it again with `--hypothesis-seed`, or by
an `@example`. The corpus, which grows with each run, is stored under build/fuzz.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

STORED: Final = Path("build/fuzz")
INPUT_SECONDS: Final = 20
NAMES: Final = ("order-books", "pair-lists", "assets", "prices", "events", "services")


def properties() -> dict[str, Any]:
    from tests.feeds import test_checking
    from tests.market_index import test_assets, test_prices
    from tests.market_index.contract import test_check
    from tests.market_index.wire import test_decode

    tests = (
        test_decode.test_a_text_is_the_book_or_the_changes_of_the_independent_grammar,
        test_decode.test_a_text_is_the_pair_list_of_the_independent_grammar,
        test_assets.test_each_constructor_reads_the_asset_of_the_grammar,
        test_prices.test_a_text_is_the_price_of_the_grammar_with_one_canonical_text,
        test_checking.test_a_check_finds_a_fault_exactly_if_a_follower_does_and_the_same_first_one,
        test_check.test_no_body_ends_a_check_with_an_exception,
    )
    return dict(zip(NAMES, tests, strict=True))


def fuzz_here(name: str, arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["market_index", "market_index_feeds", "tests.oracles"]):
        fuzz_one = properties()[name].hypothesis.fuzz_one_input
    atheris.Setup([sys.argv[0], *arguments], fuzz_one)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="name", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--seconds", type=int, default=600, help="for all properties together, 600 by default")
    given = parser.parse_args()
    failed = []
    for name in given.names or NAMES:
        folder = STORED / name
        (folder / "corpus").mkdir(parents=True, exist_ok=True)
        seconds = given.seconds // len(given.names or NAMES)
        limits = [f"-max_total_time={seconds}", f"-timeout={INPUT_SECONDS}", f"-artifact_prefix={folder}/"]
        code = f"from tests.fuzz import fuzz_here; fuzz_here({name!r}, {[*limits, str(folder / 'corpus')]!r})"
        with (folder / "log").open("wb") as log:
            done = subprocess.run([sys.executable, "-c", code], stdout=log, stderr=log, check=False)
        print(f"{name}: {'no finding' if done.returncode == 0 else f'failed: see {folder}/log'}", flush=True)
        failed += [name] if done.returncode else []
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
