"""The report of one run: rows in groups, saved after each row, so that a run can be resumed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

import cattrs
from attrs import Factory, define, field

from benchmarks.figures import Row, Verdict, shown

FORMAT: Final = 2

Group: TypeAlias = Callable[[], Iterable[Row]]
"""Measures rows that belong together, such as those of one interleaved run."""

HEADINGS: Final = ("work", "ours", "against", "theirs", "ratio", "quartiles", "goal")


class GroupFailed(Exception):
    """A group failed in its own process, with this error."""


class State(Enum):
    """The progress of a group."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"


@define
class Measured:
    """The rows of a group, and the error that ended it."""

    state: State = State.RUNNING
    rows: list[Row] = Factory(list)
    error: str = ""
    seconds: float = 0

    @property
    def is_complete(self) -> bool:
        """Whether a resumed run keeps the rows: all were measured."""
        return self.state is State.COMPLETE and all(row.is_measured for row in self.rows)


@define
class Part:
    """The subject of the groups of one module: a title, and Markdown."""

    title: str
    about: str


@define
class Report:
    """The results so far."""

    quick: bool = False
    measured: str = ""
    versions: dict[str, str] = Factory(dict)
    parts: dict[str, Part] = Factory(dict)
    groups: dict[str, Measured] = Factory(dict)
    format: int = field(default=FORMAT)

    @property
    def rows(self) -> Iterator[Row]:
        for group in self.groups.values():
            yield from group.rows

    @property
    def failures(self) -> dict[str, str]:
        return {name: group.error for name, group in self.groups.items() if group.state is State.FAILED}

    @property
    def faults(self) -> int:
        """The number of failures of peers that were retried."""
        return sum(row.faults for row in self.rows)

    def with_verdict(self, verdict: Verdict) -> list[Row]:
        return [row for row in self.rows if row.verdict is verdict]

    def save(self, path: Path) -> None:
        """Replace the file atomically, so that an interrupted run leaves the rows of the last save."""
        staged = path.with_name(f"{path.name}.new")
        content = json.dumps(cattrs.unstructure(self), indent=1, ensure_ascii=False)
        staged.write_text(f"{content}\n", encoding="utf-8")
        staged.replace(path)

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read a report.

        Raises:
            ValueError: the file has another format.
        """
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("format") != FORMAT:
            raise ValueError(f"{path} must have format {FORMAT}, got {content.get('format')!r}")
        return cattrs.structure(content, cls)

    def resume(self, path: Path) -> None:
        """Copy the complete groups of an earlier run.

        Raises:
            ValueError: the earlier run measured something else.
        """
        earlier = Report.load(path)
        if (earlier.quick, earlier.versions) != (self.quick, self.versions):
            raise ValueError(f"{path} cannot be resumed: other versions were measured, or with another QUICK")
        self.groups = {name: group for name, group in earlier.groups.items() if group.is_complete}

    def text(self) -> str:
        """Return the table, then a line for each failed group."""
        failed = [f"FAILED {name}: {error}" for name, error in self.failures.items()]
        return "\n".join([table(self.rows), *failed])


def run(groups: Mapping[str, Group], report: Report, output: Path) -> None:
    """Measure each group that the report does not have, and save the report after each row."""
    report.save(output)
    for name, group in groups.items():
        if name not in report.groups:
            print(f"  {name}", file=sys.stderr, flush=True)
            measure(name, group, report, output)


def measure(name: str, group: Group, report: Report, output: Path) -> None:
    """Measure one group. If it fails, the rows that it has yielded are kept."""
    measured = report.groups[name] = Measured()
    begun = time.monotonic()
    try:
        for row in group():
            measured.rows.append(row)
            report.save(output)
        measured.state = State.COMPLETE
    except Exception as error:  # noqa: BLE001  # the other groups are measured after any error
        name_of_error = "" if isinstance(error, GroupFailed) else f"{type(error).__name__}: "
        measured.state, measured.error = State.FAILED, f"{name_of_error}{error}"
        print(f"  {name} failed: {measured.error}", file=sys.stderr, flush=True)
    measured.seconds = round(time.monotonic() - begun, 1)
    report.save(output)


def cells(row: Row) -> tuple[str, ...]:
    """Return the columns of a row."""
    spread = row.spread if row.spread and row.spread.rounds > 1 else None
    return (
        row.work,
        row.note if row.ours is None else f"{shown(row.ours)} {row.unit}",
        row.peer,
        "" if row.theirs is None else shown(row.theirs),
        shown(row.spread.median) if row.spread and row.peer else "",
        f"{shown(spread.low)}–{shown(spread.high)}" if spread else "",
        "" if row.goal is None else f"{row.goal}{f', {row.verdict.value}' if row.verdict else ''}",
    )


def table(rows: Iterable[Row]) -> str:
    """Return the rows as a Markdown table, those of the same work together. No text of the row above is repeated."""
    works: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        works.setdefault(row.work, []).append(cells(row))
    lines = [HEADINGS, ("---",) * len(HEADINGS)]
    subject_above = ""
    for work, (first, *others) in works.items():
        subject, _, figure = work.rpartition(": ")
        lines.append((f"… {figure}", *first[1:]) if subject and subject == subject_above else first)
        lines += [("", "" if line[1] == above[1] else line[1], *line[2:]) for above, line in pairwise([first, *others])]
        subject_above = subject
    return "\n".join(f"|{'|'.join(line)}|" for line in lines)
