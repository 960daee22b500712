"""One table of the errors of all commands: exit codes, messages on standard error, and the commands that print them."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from market_index import Freshness, MarketIndex
from market_index_feeds import open_feed
from tests.command import BOOK, LINES, SAMPLE, invoke, untimed

EXITS = """
1 Pair ADA/nothing not found
    book market.db ADA nothing
    book market.db ADA nothing --watch
1 Pair IUSD/ADA not found; the source has ADA/IUSD
    book market.db IUSD ADA
1 Pair IUSD/ADA not found
    retract market.db IUSD ADA

2 Missing argument 'STORE'.
    publish
2 Invalid value for '--wait': must be a number of seconds, 0 or more, got 'x'
    publish market.db --wait x
2 Invalid value for '--max-stale': must be a number of seconds, 0 or more, got 'nan'
    serve books.ndjson --max-stale=nan
2 Invalid value for '--max-stale': must be a number of seconds, 0 or more, got '1e999'
    serve books.ndjson --max-stale 1e999
2 Invalid value for '--cors-origin': must be an origin in lower case, such as https://example.com, got '*'
    serve books.ndjson --cors-origin http://x/
    serve books.ndjson --cors-origin https://X.example
    serve books.ndjson --cors-origin https://x.example:443
    serve books.ndjson --cors-origin http://x.example:80
    serve books.ndjson --cors-origin http://me@x.example
2 Invalid value for '--forwarded-allow-ips': *
    serve books.ndjson --forwarded-allow-ips 10.0.0.1/8
    serve books.ndjson --forwarded-allow-ips proxy
2 Invalid value for '--as-of': as_of must be 1 to 200 printable ASCII characters*
    publish market.db --as-of ' '
2 Invalid value for '--tokens': x cannot be read: No such file or directory
    pairs books.ndjson --tokens x
2 Invalid value for '--tokens': empty must contain files of entries (*.json), got none
    pairs books.ndjson --tokens empty
2 Invalid value for '--tokens': text cannot be read: token metadata must be JSON, but is not*
    pairs books.ndjson --tokens text
2 BASE and QUOTE are given together
    orders orders:events ADA
2 --skipped lists the outputs of all pairs: leave out BASE and QUOTE
    orders orders:events ADA IUSD --skipped
2 standard input can be read by only one process: omit --workers
    serve - --workers 2
2 pipe can be read by only one process: omit --workers
    serve pipe --workers 2
2 recording sets the as_of of its books: omit --as-of
    publish new.db recording --as-of x
2 BOOKS must be a file with one order book per line, or -, got a store or a service (market-index relay follows it)
    publish new.db http://127.0.0.1:1
    publish new.db other.db
2 --replace requires BOOKS, a file with one order book per line, or -
    publish new.db --replace
    publish new.db orders:events --replace
2 orders:events sets the as_of of its books: omit --as-of
    publish new.db orders:events --as-of x
2 FEED must have all pairs of STORE, got a stream of order books: use market-index publish
    relay - new.db
2 FEED and STORE must be given, or STORE alone with the variable MARKET_INDEX_FEED
    relay
    relay new.db
    relay books.ndjson new.db other.db
2 STORE must be another one than FEED
    relay market.db market.db
    relay link.db market.db
    relay nats://127.0.0.1/books nats://127.0.0.1/books

3 nowhere cannot be opened: No such file or directory
    serve nowhere
    relay nowhere new.db
    record nowhere new.ndjson
    dump nowhere
    pairs nowhere
    book nowhere ADA IUSD
    book nowhere ADA IUSD --watch
3 market.db has books, but not the orders behind them
    orders market.db
3 kupo:http://127.0.0.1:1 cannot be read: All connection attempts failed
    serve kupo:http://me:secret@127.0.0.1:1?hours=48
2 each worker would read koios:http://127.0.0.1:1: relay it into a store, and serve the store
    serve koios:http://127.0.0.1:1 --workers 2
3 koios:http://127.0.0.1:1 cannot be read: All connection attempts failed; Koios must be reachable without a proxy, *
    serve koios:http://me:secret@127.0.0.1:1?every=60
3 nowhere cannot be read: No such file or directory
    publish new.db nowhere
3 kupo:nowhere cannot be opened: its URL must have http:// or https://, a host, a valid port, and no query*
    serve kupo:nowhere
3 new.db cannot be opened: No such file or directory (market-index publish or relay creates it)
    serve new.db
    publish new.db
    publish new.db --acknowledge
    retract new.db ADA IUSD
3 lines.db cannot be opened: file is not a database (lines of order books need another name, such as lines.ndjson)
    serve lines.db
3 cut.gz cannot be read: it cannot be inflated: Compressed file ended before the end-of-stream marker was reached
    serve replay:cut.gz
3 nowhere/new.db cannot be opened: No such file or directory
    publish nowhere/new.db books.ndjson
3 other.db cannot be opened: it must be a store, got a SQLite database of another program (application 0x0)
    serve other.db
    relay other.db new.db
    relay books.ndjson other.db
    record other.db new.ndjson
    publish other.db books.ndjson
    retract other.db ADA IUSD
3 text cannot be opened: file is not a database (lines of order books need another name, such as text.ndjson)
    publish text books.ndjson
    relay books.ndjson text
3 busy.db was not written to: others have been writing for 0 seconds
    publish busy.db books.ndjson --wait 0
    publish busy.db books.ndjson --wait 0 --acknowledge
3 INVALID / text contains no valid order book
    dump text
3 new.ndjson.gz cannot be recorded into: its name must not end in .gz: it is written uncompressed
    record books.ndjson new.ndjson.gz
2 FILE must be a file of lines such as recording.ndjson, got the name of another FEED
    record books.ndjson nats://me:secret@127.0.0.1/books
    record books.ndjson orders:new.ndjson
    record books.ndjson market.db
    record books.ndjson -- -
3 books.ndjson must be a recording, or a new file: it must contain a commit line with recorded_at, got none (*)
    record market.db books.ndjson
3 books.ndjson contains no reset (if it has order books, omit orders: before its name); waiting for a reset
    pairs orders:books.ndjson
3 a store must be a file such as market.db, or a bucket, got a replay: 'replay:recording'
    publish replay:recording books.ndjson
3 / cannot be opened: it must be a regular file, a pipe or a character device
    serve /
3 /proc/self/mem cannot be read: Input/output error
    serve /proc/self/mem
    publish new.db /proc/self/mem

4 cannot listen on no such port 0: *
    serve books.ndjson --host 'no such'
4 cannot listen on /nowhere/x: No such file or directory
    serve books.ndjson --uds /nowhere/x
4 cannot listen on text: Address already in use
    serve books.ndjson --uds text
4 cannot listen on LONG: *too long
    serve books.ndjson --uds LONG
4 cannot listen on 127.0.0.1 port USED: Address already in use
    serve books.ndjson --port USED

5 INVALID / text: 1 record rejected / text must have no invalid line to replace a store: nothing was changed
    publish market.db text --replace
5 INVALID / text: 1 record rejected / text must contain an order book, got none: nothing was changed
    publish new.db text --as-of x
5 blank must contain an order book, got none: nothing was changed
    publish market.db blank --replace
5 retract must contain an order book, got none: nothing was changed
    publish market.db retract --replace
"""
"""With `--replace`, a producer that died at its start must not retract all pairs."""

INVALID = "text: line 1 rejected: must be JSON, but is not at character 0: *"
ROWS = [
    pytest.param(int(message[0]), message[2:], line.strip(), id=f"{message[0]} {line.strip()}")
    for message, *lines in (part.splitlines() for part in re.split(r"\n+(?=\d)", EXITS) if part)
    for line in filter(None, lines)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a file of each kind. A program writes to `busy.db` all the time."""
    made = tmp_path_factory.mktemp("files")
    shutil.copy(SAMPLE, made / "books.ndjson")
    (made / "recording").write_text(SAMPLE.read_text() + '{"as_of": "slot 1"}\n')
    (made / "text").write_text("# A page\n")
    (made / "events").write_text('{"reset": true}\n')
    (made / "blank").touch()
    (made / "retract").write_text(json.dumps({"retract": True, "base": "ADA", "quote": BOOK["quote"]}) + "\n")
    (made / "link.db").symlink_to("market.db")
    (made / "cut.gz").write_bytes(gzip.compress(SAMPLE.read_bytes())[:200])
    (made / "lines.db").write_text("".join(LINES))
    (made / "empty").mkdir()
    os.mkfifo(made / "pipe")
    other = sqlite3.connect(made / "other.db")
    other.execute("CREATE TABLE other (x)")
    other.close()
    for name in ("market.db", "busy.db"):
        assert invoke("publish", made / name, SAMPLE).returncode == 0
    with closing(sqlite3.connect(made / "busy.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        yield made


def contents(folder: Path) -> tuple[set[str], MarketIndex, Freshness]:
    """Return the names of the files, without logs and locks of stores, and the books of the store."""
    names = {one.name for one in folder.iterdir() if not re.search(r"\.db-(wal|shm)$|\.keeper$|\.lock$", one.name)}
    index = open_feed(folder / "market.db").read()
    return names, index, index.freshness


@pytest.mark.parametrize(("exit_code", "message", "line"), ROWS)
def test_each_error_has_its_message_and_exit_code_and_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int, message: str, line: str
):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MARKET_INDEX_PORT", "0")
    before = contents(folder)
    with socket.create_server(("127.0.0.1", 0)) as used:
        quote = BOOK["quote"]
        words = {"IUSD": quote, "IUSD9": f"{quote}9", "LONG": "x" * 200}
        words["USED"] = str(used.getsockname()[1])
        done = invoke(*(words.get(word, word) for word in shlex.split(line)))
    for word, value in {**words, "INVALID": INVALID}.items():
        message = re.sub(rf"\b{word}\b", value, message)
    *logged, error = message.split(" / ")
    # Once `publish` has begun to read, it also says how many books it has published.
    stdout, shown = (
        re.sub(r"^\S+: 0 order books published\n", "", text, flags=re.MULTILINE) for text in (done.stdout, done.stderr)
    )
    if shown.startswith("Usage: market-index"):
        assert exit_code == 2
        shown = shown.rpartition("\n\n")[2]
    elif line.split(maxsplit=1)[0] in {"serve", "relay", "record"}:
        shown = "Error: ".join(["", untimed(shown)])
    expected = "\n".join([*logged, f"Error: {error}\n"])
    assert re.fullmatch(".*".join(map(re.escape, expected.split("*"))), shown), shown
    assert (done.returncode, stdout, contents(folder)) == (exit_code, "", before)
