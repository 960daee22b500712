"""A publisher that is started and killed repeatedly, and the check of what it stored."""

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
    """A store file, and a publisher that is started and killed repeatedly."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = self.acknowledged = 0

    def run(self, seconds: float, *, acknowledges: bool) -> None:
        """Run the publisher, and kill it `seconds` after its first acknowledgement, or after its start."""
        with subprocess.Popen(
            [sys.executable, "-m", "tests.faults.publisher", self.path, str(self.generation + 1)],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout
            if acknowledges:
                self.acknowledged = int(process.stdout.readline())
            time.sleep(seconds)  # the time of the kill is the subject of the test
            process.kill()
            for line in process.stdout:
                if line.endswith("\n"):
                    self.acknowledged = int(line)

    def publish(self) -> None:
        """Publish again from this process. The killed publisher may have left a change in the log."""
        self.generation += 1
        with open_store(self.path) as store:
            store.publish(*books(self.generation))
        self.acknowledged = self.generation

    def check(self) -> None:
        """Assert that every acknowledged change is stored, and that the interrupted change is atomic."""
        found = stored_spots(self.path)
        if not found:
            assert self.acknowledged == 0
            return
        assert len(found) == PAIRS
        assert len(set(found)) == 1
        self.generation = int(str(found[0]))
        assert self.generation in {self.acknowledged, self.acknowledged + 1}

    def is_shown_by(self, live: LiveIndex) -> bool:
        """Whether a reader shows the current content of the store.

        If the publisher was killed while it synchronized the log, its last change is in the log, but not in the index.
        So that change is stored and visible only after the index is rebuilt.
        """
        self.check()
        return tuple(live.current.values()) == (tuple(books(self.generation)) if self.generation else ())
