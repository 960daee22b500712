"""Programs that tests kill, and what they must have left. `python -m tests.faults.actors PATH GENERATION` publishes.

A generation is one change of several books, whose spot price is its number. The publisher prints the number of each
generation that is acknowledged.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from market_index import MarketIndex, OrderBook
from market_index_feeds import open_store
from tests.command import COMMAND
from tests.feeds.made_up import pair

PAIRS: Final = 5

KILLS: Final = int(os.environ.get("MARKET_INDEX_KILLS", "12"))
"""How often a thorough test kills its program."""


def bid_prices(generation: int) -> range:
    """Return the bid prices of each book of a generation, lowest first."""
    return range(1, random.Random(generation).randrange(400) + 1)


def books(generation: int, pairs: int = PAIRS) -> list[OrderBook]:
    bids = [(str(price), generation) for price in bid_prices(generation)]
    return [OrderBook.from_levels(pair(number), bids, spot=str(generation)) for number in range(pairs)]


def generation_of(index: MarketIndex) -> int:
    """Return the generation of all books of an index, which must be whole; 0 if it is empty."""
    generations = {int(str(book.spot)) for book in index.values()} or {0}
    (generation,) = generations
    assert list(index.values()) == (books(generation) if generation else [])
    return generation


def publisher_killed(path: Path, generation: int, after: float) -> int:
    """Run a publisher, kill it so many seconds after its first acknowledgement, and return the last one."""
    arguments = [sys.executable, "-m", "tests.faults.actors", str(path), str(generation)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        acknowledged = int(process.stdout.readline())
        time.sleep(after)  # the time of the kill is the subject of the test
        process.kill()
        return max([acknowledged, *(int(line) for line in process.stdout if line.endswith("\n"))])


def command_killed(command: str, *arguments: object, after: float) -> None:
    """Run a subcommand, and kill it so many seconds after it has logged that it works."""
    with subprocess.Popen([COMMAND, command, *map(str, arguments)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert "revision" in process.stderr.readline()
        time.sleep(after)  # the time of the kill is the subject of the test
        process.kill()


def main() -> None:
    path, generation = sys.argv[1], int(sys.argv[2])
    with open_store(path) as store:
        while True:
            if generation % 7 == 0:
                store.replace(books(generation))
            else:
                store.publish(*books(generation))
            print(generation, flush=True)
            generation += 1


if __name__ == "__main__":
    main()
