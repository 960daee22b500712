"""Runs the parts of the benchmark. A failing part loses only the rows that it had not yielded yet."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from attrs import Factory, frozen

from tests.benchmarks.figures import Row, plain, table

Part = Callable[[], Iterable[Row]]


@frozen
class Report:
    """What has been measured so far, and the error of each part that failed."""

    versions: Mapping[str, str] = Factory(dict)
    rows: list[Row] = Factory(list)
    failures: dict[str, str] = Factory(dict)

    def save(self, path: Path) -> None:
        """Replace the file atomically, so that an interrupted run leaves the rows of the last save."""
        content = {"versions": self.versions, "rows": plain(self.rows), "failures": self.failures}
        staged = path.with_name(f"{path.name}.new")
        staged.write_text(json.dumps(content, indent=1) + "\n")
        staged.replace(path)

    def text(self) -> str:
        """Return the table, then one line for each failed part."""
        failed = [f"FAILED {name}: {error}" for name, error in self.failures.items()]
        return "\n".join([table(self.rows), *failed])


def run(parts: Mapping[str, Part], report: Report, output: Path) -> None:
    """Measure each part, and save the report after each row."""
    report.save(output)
    for name, part in parts.items():
        print(f"  {name}", file=sys.stderr, flush=True)
        try:
            for row in part():
                report.rows.append(row)
                report.save(output)
        except Exception as error:  # noqa: BLE001  # whatever it is, the other parts are still measured
            report.failures[name] = f"{type(error).__name__}: {error}"
            print(f"  {name} failed: {report.failures[name]}", file=sys.stderr, flush=True)
            report.save(output)
