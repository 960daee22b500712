"""Only regular files are opened, and opening one never blocks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from market_index_feeds import regular_files
from market_index_feeds.regular_files import open_regular, require_regular_if_any


def test_a_regular_file_is_opened_through_links_too(tmp_path: Path):
    path, link = tmp_path / "lines", tmp_path / "link"
    path.write_bytes(b"text")
    link.symlink_to(path)
    with open_regular(link) as file:
        assert file.read() == b"text"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_any_other_kind_of_file_is_rejected_without_opening_it(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
):
    path, link = tmp_path / "other", tmp_path / "link"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    link.symlink_to(path)
    monkeypatch.setattr(regular_files, "open_without_waiting", None)
    for one in (path, link):
        with pytest.raises(OSError, match="it must be a regular file"):
            open_regular(one)
        with pytest.raises(OSError, match=f"{one.name} must be a regular file"):
            require_regular_if_any(one)


def test_a_pipe_that_replaces_the_file_while_it_is_opened_is_rejected_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "lines"
    path.touch()
    open_without_waiting = regular_files.open_without_waiting
    opened: list[int] = []

    def replace(name: str, flags: int) -> int:
        path.unlink()
        os.mkfifo(path)
        opened.append(open_without_waiting(name, flags))
        return opened[0]

    monkeypatch.setattr(regular_files, "open_without_waiting", replace)
    with pytest.raises(OSError, match="it must be a regular file"):
        open_regular(path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_a_file_that_is_missing_is_an_error_only_if_it_is_opened(tmp_path: Path):
    require_regular_if_any(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")
