"""A producer of events of orders, to be killed. It writes a few bytes at a time, so a kill may leave a part of a line.

The state of a block follows from its number alone, so that what is served can be compared with it.
"""

from __future__ import annotations

import os
import random
import sys

from tests.feeds.event_lines import RESET, block, place, remove, rollback

ORDERS = 12


def orders(number: int) -> dict[int, int]:
    """Return the orders of a block by their price, and the amount of each."""
    return {price: number * 100 + price for price in range(1, ORDERS + 1) if (number + price) % 3}


def events(start: int) -> list[bytes]:
    """Return the lines of one run of a producer. The first one may end an unfinished line."""
    lines = [b"\n", RESET]
    before: dict[int, int] = {}
    for number in range(start, start + 50):
        after = orders(number)
        lines += [remove(f"order {price}") for price in before.keys() - after.keys()]
        lines += [place(f"order {price}", amount=amount, price=str(price)) for price, amount in after.items()]
        lines.append(block(str(number)))
        before = after
        if number % 7 == 0 and start + 3 < number < start + 49:
            lines.append(remove(f"order {min(before)}"))
            lines.append(rollback(str(number - 3)))
            before = orders(number - 3)
    return lines


def main() -> None:
    path, start = sys.argv[1], int(sys.argv[2])
    numbers = random.Random(start)
    content = b"".join(events(start))
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while content:
        size = numbers.randrange(1, 200)
        os.write(file, content[:size])
        content = content[size:]


if __name__ == "__main__":
    main()
