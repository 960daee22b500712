"""Builds the wheel, installs it in new environments without extras and with each extra, and uses it there.

Run by `make wheel`. Exits with an error at the first unexpected result.
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

from tests.nats import served  # noqa: E402  # needs the path set above
from tests.waiting import DEADLINE_SECONDS  # noqa: E402  # likewise

SAMPLE = ROOT / "samples" / "order-books.ndjson"
BOOK = json.loads(SAMPLE.read_text().splitlines()[0])
PAIR = (BOOK["base"], BOOK["quote"])
WEB_STACK = {"anyio", "h11", "httptools", "starlette", "uvicorn", "uvloop"}


def call(*command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd="/")
    if check and done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done


def failed(*command: object) -> tuple[int, str]:
    """Return the exit code and the standard error of a command."""
    done = call(*command, check=False)
    return done.returncode, done.stderr


def installed(home: Path) -> set[str]:
    """Return the packages that were installed with the wheel."""
    listed = json.loads(call(home / "python", "-m", "pip", "list", "--format=json").stdout)
    return {one["name"] for one in listed} - {"market-index", "pip", "setuptools"}


def expect(found: object, wanted: object, claim: str) -> None:
    if found != wanted:
        sys.exit(f"{claim}: must be {wanted!r}, got {found!r}")
    print(f"ok  {claim}")


def environment(home: Path, requirement: str) -> Path:
    venv.create(home, with_pip=True)
    call(home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement)
    return home / "bin"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        call(sys.executable, "-m", "build", "--wheel", "--outdir", there, ROOT)
        (wheel,) = there.glob("*.whl")
        store = there / "market.db"
        without_extras(there / "base", wheel, store)
        with_hypothesis(there / "hypothesis", wheel)
        with_nats(there / "nats", wheel, there)
        with_http(there / "http", wheel)
        with_cli(there / "cli", wheel, store)
        with_server(there / "server", wheel, store, there / "errors")


def without_extras(home: Path, wheel: Path, store: Path) -> None:
    base = environment(home, str(wheel))
    expect(
        installed(base), {"attrs", "cattrs", "typing_extensions"}, "without extras only attrs and cattrs are installed"
    )
    call(base / "python", "-Ic", "import market_index, market_index_feeds")
    expect(
        call(base / "python", "-Ic", LIBRARY, SAMPLE).stdout.split(),
        ["13", "True"],
        "the library reads a file of order books and writes them back",
    )
    expect(
        call(base / "python", "-Ic", STORE, SAMPLE, store).stdout.split(),
        ["13", "1", "True"],
        "a program without a web stack publishes into a store",
    )
    expect(
        call(base / "python", "-Ic", OPEN, "nats://me:secret@127.0.0.1/books").stdout,
        "nats://127.0.0.1/books cannot be opened: the extra nats must be installed "
        "(pip install 'market-index[nats]')\n",
        "a bucket names the extra that it needs",
    )
    for arguments in (("--version",), ("serve", SAMPLE)):
        expect(
            failed(base / "market-index", *arguments),
            (2, "market-index needs click, which comes with its extra: pip install 'market-index[cli]'\n"),
            f"market-index {arguments[0]} names the extra that it needs",
        )
    for module, missing, extra in (
        ("market_index_http", "starlette", "http"),
        ("market_index.strategies", "hypothesis", "hypothesis"),
    ):
        expect(
            call(base / "python", "-Ic", f"import {module}", check=False).stderr.splitlines()[-1],
            f"ModuleNotFoundError: {module} needs {missing}, which comes with its extra: "
            f"pip install 'market-index[{extra}]'",
            f"{module} names the extra that it needs",
        )
    expect_typed(home)


def expect_typed(home: Path) -> None:
    for package in ("market_index", "market_index_feeds", "market_index_http", "market_index_cli"):
        (typed,) = home.glob(f"lib/python3*/site-packages/{package}/py.typed")
        expect(typed.read_bytes(), b"", f"{package} is typed")


def with_hypothesis(home: Path, wheel: Path) -> None:
    hypothesis = environment(home, f"{wheel}[hypothesis]")
    expect(
        call(hypothesis / "python", "-Ic", BY_TYPE_HINT).stdout.split(),
        ["False", "True", "100"],
        "Hypothesis draws books from a type hint, and the library does not import Hypothesis",
    )
    expect(
        call(hypothesis / "python", "-Ic", INDEXER).stdout.split(),
        ["found"],
        "the state machine finds an indexer that adds a partial fill to its order",
    )


def with_nats(home: Path, wheel: Path, there: Path) -> None:
    nats = environment(home, f"{wheel}[nats]")
    with served(there / "server of NATS") as server:
        bucket = f"{server.url}/books"
        expect(
            call(nats / "python", "-Ic", STORE, SAMPLE, bucket).stdout.split(),
            ["13", "14", "True"],
            "a program without a web stack publishes into a bucket of NATS",
        )


def with_http(home: Path, wheel: Path) -> None:
    http = environment(home, f"{wheel}[http]")
    expect(
        installed(http) & {"click", "httptools", "starlette", "uvicorn", "uvloop"},
        {"starlette"},
        "mounting the app installs Starlette, and neither a server nor a command",
    )
    expect(
        call(http / "python", "-Ic", MOUNTED, SAMPLE).stdout.split(),
        ["200", "13"],
        "a program mounts the app",
    )


def with_cli(home: Path, wheel: Path, store: Path) -> None:
    cli = environment(home, f"{wheel}[cli]")
    expect(installed(cli) & WEB_STACK, set(), "the command alone installs no web stack")
    expect(
        call(cli / "market-index", "publish", store, SAMPLE).stdout,
        f"{store}: 13 order books published, revision 2\n",
        "the command publishes",
    )
    expect(len(call(cli / "market-index", "pairs", store).stdout.splitlines()), 14, "it lists pairs")
    expect(json.loads(call(cli / "market-index", "book", store, *PAIR, "--json").stdout), BOOK, "it shows a book")
    expect(
        failed(cli / "market-index", "serve", store),
        (2, "Error: serve needs starlette, which comes with its extra: pip install 'market-index[server]'\n"),
        "serve names the extra that it needs",
    )


def with_server(home: Path, wheel: Path, store: Path, errors: Path) -> None:
    server = environment(home, f"{wheel}[server]")
    with errors.open("wb") as file:
        process = subprocess.Popen([server / "market-index", "serve", store, "--port", "0"], stderr=file, cwd="/")
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (url := re.search(r"listening on (\S+)", errors.read_text())):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(errors.read_text())
            time.sleep(0.05)
        served_by_command(url[1])
    finally:
        process.terminate()
    expect(process.wait(DEADLINE_SECONDS), 0, "the command ends cleanly")


def served_by_command(url: str) -> None:
    with urlopen(f"{url}/trading-view/pair-list") as answer:
        expect(len(json.load(answer)["pairs"]), 13, "the command serves the pair list")
    base, quote = PAIR
    with urlopen(f"{url}/trading-view/order-book?base={base}&quote={quote}") as answer:
        expect(json.load(answer), BOOK, "the command serves an order book")
    with urlopen(f"{url}/openapi.json") as answer:
        described = ROOT / "market_index_http" / "operations" / "openapi.json"
        expect(answer.read(), described.read_bytes(), "the command serves the description of the API")
    page = ROOT / "market_index_cli" / "page" / "static"
    for file in page.iterdir():
        with urlopen(f"{url}/{'' if file.name == 'index.html' else file.name}") as answer:
            expect(answer.read(), file.read_bytes(), f"the command serves the page's {file.name}")


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

MOUNTED = """
import asyncio, json, sys
from starlette.applications import Starlette
from starlette.routing import Mount
from market_index import LiveIndex
from market_index_feeds import open_feed
from market_index_http import create_app
app = Starlette(routes=[Mount("/api", create_app(LiveIndex(open_feed(sys.argv[1]).read().values())))])
sent = []
async def receive():
    return {"type": "http.request"}
async def send(message):
    sent.append(message)
path = "/api/trading-view/pair-list"
scope = {"type": "http", "method": "GET", "path": path, "root_path": "", "query_string": b"", "headers": []}
asyncio.run(app(scope, receive, send))
print(sent[0]["status"], len(json.loads(sent[1]["body"])["pairs"]))
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
from hypothesis import HealthCheck, given, settings

drawn = []

@settings(database=None, max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(...)
def each(book: OrderBook) -> None:
    drawn.append(type(book))

each()
print(set(drawn) == {OrderBook}, len(drawn))
"""

INDEXER = """
from hypothesis import HealthCheck, settings
from market_index import Order, RestingOrders
from market_index.stateful import indexer_machine

class Adding:
    def __init__(self):
        self.working, self.blocks = RestingOrders(), {}
    def place(self, order_id, offer):
        new, before = offer.order, self.working.get(order_id)
        amount = min(new.amount + (before.amount if before else 0), 2**64 - 1)
        self.working = self.working.apply({order_id: Order(new.pair, new.side, new.price, amount)})
    def remove(self, order_id):
        self.working = self.working.apply(removed=[order_id])
    def set_spot(self, pair, spot):
        self.working = self.working.apply(spots={pair: spot})
    def untrack(self, pair):
        self.working = self.working.untrack(pair)
    def commit(self, block):
        self.blocks[block] = self.working
    def roll_back(self, block):
        while next(reversed(self.blocks)) != block:
            self.blocks.popitem()
        self.working = self.blocks[block]
    def order_books(self):
        return next(reversed(self.blocks.values())).index if self.blocks else {}

case = indexer_machine(Adding).TestCase
case.settings = settings(database=None, max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
try:
    case().runTest()
except AssertionError as error:
    print("found" if "must be" in str(error) else error)
"""


if __name__ == "__main__":
    main()
