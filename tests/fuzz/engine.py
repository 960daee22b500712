"""Runs one target under atheris: `python -m tests.fuzz.engine <target> <arguments of libFuzzer>`."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["market_index", "market_index_feeds", "tests.fuzz", "tests.oracles"]):
    from tests.fuzz.targets import TARGETS

if __name__ == "__main__":
    _, target, *arguments = sys.argv
    atheris.Setup([sys.argv[0], *arguments], TARGETS[target])
    atheris.Fuzz()
