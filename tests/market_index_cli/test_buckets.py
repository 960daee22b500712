"""The commands with buckets of NATS: the same commands, another URL."""

from __future__ import annotations

import json
from pathlib import Path

from market_index import wire
from market_index_feeds import open_feed
from tests.command import LINES, SAMPLE, invoke, line


def test_books_are_published_shown_and_retracted(bucket: str, lines: Path):
    done = invoke("publish", bucket)
    reason = "there is no such bucket (market-index publish or relay creates it)"
    assert (done.returncode, done.stderr) == (3, f"Error: {bucket} cannot be opened: {reason}\n")
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
    assert invoke("book", bucket, one["base"], one["quote"]).returncode == 1
    lines.write_text(line(1, 1))
    done = invoke("publish", bucket, lines, "--replace")
    assert done.returncode == 0
    assert done.stdout.startswith(f"{bucket}: 1 order book published, 12 pairs retracted, revision ")
