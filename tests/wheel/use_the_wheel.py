"""Builds the wheel and uses it as a newcomer would: installed elsewhere, the base alone and then each extra.

Run by `make wheel`. Exits non-zero at the first thing that is not as it should be.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.nats import served  # noqa: E402  # of the project itself, which this script stands in

SAMPLE = ROOT / "samples" / "order-books.ndjson"


def call(*command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd="/")
    if check and done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done


def expect(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        sys.exit(f"{what}: {found!r}, not {wanted!r}")
    print(f"ok  {what}")


def environment(home: Path, requirement: str) -> Path:
    venv.create(home, with_pip=True)
    call(home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement)
    return home / "bin"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        call(sys.executable, "-m", "build", "--wheel", "--outdir", there, ROOT)
        (wheel,) = there.glob("*.whl")

        base = environment(there / "base", str(wheel))
        installed = json.loads(call(base / "python", "-m", "pip", "list", "--format=json").stdout)
        expect(
            {one["name"] for one in installed} - {"pip", "setuptools"},
            {"attrs", "cattrs", "market-index", "typing_extensions"},
            "the base installs attrs and cattrs alone",
        )
        call(base / "python", "-Ic", "import market_index, market_index_feeds")
        expect(
            call(base / "python", "-Ic", LIBRARY, SAMPLE).stdout.split(),
            ["13", "True"],
            "the library reads a file of order books and writes them back",
        )
        store = there / "market.db"
        expect(
            call(base / "python", "-Ic", STORE, SAMPLE, store).stdout.split(),
            ["13", "1", "True"],
            "a program without a web stack publishes into a store",
        )
        extra = call(base / "python", "-Ic", OPEN, "nats://me:secret@127.0.0.1/books").stdout
        expect(
            extra,
            "nats://127.0.0.1/books cannot be opened: it needs the extra nats (pip install 'market-index[nats]')\n",
            "a bucket names the extra that it needs",
        )
        missing = call(base / "market-index", "serve", SAMPLE, check=False)
        expect(
            missing.stderr.splitlines()[-1].partition("pip install ")[2],
            "'market-index[http]'",
            "the command names the extra that it needs",
        )
        for package in ("market_index", "market_index_feeds", "market_index_http"):
            (typed,) = (there / "base").glob(f"lib/python3*/site-packages/{package}/py.typed")
            expect(typed.read_bytes(), b"", f"{package} is typed")

        hypothesis = environment(there / "hypothesis", f"{wheel}[hypothesis]")
        expect(
            call(hypothesis / "python", "-Ic", BY_TYPE_HINT).stdout.split(),
            ["False", "True", "100"],
            "a type hint is enough for Hypothesis to draw books, and the library alone does not import it",
        )

        nats = environment(there / "nats", f"{wheel}[nats]")
        with served(there / "server") as server:
            bucket = f"{server.url}/books"
            expect(
                call(nats / "python", "-Ic", STORE, SAMPLE, bucket).stdout.split(),
                ["13", "13", "True"],
                "a program without a web stack publishes into a bucket of NATS",
            )

        http = environment(there / "http", f"{wheel}[http]")
        first = json.loads(SAMPLE.read_text().splitlines()[0])
        ids = (first["base"], first["quote"])
        expect(
            call(http / "market-index", "publish", store, SAMPLE).stdout,
            f"{store}: 13 order books published, revision 2\n",
            "the command publishes",
        )
        expect(len(call(http / "market-index", "pairs", store).stdout.splitlines()), 14, "the command lists pairs")
        expect(json.loads(call(http / "market-index", "book", store, *ids, "--json").stdout), first, "and shows a book")
        errors = there / "errors"
        with errors.open("wb") as file:
            process = subprocess.Popen([http / "market-index", "serve", store, "--port", "0"], stderr=file, cwd="/")
        try:
            patience = time.monotonic() + 30
            while not (url := re.search(r"listening on (\S+)", errors.read_text())):
                if process.poll() is not None or time.monotonic() > patience:
                    sys.exit(errors.read_text())
                time.sleep(0.05)
            with urlopen(f"{url[1]}/trading-view/pair-list") as answer:
                expect(len(json.load(answer)["pairs"]), 13, "the command serves the pair list")
            page = ROOT / "market_index_http" / "page"
            with urlopen(f"{url[1]}/") as answer:
                expect(answer.read(), (page / "index.html").read_bytes(), "the command serves the page")
            for part in page.glob("*.[cj]s*"):
                with urlopen(f"{url[1]}/{part.name}") as answer:
                    expect(answer.read(), part.read_bytes(), f"and its {part.name}")
            query = f"base={first['base']}&quote={first['quote']}"
            with urlopen(f"{url[1]}/trading-view/order-book?{query}") as answer:
                expect(json.load(answer), first, "the command serves an order book")
        finally:
            process.terminate()
        expect(process.wait(30), 0, "the command ends cleanly")


LIBRARY = """
import sys
from market_index import LiveIndex, wire
from market_index_feeds import open_feed
live = LiveIndex()
with open_feed(sys.argv[1]) as feed:
    feed.start(live)
books = live.current.values()
print(len(books), all(wire.order_book_from_json(wire.order_book_to_json(book)) == book for book in books))
"""

STORE = """
import sys
from market_index_feeds import open_feed, open_store
books = open_feed(sys.argv[1]).read()
with open_store(sys.argv[2]) as store:
    receipt = store.publish(*books.values())
print(receipt.published, receipt.revision, open_feed(sys.argv[2]).read() == books)
"""

OPEN = """
import sys
from market_index_feeds import FeedError, open_feed
try:
    open_feed(sys.argv[1])
except FeedError as error:
    print(error)
"""

BY_TYPE_HINT = """
import sys
from market_index import OrderBook
print("hypothesis" in sys.modules)
from hypothesis import given, settings

drawn = []

@settings(database=None, max_examples=100)
@given(...)
def each(book: OrderBook) -> None:
    drawn.append(type(book))

each()
print(set(drawn) == {OrderBook}, len(drawn))
"""


if __name__ == "__main__":
    main()
