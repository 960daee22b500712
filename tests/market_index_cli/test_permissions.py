"""Files and folders that the user of the command may not read or write: one line, with the missing permission."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import COMMAND, SAMPLE, invoke
from tests.waiting import DEADLINE_SECONDS

IS_SUPERUSER = os.name == "posix" and os.geteuid() == 0
# Without these capabilities, permissions hold for the superuser as well.
WITHOUT_PRIVILEGES = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if IS_SUPERUSER else []

pytestmark = pytest.mark.skipif(
    IS_SUPERUSER and shutil.which("setpriv") is None, reason="the superuser needs setpriv to give up privileges"
)

STORE = "this user must be able to read {0}, and to write its folder and {0}-wal, -shm"


def run_denied(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a user to whom the permissions of files apply."""
    command = [*WITHOUT_PRIVILEGES, str(COMMAND), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a store and a file of lines."""
    folder = tmp_path / "folder"
    folder.mkdir()
    invoke("publish", folder / "market.db", SAMPLE)
    for beside in folder.glob("market.db-*"):
        beside.unlink()
    shutil.copy(SAMPLE, folder / "books.ndjson")
    yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize(
    ("denied", "mode", "arguments", "remedy"),
    [
        ("market.db", 0, ("publish", "market.db"), STORE.format("market.db")),
        ("market.db", 0o400, ("publish", "market.db", "books.ndjson"), STORE.format("market.db")),
        ("books.ndjson", 0, ("pairs", "books.ndjson"), "this user must be able to read it"),
        (".", 0o500, ("publish", "new.db", "books.ndjson"), STORE.format("new.db")),
    ],
)
def test_a_missing_permission_is_one_line_with_the_remedy(
    folder: Path, denied: str, mode: int, arguments: tuple[str, ...], remedy: str
):
    (folder / denied).chmod(mode)
    command, name, *others = arguments
    done = run_denied(command, folder / name, *(folder / one for one in others))
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert done.stderr.startswith(f"Error: {folder / name} ")
    assert done.stderr.endswith(f" ({remedy})\n")
