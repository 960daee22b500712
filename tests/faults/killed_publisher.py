"""A publisher that is started and killed again and again."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from market_index import LiveIndex
from market_index_feeds import open_store
from tests.faults.files import stored_spots
from tests.faults.publisher import PAIRS, books


class KilledPublisher:
    """A file, and a publisher that is started and killed again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = self.acknowledged = 0

    def run(self, seconds: float, *, acknowledges: bool) -> None:
        """Run the publisher for so long, from its first acknowledgement or from its start, and kill it."""
        with subprocess.Popen(
            [sys.executable, "-m", "tests.faults.publisher", self.path, str(self.generation + 1)],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout
            if acknowledges:
                self.acknowledged = int(process.stdout.readline())
            time.sleep(seconds)  # the moment of the kill is the subject
            process.kill()
            for line in process.stdout:
                if line.endswith("\n"):
                    self.acknowledged = int(line)

    def publish(self) -> None:
        """Publish once more, from this process: over a change that the last publisher may have left in the log."""
        self.generation += 1
        with open_store(self.path) as store:
            store.publish(*books(self.generation))
        self.acknowledged = self.generation

    def check(self) -> None:
        """What was acknowledged must be stored, and the change that was interrupted whole or not at all."""
        found = stored_spots(self.path)
        if not found:
            assert self.acknowledged == 0
            return
        assert len(found) == PAIRS
        assert len(set(found)) == 1
        self.generation = int(str(found[0]))
        assert self.generation in {self.acknowledged, self.acknowledged + 1}

    def is_shown_by(self, live: LiveIndex) -> bool:
        """Whether a reader shows what is stored now.

        If the publisher was killed while it synchronized the log, its last change is in the log, but not in the index.
        So it is stored, and shown, once the index is made again.
        """
        self.check()
        return tuple(live.current.values()) == (tuple(books(self.generation)) if self.generation else ())
