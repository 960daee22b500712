"""Programs that tests kill, and what they must have left.

`python -m tests.faults.actors publish PATH NUMBER` publishes generations into a store: each is one change of several
books, whose spot price is its number. It prints the number of each generation that is acknowledged.

`python -m tests.faults.actors place PATH NUMBER` appends blocks of orders to a file. It writes a few bytes at a time,
so that a kill may leave a part of a line. The orders of a block follow from its number.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from market_index import MarketIndex, OrderBook
from market_index_feeds import open_store
from tests.command import COMMAND
from tests.feeds.event_lines import RESET, block, place, remove, rollback
from tests.feeds.ledger.datums import filled
from tests.feeds.ledger.stand_in import Block
from tests.feeds.made_up import pair
from tests.waiting import eventually

PAIRS: Final = 5

BLOCKS: Final = 50
"""How many blocks one producer of orders writes."""

KILLS: Final = int(os.environ.get("MARKET_INDEX_KILLS", "12"))
"""How often a thorough test kills its program."""


def books(generation: int, pairs: int = PAIRS) -> list[OrderBook]:
    bids = [(str(price), generation) for price in range(1, random.Random(generation).randrange(400) + 1)]
    return [OrderBook.from_levels(pair(number), bids, spot=str(generation)) for number in range(pairs)]


def generation_of(index: MarketIndex) -> int:
    """Return the generation of all books of an index, which must be whole; 0 if it is empty."""
    (generation,) = {int(str(book.spot)) for book in index.values()} or {0}
    assert list(index.values()) == (books(generation) if generation else [])
    return generation


def orders(number: int) -> dict[int, int]:
    """Return the amounts of the orders of a block by their price."""
    return {price: number * 100 + price for price in range(1, 13) if (number + price) % 3}


def order_lines(start: int) -> bytes:
    """Return the lines of one producer. The first one may end an unfinished line of another."""
    lines = [b"\n", RESET]
    before: dict[int, int] = {}
    for number in range(start, start + BLOCKS):
        after = orders(number)
        lines += [remove(f"order {price}") for price in before.keys() - after.keys()]
        lines += [place(f"order {price}", amount=amount, price=str(price)) for price, amount in after.items()]
        lines.append(block(str(number)))
        before = after
        if number % 7 == 0 and start + 3 < number < start + BLOCKS - 1:
            lines += [remove(f"order {min(before)}"), rollback(str(number - 3))]
            before = orders(number - 3)
    return b"".join(lines)


def chain_block(number: int) -> Block:
    """Return a block of the ledger with an order of each pair at the price `number`, and without those before."""
    first = PAIRS * number
    placed = [filled(pair(at), number, first + at)[0] for at in range(PAIRS)]
    spent: dict[str, dict[str, Any]] = {f"{before:064x}#0": {} for before in range(first - PAIRS, first)}
    return Block(1000 + number, placed, spent)


def publisher_killed(path: Path, generation: int, after: float) -> int:
    """Run a publisher, kill it so many seconds after its first acknowledgement, and return the last one."""
    arguments = [sys.executable, "-m", "tests.faults.actors", "publish", str(path), str(generation)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        acknowledged = int(process.stdout.readline())
        time.sleep(after)  # the time of the kill is the subject of the test
        process.kill()
        return max([acknowledged, *(int(line) for line in process.stdout if line.endswith("\n"))])


def producer_killed(path: Path, start: int, after: int) -> None:
    """Run a producer of orders, and kill it after it has written so many bytes."""
    size = path.stat().st_size
    arguments = [sys.executable, "-m", "tests.faults.actors", "place", str(path), str(start)]
    with subprocess.Popen(arguments) as process:
        eventually(lambda: process.poll() is not None or path.stat().st_size >= size + after)
        process.kill()


def command_killed(command: str, *arguments: object, after: float) -> None:
    """Run a subcommand, and kill it so many seconds after it has logged that it works."""
    with subprocess.Popen([COMMAND, command, *map(str, arguments)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            assert " into " in process.stderr.readline()
            time.sleep(after)  # the time of the kill is the subject of the test
        finally:
            process.kill()


def publish_generations(path: str, generation: int) -> None:
    with open_store(path) as store:
        while True:
            if generation % 7 == 0:
                store.replace(books(generation))
            else:
                store.publish(*books(generation))
            print(generation, flush=True)
            generation += 1


def place_orders(path: str, start: int) -> None:
    numbers, lines = random.Random(start), order_lines(start)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while lines:
        size = numbers.randrange(1, 200)
        os.write(file, lines[:size])
        lines = lines[size:]


if __name__ == "__main__":
    work = {"publish": publish_generations, "place": place_orders}[sys.argv[1]]
    work(sys.argv[2], int(sys.argv[3]))
