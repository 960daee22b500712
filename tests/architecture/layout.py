"""The rules for the tree of the tests: it mirrors the packages, with one test file per module.

If the tests of a module are split by subject, their files are named `test_<module>_<subject>.py`. The folders beside
the mirrored tree (tests/browser, tests/faults and others) are not part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

# Modules with functions but without a test file: the file that tests them, and the reason.
TESTED_BY: Mapping[str, tuple[str, str]] = {
    "market_index/__init__.py": (
        "tests/test_requirements.py",
        "a lazy import: which modules an import of the package loads",
    ),
    "market_index/wire/json_value.py": ("tests/market_index/wire/test_decode.py", "decodes the text of every message"),
    "market_index_cli/__main__.py": ("tests/market_index_cli/test_main.py", "runs the group of commands"),
    "market_index_cli/console.py": ("tests/market_index_cli/test_serve.py", "a progress bar on a real terminal"),
    "market_index_cli/errors.py": ("tests/market_index_cli/test_main.py", "the exit codes of the commands"),
    "market_index_cli/options.py": ("tests/market_index_cli/test_serve.py", "parameters, tested through the commands"),
    "market_index_cli/signals.py": ("tests/market_index_cli/test_publish.py", "signals to a real process"),
    "market_index_cli/tokens.py": ("tests/market_index_cli/test_names.py", "names and numbers on the command line"),
    "market_index_cli/server/http_server.py": ("tests/market_index_cli/test_serve.py", "uvicorn, set up by a command"),
    "market_index_cli/server/serving.py": ("tests/market_index_cli/test_serve.py", "one server, or several workers"),
    "market_index_feeds/errors.py": ("tests/market_index_feeds/test_feed_following.py", "how a feed reports causes"),
    "market_index_feeds/file_lock.py": (
        "tests/market_index_feeds/sqlite/test_lock.py",
        "the lock of publishers; recorders use it too",
    ),
    "market_index_feeds/line_content.py": (
        "tests/market_index_feeds/ndjson/test_book_lines.py",
        "what the lines of a medium contain",
    ),
    "market_index_feeds/line_feed.py": (
        "tests/market_index_feeds/ndjson/test_source.py",
        "follows the files of a medium of lines",
    ),
    "market_index_feeds/medium.py": (
        "tests/market_index_feeds/test_feed_following.py",
        "the updates that a source yields to its feed",
    ),
    "market_index_feeds/sources.py": ("tests/market_index_feeds/test_stores.py", "opens each medium by its name"),
    "market_index_feeds/store.py": (
        "tests/market_index_feeds/test_stores.py",
        "an interface, tested with every store",
    ),
    "market_index_feeds/nats/bucket.py": ("tests/market_index_feeds/nats/test_source.py", "messages of a real server"),
    "market_index_feeds/nats/errors.py": (
        "tests/market_index_feeds/nats/test_opening.py",
        "errors that servers report",
    ),
    "market_index_feeds/nats/writes.py": ("tests/market_index_feeds/nats/test_publisher.py", "writes of a publisher"),
    "market_index_http/app.py": ("tests/market_index_http/test_contract.py", "every rule of the contract"),
    "market_index_http/endpoints.py": ("tests/market_index_http/test_contract.py", "every rule of the contract"),
    "market_index_http/operations/observation.py": (
        "tests/market_index_http/operations/test_metrics.py",
        "the state of the index, the feed and the process",
    ),
    "market_index_http/routes.py": ("tests/market_index_http/test_mounting.py", "an app of routes in another app"),
}

# Test files that are not named after one module, and their subject.
SUBJECTS: Mapping[str, str] = {
    "tests/market_index/test_values.py": "equality, hash, pickle and copy of all values",
    "tests/market_index_cli/test_buckets.py": "all commands with buckets of NATS",
    "tests/market_index_cli/test_garbage.py": "all commands with records that contain no valid book",
    "tests/market_index_cli/test_orders.py": "all commands with events of orders",
    "tests/market_index_cli/test_permissions.py": "all commands with files that the user may not read or write",
    "tests/market_index_feeds/sqlite/test_damaged.py": "rows that were damaged or deleted, for stores and feeds",
    "tests/market_index_cli/page/test_page_freshness.py": "the JavaScript module freshness.js",
    "tests/market_index_cli/page/test_page_modules.py": "the page's JavaScript modules",
    "tests/market_index_cli/page/test_page_service.py": "the JavaScript module service.js",
    "tests/market_index_feeds/test_search.py": "promises of feeds and relays after all short histories of faults",
    "tests/market_index_feeds/test_stores.py": "every store, and every feed that follows one",
    "tests/market_index_feeds/nats/test_credentials.py": "credentials and TLS, in addresses, connections and messages",
    "tests/market_index_feeds/nats/test_opening.py": "opening feeds and stores while servers are missing",
    "tests/market_index_feeds/nats/test_validation.py": "invalid records, for feeds and stores",
    "tests/market_index_feeds/ndjson/test_streams.py": "pipes, for feeds and for reading once",
    "tests/market_index_feeds/test_hops.py": "how fresh books are after a file, a relay and a service",
    "tests/market_index_feeds/sqlite/test_followed.py": "one publisher and one reader of a file",
    "tests/market_index_http/test_clients.py": "the JavaScript clients of the docs",
    "tests/market_index_http/test_clients_waiting.py": "the clients of the docs that wait for changes",
    "tests/market_index_http/test_concurrency.py": "the whole app, with many connections",
    "tests/market_index_http/test_contract.py": "the whole app, by the rules of the contract",
    "tests/market_index_http/test_head.py": "HEAD, for all routes",
    "tests/market_index_http/test_mounting.py": "the app inside other apps",
}


def modules_of(test: str) -> Iterator[str]:
    """Yield the modules that a test file can be named after: a_b and a for test_a_b.py."""
    path = PurePosixPath(test).relative_to("tests")
    words = path.stem.removeprefix("test_").split("_")
    for count in range(len(words), 0, -1):
        yield str(path.with_name("_".join(words[:count]) + ".py"))
