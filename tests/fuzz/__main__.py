"""Fuzzing: `make fuzz`, or `python -m tests.fuzz`.

Most targets compare the library with an independent grammar. Failed inputs, and the corpus, which grows with each run,
are stored under build/fuzz.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.fuzz.seeds import MAX_BYTES, TOKENS, seeds
from tests.fuzz.targets import TARGETS

STORED: Final = Path("build/fuzz")
INPUT_SECONDS: Final = 20
"""The timeout of one input, which only an endless loop or quadratic time reaches."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="target", help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--seconds", type=int, default=600, help="for all targets together, 600 by default")
    parser.add_argument("--reproduce", type=Path, metavar="FILE", help="pass one input to one target")
    given = parser.parse_args()
    targets = given.targets or list(TARGETS)
    if unknown := set(targets) - set(TARGETS):
        parser.error(f"the targets are {', '.join(TARGETS)}, got {', '.join(sorted(unknown))}")
    if given.reproduce is not None:
        if len(targets) != 1:
            parser.error("--reproduce takes one target")
        TARGETS[targets[0]](given.reproduce.read_bytes())
        print(f"{targets[0]}: the input does not fail")
        return 0
    if find_spec("atheris") is None:
        print("make fuzz needs atheris, which has wheels for CPython on Linux (x86-64) only", file=sys.stderr)
        return 2
    failed = [target for target in targets if not fuzz(target, given.seconds // len(targets))]
    if failed:
        print(f"make fuzz: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def fuzz(target: str, seconds: int) -> bool:
    """Fuzz one target for `seconds`, print a report, and return whether no input failed."""
    folder = prepared_folder(target)
    command = [
        sys.executable, "-m", "tests.fuzz.engine", target, f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}",
        f"-timeout={INPUT_SECONDS}", f"-dict={folder / 'tokens'}", f"-artifact_prefix={folder}/",
        "-print_final_stats=1", str(folder / "corpus"), str(folder / "seeds"),
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        code = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
    print_report(target, code, folder / "log")
    return code == 0


def prepared_folder(target: str) -> Path:
    """Return the folder of a target, after writing its seeds and its dictionary."""
    folder = STORED / target
    for name in ("corpus", "seeds"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(target)):
        (folder / "seeds" / str(number)).write_bytes(seed)
    (folder / "tokens").write_text("".join(f'"{libfuzzer_text(token)}"\n' for token in TOKENS[target]))
    return folder


def print_report(target: str, code: int, log: Path) -> None:
    """Print the number of inputs of a target; if one failed, how to repeat it, and where its log is."""
    text = log.read_text(errors="replace")
    executions = re.search("number_of_executed_units: *([0-9]+)", text)
    print(f"{target}: {executions[1] if executions else 'no'} executions")
    if code:
        print(f"{target}: failed with code {code}; log: {log}")
        if written := re.search("Test unit written to (.*)", text):
            print(f"  reproduce: {sys.executable} -m tests.fuzz {target} --reproduce {written[1]}")
    sys.stdout.flush()


def libfuzzer_text(token: str) -> str:
    """Return a token in the syntax of libFuzzer's dictionaries."""
    return "".join(f"\\x{byte:02X}" for byte in token.encode())


if __name__ == "__main__":
    sys.exit(main())
