"""Files and folders that the user of the command may not read or write: one line, with the missing permission."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from market_index_feeds import open_feed, open_store
from tests.command import COMMAND, SAMPLE, invoke
from tests.waiting import DEADLINE_SECONDS

IS_SUPERUSER = os.name == "posix" and os.geteuid() == 0
# Without these capabilities, permissions hold for the superuser as well.
WITHOUT_PRIVILEGES = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if IS_SUPERUSER else []

pytestmark = pytest.mark.skipif(
    IS_SUPERUSER and shutil.which("setpriv") is None, reason="the superuser needs setpriv to give up privileges"
)

REMEDY = "this user must be able to read {name}, and to write its folder and {name}-wal, -shm"
STORE = REMEDY.format(name="market.db")


def run_denied(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a user to whom the permissions of files apply."""
    return subprocess.run(
        [*WITHOUT_PRIVILEGES, COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


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


@pytest.mark.parametrize("arguments", [("pairs",), ("serve", "--port", 0), ("publish",)])
@pytest.mark.parametrize(
    ("name", "remedy"), [("market.db", STORE), ("books.ndjson", "this user must be able to read it")]
)
def test_an_unreadable_file_is_one_line_with_the_remedy(
    folder: Path, tmp_path: Path, arguments: tuple[object, ...], name: str, remedy: str
):
    path = folder / name
    path.chmod(0)
    command, *options = arguments
    stores = [tmp_path / "other.db"] if (command, name) == ("publish", "books.ndjson") else []
    done = run_denied(command, *stores, path, *options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert done.stderr.startswith(f"Error: {path} cannot be ")
    assert done.stderr.endswith(f" ({remedy})\n")
    path.chmod(0o600)
    assert command == "serve" or run_denied(command, *stores, path, *options).returncode == 0


@pytest.mark.parametrize("arguments", [("pairs", "market.db"), ("publish", "market.db"), ("publish", "new.db", SAMPLE)])
def test_a_store_in_a_read_only_folder_is_one_line_with_the_remedy(folder: Path, arguments: tuple[object, ...]):
    command, name, *others = arguments
    folder.chmod(0o500)
    done = run_denied(command, folder / str(name), *others)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert done.stderr.startswith(f"Error: {folder / str(name)} cannot be ")
    assert done.stderr.endswith(f" ({REMEDY.format(name=name)})\n")
    folder.chmod(0o700)
    assert run_denied(command, folder / str(name), *others).returncode == 0


def test_a_reader_needs_no_writable_folder_while_another_process_has_the_store_open(folder: Path):
    path = folder / "market.db"
    with open_store(path):
        folder.chmod(0o500)
        done = run_denied("pairs", path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_read_only_store_can_be_read_and_not_published_into(folder: Path):
    path = folder / "market.db"
    path.chmod(0o400)
    assert run_denied("pairs", path).returncode == 0
    done = run_denied("publish", path, SAMPLE)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert done.stderr.endswith(f" ({STORE})\n")
    assert len(open_feed(path).read()) == 13
