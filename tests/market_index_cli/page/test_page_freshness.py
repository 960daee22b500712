"""The JavaScript module freshness.js of the page, run by node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.market_index_cli.page import node

NODE = """
import { duration, Freshness } from "./freshness.mjs";
const { durations, visits } = given;
console.log(JSON.stringify({
  durations: durations.map(duration),
  visits: visits.map((responses) => {
    const freshness = new Freshness();
    return responses.map(([response, requestedAt, arrivedAt, elapsed]) => {
      if (response === "forget") freshness.forget();
      else if (response === "published") freshness.published(arrivedAt);
      else freshness.take(response, requestedAt, arrivedAt);
      const [state, reason] = freshness.at(arrivedAt + elapsed, true);
      const [untracked] = freshness.at(arrivedAt + elapsed, false);
      if (untracked[0] !== (state[0] === "live" ? "untracked" : state[0])) return ["of another pair", ""];
      return [state[0], reason];
    });
  }),
}));
"""

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
FRESH = {
    "age_seconds": 0.1,
    "quiet_seconds": 2.5,
    "max_quiet_seconds": None,
    "published_at": "2026-11-22T04:17:03.123Z",
}
FROM_FILE = {**FRESH, "published_at": None}
FAILED = {**FRESH, "error": ""}

LIVE = ["live", "last publication 2 s ago"]
UNKNOWN = ["unknown", "the source has no times, and nothing was published since this page was opened"]
UNREPORTED = ["unknown", "the service does not report it"]
HEALTHY_7_SECONDS_AGO = "the feed was last healthy 7.0 seconds ago"


def evaluate(*visits: list[tuple[object, int, int, int]], durations: tuple[int, ...] = (), folder: Path) -> Any:
    """Return the results of the module.

    Args:
        visits: The responses of each visit: content, time of the request, time of arrival, and the time from then until
            the state is read; in milliseconds.
        durations: Durations to be formatted, in milliseconds.
        folder: Where the module is copied to.
    """
    [found] = node.run(folder, NODE, {"durations": durations, "visits": visits})
    return found


def test_every_state_follows_from_the_last_response(tmp_path: Path):
    cases: list[tuple[object, int, list[str]]] = [
        (FRESH, 0, LIVE),
        (FRESH, 10 * SECOND, ["live", "last publication 12 s ago"]),
        (FRESH | {"quiet_seconds": 0, "age_seconds": 0}, 0, ["live", "last publication 0 s ago"]),
        (FRESH | {"quiet_seconds": 61}, 0, ["quiet", "no publication for 1 min"]),
        (FRESH | {"quiet_seconds": 59}, 2 * SECOND, ["quiet", "no publication for 1 min"]),
        (FRESH | {"quiet_seconds": 61, "max_quiet_seconds": 300}, 0, ["live", "last publication 1 min ago"]),
        (FAILED | {"quiet_seconds": 11, "max_quiet_seconds": 10}, 0, ["quiet", "no publication for 11 s"]),
        (FAILED | {"quiet_seconds": None}, 0, ["quiet", "nothing was published yet"]),
        (FRESH | {"age_seconds": 300}, 0, ["stale", "for 5 min: unreachable"]),
        (FRESH, 29 * SECOND, ["live", "last publication 31 s ago"]),
        (FRESH, 31 * SECOND, ["stale", "for 31 s: unreachable"]),
        (FAILED | {"age_seconds": 300, "quiet_seconds": 301}, 0, ["stale", "for 5 min: unreachable"]),
        (FAILED | {"age_seconds": 40, "problem": "has ended"}, 0, ["stale", "for 40 s: has ended"]),
        (FAILED | {"problem": "has ended", "error": "feed: has ended"}, 0, ["stale", "feed: has ended"]),
        (
            FAILED | {"problem": "has ended", "error": "feed: has ended", "quiet_seconds": 90},
            0,
            ["stale", "feed: has ended"],
        ),
        (FAILED | {"age_seconds": None, "error": "feed: has ended"}, 0, ["stale", "feed: has ended"]),
        (FAILED | {"age_seconds": None, "quiet_seconds": None}, 0, ["quiet", "nothing was published yet"]),
        (
            FAILED | {"error": "the feed was last healthy 7 seconds ago"},
            0,
            ["stale", "the feed was last healthy 7 seconds ago"],
        ),
        (FAILED, 0, ["stale", ""]),
    ]
    # Without a valid status, or with that of an older service, the state is unknown.
    invalid = [None, {}, {"error": "Not Found"}, {**FRESH, "quiet_seconds": "2"}]
    invalid += [{key: value for key, value in FRESH.items() if key != "quiet_seconds"}, {**FRESH, "age_seconds": "2"}]
    cases += [(response, 0, UNREPORTED) for response in invalid]
    # One process for all cases, because node takes a moment to start.
    found = evaluate(*([(response, 1000, 1000, elapsed)] for response, elapsed, _ in cases), folder=tmp_path)["visits"]
    assert found == [[expected] for *_, expected in cases]


def test_a_state_follows_from_the_responses_before_it(tmp_path: Path):
    """A source without publish times is live once a publication arrived."""
    loaded = FROM_FILE | {"quiet_seconds": 5}
    found = evaluate(
        # An age includes the time of the request.
        [(FRESH, 1000, 5000, 0)],
        [(loaded, 1000, 1010, 0), (loaded | {"quiet_seconds": 7}, 3000, 3010, 0), (FROM_FILE, 7000, 7010, 0)],
        # The publication is from before the first response arrived.
        [(loaded, 1000, 3000, 0), (FROM_FILE, 5000, 5010, 0)],
        # After a failure the service may have been restarted, and has just loaded its feed.
        [(loaded, 1000, 1010, 0), ("forget", 0, 2000, 0), (FROM_FILE, 7000, 7010, 0)],
        # A version of the stream is a publication, also where a report that was requested before arrives later.
        [(FRESH, 1000, 1010, 0), ("published", 0, 9000, 2000), (FRESH | {"quiet_seconds": 20}, 8000, 9500, 0)],
        # A missing response does not reset this.
        [(loaded, 1000, 1010, 0), (None, 2000, 2000, 0), (FROM_FILE, 7000, 7010, 0)],
        [(loaded, 1000, 1010, 0), (FROM_FILE | {"quiet_seconds": 3600}, 3_600_000, 3_600_010, 0)],
        folder=tmp_path,
    )["visits"]
    assert found == [
        [["live", "last publication 6 s ago"]],
        [UNKNOWN, UNKNOWN, LIVE],
        [UNKNOWN, UNKNOWN],
        [UNKNOWN, UNREPORTED, UNKNOWN],
        [LIVE, LIVE, ["live", "last publication 0 s ago"]],
        [UNKNOWN, UNREPORTED, LIVE],
        [UNKNOWN, ["quiet", "no publication for 1 h"]],
    ]


def test_a_duration_has_one_unit_and_is_never_negative(tmp_path: Path):
    given = (-DAY, -1, 0, 999, SECOND, 59_999, MINUTE, 59 * MINUTE, HOUR, 47 * HOUR, 2 * DAY, 400 * DAY)
    found = evaluate(durations=given, folder=tmp_path)["durations"]
    assert found == [*["0 s"] * 4, "1 s", "59 s", "1 min", "59 min", "1 h", "47 h", "2 d", "400 d"]
