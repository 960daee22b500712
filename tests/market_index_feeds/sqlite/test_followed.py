"""A reader shows the content of a file after random changes, replacements and restored copies."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from market_index_feeds import Store, open_store
from tests.market_index_feeds.followed import Followed
from tests.waiting import WITHOUT_SHRINKING


class FollowedFile(Followed):
    """Random changes of publishers, and of the file itself. The reader eventually shows the content of the file."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "market.db"
        self.copies: list[tuple[Path, dict[int, str], frozenset[int], bool]] = []
        self.initialize(str(self.path))

    def opened(self) -> Store:
        return open_store(self.path, synchronous="normal")

    @rule()
    def copy(self) -> None:
        to = self.folder / f"copy{len(self.copies)}"
        with closing(sqlite3.connect(self.path)) as now, closing(sqlite3.connect(to)) as copy:
            now.backup(copy)
        self.copies.append((to, dict(self.model), self.retracted, self.is_complete))

    @rule(which=st.integers(0, 9), in_place=st.booleans())
    def put_back(self, which: int, in_place: bool) -> None:
        if not self.copies:
            return
        copy, model, self.retracted, self.is_complete = self.copies[which % len(self.copies)]
        if in_place:
            with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(self.path)) as now:
                source.backup(now)
        else:
            for store in self.stores:
                store.close()
            new = self.folder / "new"
            shutil.copyfile(copy, new)
            new.rename(self.path)
            self.stores = [self.opened() for _ in range(2)]
        shown = self.absent | self.model
        self.model = dict(model)
        self.absent = (
            {} if self.is_complete else {one: shown[one] for one in shown.keys() - model.keys() - self.retracted}
        )
        self.revision = self.stores[0].revision

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


FollowedFile.TestCase.settings = settings(
    max_examples=10, stateful_step_count=12, deadline=None, phases=WITHOUT_SHRINKING
)
TestFollowed = FollowedFile.TestCase
