"""How long a publish takes until another process has it: `python -m benchmarks.seen FEED` is that process."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from unittest.mock import patch

from market_index import LiveIndex, MarketIndex, OrderBook
from market_index_feeds import Store, open_feed

ROOT: Final = Path(__file__).resolve().parents[1]
SEEN_SECONDS: Final = 10

FOLLOWER: Final = ("-m", "benchmarks.seen")


def recorded(seen: dict[str, int]) -> Callable[[LiveIndex, MarketIndex, MarketIndex | None], bool]:
    """Return `LiveIndex.show`, but it also records when each spot price became visible, in `seen`."""
    show = LiveIndex.show

    def recording(live: LiveIndex, index: MarketIndex, instead_of: MarketIndex | None = None) -> bool:
        before = live.current
        is_shown = show(live, index, instead_of)
        now = time.monotonic_ns()
        seen.update((str(one.spot), now) for one in index.changes_since(before)[0])
        return is_shown

    return recording


def main() -> None:
    seen: dict[str, int] = {}
    with patch.object(LiveIndex, "show", recorded(seen)), open_feed(sys.argv[1]) as feed:
        feed.start(LiveIndex())
        for _ in sys.stdin:
            print(" ".join(f"{spot}:{at}" for spot, at in seen.copy().items()), flush=True)


def elsewhere(*arguments: object) -> subprocess.Popen[str]:
    """Start a Python process with these arguments."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def asked(process: subprocess.Popen[str]) -> str:
    """Send an empty line to a process, and return its next line."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def ended(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=60)[0]


def seen_by(follower: subprocess.Popen[str], sent: dict[str, int]) -> list[float]:
    """Return the milliseconds from each publish to when the follower had it.

    Raises:
        RuntimeError: the follower did not receive all of them.
    """
    deadline = time.monotonic() + SEEN_SECONDS
    seen: dict[str, int] = {}
    while not sent.keys() <= seen.keys():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the follower saw {len(sent.keys() & seen.keys())} of {len(sent)} publishes")
        seen = {spot: int(at) for spot, _, at in (part.partition(":") for part in asked(follower).split())}
    return [(seen[spot] - at) / 1e6 for spot, at in sent.items()]


def seen_after(
    feed: object, times: int, put: Callable[[OrderBook, str], object], held: list[OrderBook], gap: float
) -> list[float]:
    """Publish `count` times with random intervals, and return the milliseconds until each publish was seen.

    The clock starts before the publish, which includes its acknowledgement.
    """
    follower = elsewhere(*FOLLOWER, feed)
    asked(follower)
    numbers = random.Random(5)
    sent = {}
    for number in range(1, times + 1):
        time.sleep(numbers.random() * gap)
        sent[str(number)] = time.monotonic_ns()
        put(held[number % len(held)], str(number))
    after = seen_by(follower, sent)
    ended(follower)
    return after


def publish_spot(store: Store, one: OrderBook, spot: str) -> None:
    store.publish(one.apply(spot=spot))


if __name__ == "__main__":
    main()
