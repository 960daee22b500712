"""Each promise of limits.md and http-api.md has tests, listed by name; each number of a page is that of the code."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from market_index import errors, wire
from market_index_cli.server import http_server, limits
from market_index_feeds import backoff, orders, service
from market_index_feeds.nats import bucket
from market_index_http import queries, responses
from market_index_http.stream import audience

ROOT = Path(__file__).resolve().parents[1]

# By the beginning of a promise: of an item of a list, or of the first two cells of a row.
PROMISES: dict[str, dict[str, list[str]]] = {
    "limits.md": {
        "Every served book was validated": [
            "test_a_text_is_the_book_of_the_independent_grammar",
            "test_responses_keep_every_rule",
        ],
        "An acknowledged change of a store file": [
            "test_a_killed_publisher_loses_no_acknowledged_change",
            "test_synchronous_is_that_of_sqlite",
        ],
        "Readers see whole versions": [
            "test_any_history_is_read_as_it_was_written",
            "test_each_batch_is_a_version_whose_as_of_is_unknown_until_the_last_one",
        ],
        "While a source cannot be read": [
            "test_any_history_is_read_as_it_was_written",
            "test_probes_report_each_check_that_failed",
        ],
    },
    "http-api.md": {
        "The same content has the same `ETag`": ["test_tags_are_equal_in_every_process_and_with_every_history"],
        "The `ETag` is weak": ["test_tags_are_compared_weakly"],
        "Letter case counts": ["test_tags_are_compared_weakly"],
        "Each process compares with its own books": ["test_responses_keep_every_rule"],
        "gzip": ["test_gzip_is_used_if_the_client_lists_it", "test_a_body_is_compressed_from_512_bytes"],
        "At a `version` the books are consistent": ["test_after_each_version_a_client_has_what_the_endpoint_returned"],
        "A slow client gets fewer versions": [
            "test_a_slow_client_gets_fewer_versions_and_the_last_one",
            "test_a_client_that_accepts_nothing_is_closed",
        ],
        "Each connection begins with whole books": ["test_the_events_of_versions"],
        "A comment (`:`)": ["test_a_client_of_a_quiet_market_gets_comments_also_while_another_one_ends_slowly"],
        "The `id`": ["test_after_each_version_a_client_has_what_the_endpoint_returned"],
        "Ignore what you do not know": ["test_keys_that_a_service_adds_are_ignored"],
        "A stream takes one connection": ["test_open_streams"],
        "400 | `base` or `quote`": ["test_an_invalid_parameter_is_400_and_named"],
        "400 | `pairs` or `levels`": ["test_a_malformed_request_is_400_with_the_error_body"],
        "400 | the target": ["test_an_excessive_target_is_400_and_the_connection_is_closed"],
        "400 | the request is not HTTP": ["test_what_is_not_http_is_400_with_the_error_body"],
        "404 | the pair": ["test_responses_keep_every_rule"],
        "404 | any other path": ["test_any_other_path_is_404_and_no_redirect"],
        "405 | any other method": ["test_responses_keep_every_rule"],
        "426 |": ["test_a_stream_for_http_1_0_is_as_described"],
        "431 |": ["test_a_head_above_the_limit_is_431_and_the_connection_is_closed"],
        "500 |": ["test_a_failure_is_500_without_detail_also_below_middleware_of_the_host_and_logged"],
        "503 | as many streams": ["test_a_stream_above_the_limit_is_as_described"],
        "503 | more connections": ["test_the_connection_that_waited_longest_is_closed"],
        "`Market-Index-As-Of` |": [
            "test_the_header_fields_have_the_freshness_that_is_known",
            "test_any_history_is_read_as_it_was_written",
        ],
        "`Market-Index-Published-At` |": [
            "test_the_header_fields_have_the_freshness_that_is_known",
            "test_any_history_is_read_as_it_was_written",
        ],
    },
}

# A number of a page, and the constant of the code that it states.
NUMBERS: list[tuple[str, str, float]] = [
    ("http-api.md", r"accepts nothing for (\d+) seconds", audience.SEND_SECONDS),
    ("http-api.md", r"comes after (\d+) seconds of silence", audience.PING_SECONDS),
    ("http-api.md", r"After (\d+) seconds of silence the connection is dead", service.SILENCE_SECONDS),
    ("http-api.md", r"bodies from (\d+) bytes", responses.MIN_GZIP_BYTES),
    ("http-api.md", r"longer than (\d+) KiB", queries.MAX_TARGET_BYTES / 1024),
    ("http-api.md", r"more than (\d+) parameters", queries.MAX_PARAMETERS),
    ("http-api.md", r"larger than (\d+) KiB", limits.MAX_HEAD_BYTES / 1024),
    ("http-api.md", r"cut to (\d+) characters", errors.MAX_REPR_LENGTH),
    ("limits.md", r"changes of up to ([\d,]+) books", bucket.MAX_BATCH),
    ("limits.md", r"tries again within (\d+) seconds", backoff.LONGEST_SECONDS),
    ("serving.md", r"size of a request head \| (\d+) KiB", limits.MAX_HEAD_BYTES / 1024),
    ("serving.md", r"time for a request head \| (\d+) seconds", limits.HEAD_SECONDS),
    ("serving.md", r"and has (\d+) seconds to finish", http_server.GRACE_SECONDS),
    ("formats.md", r"the JSON of one book may have (\d+) MiB", wire.MAX_ORDER_BOOK_BYTES / 1024**2),
    ("formats.md", r"A change of up to ([\d,]+) books and retracted", bucket.MAX_BATCH),
    ("orders.md", r"may go back ([\d,]+) blocks", orders.DEFAULT_HISTORY),
    ("orders.md", r"id \| 1 to (\d+) printable", orders.MAX_TEXT_CHARACTERS),
]


@cache
def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def promises(name: str) -> list[str]:
    """Return the promises of a page: items of lists, and rows of the tables of headers and of errors."""
    text = page(name).partition("## What is not promised")[0]
    items = re.findall(r"^- (?:\*\*)?(.*)", text, re.MULTILINE)
    rows = re.findall(r"^\| (\d{3}(?: \\\*)? \| .*|`Market-Index.*)", text, re.MULTILINE)
    return [item.replace(" \\*", "").replace("**", "") for item in items + rows]


@pytest.mark.parametrize("name", PROMISES)
def test_each_promise_is_listed_with_its_tests(name: str):
    listed = PROMISES[name]
    unlisted = [one for one in promises(name) if not any(one.startswith(beginning) for beginning in listed)]
    assert unlisted == [], "list each promise with the tests that would fail without it"


def test_the_listed_tests_exist():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    defined = {
        *re.findall(r"^ *(?:def|class) (\w+)", tests, re.MULTILINE),
        *re.findall(r"^(Test\w+) = ", tests, re.MULTILINE),
    }
    assert {one for listed in PROMISES.values() for names in listed.values() for one in names} - defined == set()


@pytest.mark.parametrize(("name", "pattern", "constant"), NUMBERS)
def test_a_number_of_a_page_is_that_of_the_code(name: str, pattern: str, constant: float):
    (found,) = re.findall(pattern, page(name))
    assert float(found.replace(",", "")) == constant
