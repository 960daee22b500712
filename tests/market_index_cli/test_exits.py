"""One table of the errors of all commands: the command line, its exit code, and its message on standard error."""

from __future__ import annotations

import shlex
import shutil
import socket
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.command import BOOK, SAMPLE, invoke

EXITS = """
1 pair             | book market.db ADA nothing             | Pair ADA/nothing not found
1 pair             | book market.db IUSD ADA                | Pair IUSD/ADA not found; the source has ADA/IUSD
1 pair             | retract market.db ADA nothing          | Pair ADA/nothing not found

2 command          | no-such                                | No such command 'no-such'.
2 option           | serve books.ndjson --no-such           | No such option*--no-such*
2 argument         | publish                                | Missing argument 'STORE'.
2 seconds          | publish market.db --wait nan           | *must be a number of seconds, 0 or more, got 'nan'
2 seconds          | serve books.ndjson --max-stale=-1      | *must be a number of seconds, 0 or more, got '-1'
2 number           | serve books.ndjson --max-age 2147483649 | Invalid value for '--max-age'*
2 number           | serve books.ndjson --port=-1           | Invalid value for '--port'*
2 choice           | serve books.ndjson --log-format xml    | Invalid value for '--log-format'*
2 as-of            | publish market.db --as-of ' '          | *as_of must be 1 to 200 printable ASCII characters*
2 tokens           | serve books.ndjson --port 0 --tokens x | *x cannot be read: No such file or directory
2 one process      | serve - --workers 2                    | standard input can be read by only one process: omit --w*
2 spelling         | book market.db lovelace IUSD           | lovelace is written ADA here

3 absent           | serve nowhere.ndjson                   | nowhere.ndjson cannot be opened: No such file or directory
3 absent           | relay nowhere.db market.db             | nowhere.db cannot be opened: No such file or directory
3 absent           | record nowhere.db x.ndjson             | nowhere.db cannot be opened: No such file or directory
3 absent           | dump nowhere.ndjson                    | nowhere.ndjson cannot be opened: No such file or directory
3 absent           | pairs nowhere.ndjson                   | nowhere.ndjson cannot be opened: No such file or directory
3 absent           | book nowhere.ndjson ADA IUSD           | nowhere.ndjson cannot be opened: No such file or directory
3 absent           | publish market.db nowhere.ndjson       | nowhere.ndjson cannot be opened: No such file or directory
3 absent           | retract nowhere.db ADA IUSD            | nowhere.db cannot be opened: No such file or directory
3 folder           | serve /                                | / cannot be opened: it must be a regular file, a pipe or *
3 scheme           | serve amqp://host/x                    | amqp://host/x *the scheme of a feed must be http, https*
3 unreadable       | serve /proc/self/mem                   | /proc/self/mem cannot be read: Input/output error
3 text             | dump text                              | text contains no valid order book
3 text             | pairs text                             | text contains no valid order book
3 events           | dump events                            | events contains no valid order book
3 books            | pairs orders:books.ndjson              | books.ndjson contains no reset (if it has order books, omit orders: before its name); waiting for a reset

4 host             | serve books.ndjson --host 'no such'    | cannot listen on no such port 8000: *
4 path             | serve books.ndjson --uds /nowhere/x    | cannot listen on /nowhere/x: No such file or directory
4 file             | serve books.ndjson --uds text          | cannot listen on text: Address already in use
4 long path        | serve books.ndjson --uds LONG          | cannot listen on LONG: *too long
4 port in use      | serve books.ndjson --port USED         | cannot listen on 127.0.0.1 port USED: Address already*
"""
ROWS = [tuple(cell.strip() for cell in row.split("|")) for row in EXITS.splitlines() if row]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each kind."""
    made = tmp_path_factory.mktemp("files")
    shutil.copy(SAMPLE, made / "books.ndjson")
    (made / "text").write_text("# A page\n\nof text\n")
    (made / "events").write_text('{"reset": true}\n')
    assert invoke("publish", made / "market.db", SAMPLE).returncode == 0
    return made


@pytest.mark.parametrize(("kind", "line", "message"), ROWS, ids=[f"{row[0]}-{row[1]}" for row in ROWS])
def test_each_error_is_one_line_and_an_exit_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, line: str, message: str
):
    monkeypatch.chdir(folder)
    with socket.create_server(("127.0.0.1", 0)) as used:
        given = {"IUSD": BOOK["quote"], "USED": str(used.getsockname()[1]), "LONG": "x" * 200}
        done = invoke(*(given.get(word, word) for word in shlex.split(line)))
    for name, value in given.items():
        message = message.replace(name, value)
    assert done.stdout == ""
    *before, error = done.stderr.splitlines()
    assert fnmatchcase(error, f"Error: {message}")
    assert done.returncode == int(kind[0])
    if done.returncode != 2:  # wrong usage shows more
        assert all(" rejected: " in one for one in before)


def test_a_rejected_event_of_orders_says_how_it_is_read(folder: Path):
    done = invoke("publish", folder / "new.db", folder / "events")
    assert done.returncode == 5
    assert "line 1 rejected: base: missing (an event of orders: type orders: before the name" in done.stderr


def test_an_invalid_file_replaces_nothing(folder: Path):
    done = invoke("publish", folder / "other.db", folder / "text", "--replace")
    assert done.returncode == 5
    assert done.stderr.endswith("text must have no invalid line to replace a store: nothing was changed\n")
