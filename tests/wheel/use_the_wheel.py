"""Builds the wheel, installs it in new environments without extras and with each extra, and uses it there.

Run by `make wheel`. `make release` runs it with a folder for the files of a release: the sdist, and the wheel built
from it. Their contents and metadata are checked, the wheel is used with the oldest and the newest Python that are
installed, the locked packages of the image are installed and listed in an SBOM (CycloneDX), the image is built where
podman or docker runs, and the sdist runs its own tests. At the end it lists what is still to be replaced before a
release (docs/contributing.md). Exits with an error at the first unexpected result.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from email.parser import HeaderParser
from pathlib import Path
from urllib.request import urlopen
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from packaging.utils import canonicalize_name  # noqa: E402  # as the next line

from market_index import __version__  # noqa: E402  # needs the path set above
from tests.waiting import DEADLINE_SECONDS  # noqa: E402

SAMPLE = ROOT / "docs" / "samples" / "order-books.ndjson"
BOOK = json.loads(SAMPLE.read_text().splitlines()[0])
PAIR = (BOOK["base"], BOOK["quote"])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("market_index", "market_index_cli", "market_index_feeds", "market_index_http")
DEPLOY = ROOT / "docs" / "deploy"
PAGE = "market_index_cli/page/static/index.html"
WEB_STACK = {"httptools", "starlette", "uvicorn", "uvloop"}  # httpx, of a feed, needs anyio and h11


def call(*command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd="/")
    if check and done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done


def installed(home: Path) -> set[str]:
    """Return the packages that were installed with the wheel."""
    listed = json.loads(call(home / "python", "-m", "pip", "list", "--format=json").stdout)
    return {one["name"] for one in listed} - {"market-index", "pip", "setuptools"}


def expect(found: object, wanted: object, claim: str) -> None:
    if found != wanted:
        sys.exit(f"{claim}: must be {wanted!r}, got {found!r}")
    print(f"ok  {claim}")


def environment(home: Path, requirement: str) -> Path:
    """Install the requirement in a new environment. The folder above its own has the Python to use."""
    call(home.parent / "python", "-m", "venv", home)
    call(home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement)
    return home / "bin"


def main(release: str = "") -> None:
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        if not release:
            call(sys.executable, "-m", "build", "--wheel", "--outdir", there, ROOT)
            (wheel,) = there.glob("*.whl")
            use(wheel, there / "used", sys.executable)
            return
        # Without options the wheel is built from the sdist.
        call(sys.executable, "-m", "build", "--outdir", there, ROOT)
        (wheel,), (sdist,) = there.glob("*.whl"), there.glob("*.tar.gz")
        check_wheel(wheel)
        check_sdist(sdist)
        for version, python in pythons().items():
            print(f"--  Python {version}: {python}")
            use(wheel, there / version, python)
        bill = there / f"market_index-{__version__}.cdx.json"
        list_packages(wheel, there / "locked", bill)
        build_image()
        run_tests(sdist, there / "extracted")
        Path(release).mkdir(exist_ok=True)
        for file in (sdist, wheel, bill):
            print(shutil.copy(file, release))
    if "REPOSITORY" in PROJECT["urls"]["Repository"]:
        print("--  before you publish, replace the address of the repository in pyproject.toml")
    if "@sha256:" not in (DEPLOY / "Containerfile").read_text():
        print("--  before you publish, name the base image in docs/deploy/Containerfile with its digest")


def use(wheel: Path, there: Path, python: str) -> None:
    """Use the wheel in new environments of this Python."""
    there.mkdir()
    (there / "python").symlink_to(python)
    store = there / "market.db"
    without_extras(there / "base", wheel, store)
    with_hypothesis(there / "hypothesis", wheel)
    with_http(there / "http", wheel)
    with_cli(there / "cli", wheel, store)
    with_server(there / "server", wheel, store, there / "errors")


def pythons() -> dict[str, str]:
    """Return the oldest and the newest Python of the classifiers that are installed, by version."""
    found: dict[str, str] = {}
    for version in re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"])):  # in ascending order
        if shutil.which(f"python{version}"):
            done = call(f"python{version}", "-c", "import sys; print(sys.executable)", check=False)
            found |= {version: done.stdout.strip()} if done.returncode == 0 else {}
    if not found:
        sys.exit("no Python of the classifiers is installed")
    return {version: found[version] for version in (min(found), max(found))}


def check_wheel(wheel: Path) -> None:
    """Check that the wheel has exactly the files of the packages, and the metadata of the project."""
    with ZipFile(wheel) as file:
        names = set(file.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = HeaderParser().parsestr(file.read(metadata).decode())
    info = metadata.removesuffix("METADATA")
    expect(info, f"market_index-{__version__}.dist-info/", "the wheel has the version of the package")
    expect(
        {name for name in names if not name.startswith(info)}, tracked(*PACKAGES), "the wheel has exactly the packages"
    )
    expect(f"{info}licenses/LICENSE" in names, True, "the wheel has the licence")
    expect(
        (fields["Name"], fields["Version"], fields["License-Expression"], fields["Requires-Python"]),
        (PROJECT["name"], __version__, PROJECT["license"], PROJECT["requires-python"]),
        "the metadata of the wheel are those of the project",
    )
    expect(sorted(fields.get_all("Provides-Extra", [])), sorted(PROJECT["optional-dependencies"]), "it has all extras")
    expect(fields.get_payload(), (ROOT / "README.md").read_text(), "the description is the README")


def check_sdist(sdist: Path) -> None:
    """Check that the sdist has exactly the files that the repository has in the same folders."""
    prefix = f"market_index-{__version__}/"
    with tarfile.open(sdist) as file:
        names = {name.removeprefix(prefix) for name in file.getnames()}
    wanted = tracked() - {".ci/run"}
    expect(names - {"PKG-INFO"}, wanted, "the sdist has exactly the files of the repository")


def tracked(*folders: str) -> set[str]:
    """Return the names of the files of the repository in some folders, or in all."""
    return set(call("git", "-C", ROOT, "ls-files", *folders).stdout.splitlines())


def list_packages(wheel: Path, home: Path, bill: Path) -> None:
    """Install the wheel with the locked packages, as the image does, and write their list: the SBOM of the image."""
    call(sys.executable, "-m", "venv", "--without-pip", home)
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "--quiet")
    call(*pip, "--require-hashes", "--requirement", DEPLOY / "requirements.txt")
    call(*pip, "--no-deps", wheel)
    listing = (Path(sys.executable).parent / "cyclonedx-py", "environment", "--pyproject", ROOT / "pyproject.toml")
    call(*listing, "--output-reproducible", "--output-file", bill, home)
    listed = json.loads(bill.read_text())
    listed["metadata"]["component"]["version"] = __version__  # pyproject.toml has none
    bill.write_text(json.dumps(listed, indent=2))
    found = {canonicalize_name(one["name"]): one["version"] for one in listed["components"]}
    locked = dict(re.findall(r"^([\w-]+)==([\w.]+)", (DEPLOY / "requirements.txt").read_text(), re.MULTILINE))
    expect(found, locked, "the SBOM lists the locked packages, which are installed by their hashes")


def build_image() -> None:
    """Build the image of the Containerfile, whose last step runs the command in it, as the user of the image."""
    engines = filter(None, map(shutil.which, ("podman", "docker")))
    engine = next((one for one in engines if call(one, "info", check=False).returncode == 0), None)
    if engine is None:
        print("--  no image was built: neither podman nor docker runs here")
        return
    call(engine, "build", "-f", DEPLOY / "Containerfile", "-t", f"market-index:{__version__}", ROOT)
    print("ok  the image of the Containerfile is built, and its command runs")


def run_tests(sdist: Path, there: Path) -> None:
    """Run the tests of the sdist in its own environment. The variables of `make release` are passed on."""
    with tarfile.open(sdist) as file:
        file.extractall(there, filter="data")
    (home,) = there.iterdir()
    expect(subprocess.run(["make", "-C", home, "test"], check=False).returncode, 0, "the sdist passes its own tests")


def without_extras(home: Path, wheel: Path, store: Path) -> None:
    base = environment(home, str(wheel))
    only = {"attrs", "cattrs", "typing_extensions"}
    expect(installed(base), only, "without extras only attrs and cattrs are installed")
    published = call(base / "python", "-Ic", PUBLISHER, SAMPLE, store).stdout.split()
    expect(published, ["13", "1", "True"], "a program without a web stack publishes into a store")
    for package in PACKAGES:
        (typed,) = home.glob(f"lib/python3*/site-packages/{package}/py.typed")
        expect(typed.read_bytes(), b"", f"{package} is typed")


def with_hypothesis(home: Path, wheel: Path) -> None:
    hypothesis = environment(home, f"{wheel}[hypothesis]")
    drawn = call(hypothesis / "python", "-Ic", BY_TYPE_HINT).stdout.split()
    expect(drawn, ["False", "OrderBook"], "Hypothesis draws books, and the library does not import Hypothesis")


def with_http(home: Path, wheel: Path) -> None:
    http = environment(home, f"{wheel}[http]")
    expect(installed(http) & (WEB_STACK | {"click"}), {"starlette"}, "no server comes with the app")
    expect(call(http / "python", "-Ic", MOUNTED).stdout, "['Mount']\n", "a program mounts the app")


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
        call(server / "market-index", "check", url[1], "--strict")
        print("ok  what the command serves keeps the contract")
        with urlopen(url[1]) as answer:
            expect(answer.read(), (ROOT / PAGE).read_bytes(), "the command serves its page")
    finally:
        process.terminate()
    expect(process.wait(DEADLINE_SECONDS), 0, "the command ends cleanly")


PUBLISHER = """
import sys
from market_index_feeds import open_feed, open_store
books = open_feed(sys.argv[1]).read()
with open_store(sys.argv[2]) as store:
    receipt = store.publish(*books.values())
print(receipt.published, receipt.position.number, open_feed(sys.argv[2]).read() == books)
"""

MOUNTED = """
from starlette.applications import Starlette
from starlette.routing import Mount
from market_index import LiveIndex
from market_index_http import create_app
print([type(one).__name__ for one in Starlette(routes=[Mount("/api", create_app(LiveIndex()))]).routes])
"""

BY_TYPE_HINT = """
import sys
from market_index import OrderBook
is_imported = "hypothesis" in sys.modules
from hypothesis import find, strategies
print(is_imported, type(find(strategies.from_type(OrderBook), lambda _: True)).__name__)
"""


if __name__ == "__main__":
    main(*sys.argv[1:])
