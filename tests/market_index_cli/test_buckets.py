"""The commands with buckets of NATS: the same commands, another URL."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from market_index import wire
from market_index_feeds import open_feed, open_store
from tests import nats
from tests.command import LINES, SAMPLE, invoke, line, running
from tests.feeds.made_up import book, pair, spots
from tests.waiting import eventually


def test_books_are_published_shown_and_retracted(bucket: str, lines: Path):
    done = invoke("publish", bucket, SAMPLE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{bucket}: 13 order books published, revision ")
    listed = wire.pair_list_from_json(invoke("pairs", bucket, "--json").stdout.encode())
    assert listed == open_feed(SAMPLE).read().pair_list()
    one = json.loads(LINES[0])
    assert json.loads(invoke("book", bucket, one["base"], one["quote"], "--json").stdout) == one
    done = invoke("retract", bucket, one["base"], one["quote"])
    assert done.returncode == 0
    assert done.stdout.startswith(f"{bucket}: {one['base']}/{one['quote']} retracted, revision ")
    assert invoke("retract", bucket, one["base"], one["quote"]).returncode == 1
    assert invoke("book", bucket, one["base"], one["quote"]).returncode == 1
    lines.write_text(line(1, 1))
    done = invoke("publish", bucket, lines, "--replace")
    assert done.returncode == 0
    assert done.stdout.startswith(f"{bucket}: 1 order book published, 12 pairs retracted, revision ")


@pytest.mark.thorough
def test_a_bucket_is_served_by_many_and_its_changes_go_live(bucket: str, tmp_path: Path):
    invoke("publish", bucket, SAMPLE)
    with running(tmp_path, bucket, "--port", 0, "--workers", 2) as command:
        service = command.service
        assert f"{bucket}: 13 pairs, 0 records rejected\n" in command.stderr
        with open_store(bucket) as store:
            store.publish(book(1, 1))
        eventually(lambda: all(len(service.pair_list().json["pairs"]) == 14 for _ in range(10)))
        assert command.end() == 0


@pytest.mark.thorough
def test_the_last_books_are_served_while_the_server_of_the_bucket_is_down(tmp_path: Path):
    with nats.served(tmp_path / "own") as server:
        target = f"{server.url}/books"
        invoke("publish", target, SAMPLE)
        with running(tmp_path, target, "--port", 0, "--max-stale", 1) as command:
            service = command.service
            health = service.request("/healthz").json
            assert health["pairs"] == 13
            eventually(lambda: service.request("/healthz").status == 200)
            server.kill()
            eventually(lambda: service.request("/healthz").status == 503)
            assert len(service.pair_list().json["pairs"]) == 13
            server.start()
            server.wait()
            with open_store(target) as store:
                store.publish(book(1, 1))
            eventually(lambda: len(service.pair_list().json["pairs"]) == 14)
            eventually(lambda: service.request("/healthz").status == 200)
            assert "cannot be read: " in command.stderr
            assert "; keeping its 13 pairs" in command.stderr
            assert command.stderr.count("recovered after") == 1
            assert "Traceback" not in command.stderr
            assert command.end() == 0


def test_a_book_that_is_too_large_is_named_and_does_not_stop_others(tmp_path: Path, lines: Path):
    with nats.served(tmp_path / "small", "max_payload: 16384") as server:
        target = f"{server.url}/books"
        large = wire.order_book_to_json(nats.noise(1)).decode()
        lines.write_text(f"{line(1, 1)}{large}\n{line(2, 2)}")
        done = invoke("publish", target, lines)
        assert done.returncode == 5
        assert done.stdout.startswith(f"{target}: 2 order books published, revision ")
        assert f"does not accept the book of {pair(1001)}: it must have at most" in done.stderr
        lines.write_text(f"{line(2, 2)}{large}\n")
        done = invoke("publish", target, lines, "--replace")
        assert done.returncode == 5
        assert done.stdout.startswith(f"{target}: 0 order books published, 1 pair retracted, revision ")
        assert spots(open_feed(target).read()) == {2: "2"}


def test_an_unreachable_bucket_is_one_line_without_credentials():
    nowhere = f"127.0.0.1:{nats.spare_port()}/books"
    done = invoke("pairs", f"nats://me:s3cret@{nowhere}")
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(f"Error: nats://{nowhere} cannot be read: .+\n", done.stderr)
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize(("command", "failed"), [("pairs", "read"), ("publish", "opened")])
def test_a_bucket_that_does_not_exist_is_one_line(bucket: str, command: str, failed: str):
    done = invoke(command, bucket)
    assert (done.returncode, done.stderr) == (3, f"Error: {bucket} cannot be {failed}: there is no such bucket\n")
