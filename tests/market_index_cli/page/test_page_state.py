"""The state of the page and how old it is: the JavaScript module state.js, run by node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.market_index_cli.page import node

NODE = """
import { duration, freshness, INITIAL, reduce } from "./state.mjs";
const book = (source) => source && { spot: null, bids: [], asks: [], ...source };
const revived = (action) => ({ ...action, source: book(action.source) });
console.log(JSON.stringify({
  durations: given.durations.map(duration),
  visits: given.visits.map((actions) => {
    let state = INITIAL;
    return actions.map((action) => {
      state = reduce(state, "source" in action ? revived(action) : action);
      const { name, reason, warning, isOld } = freshness(state);
      const { book, order, isCurrent } = state;
      const shown = book && [book.isTracked, book.isStreamed, book.move, book.value?.spot?.price ?? null];
      return { name, reason, warning, isOld, book: shown, text: order.text, isCurrent };
    });
  }),
}));
"""

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
FRESH = {"age_seconds": 0.1, "quiet_seconds": 2.5, "published_at": "2026-11-22T04:17:03.123Z", "problem": None}
PAIR = {"base": "A", "quote": "B", "key": "A/B"}
OTHER = {"base": "C", "quote": "D", "key": "C/D"}
OLD = "The service reports that its books are not current."


def shown(at: int = 0) -> dict[str, Any]:
    return {"type": "shown", "isVisible": True, "at": at}


def linked(pair: Any = PAIR, step: str = "") -> dict[str, Any]:
    return {"type": "linked", "pair": pair, "step": step, "at": 0}


def answered(name: str = "content", error: str | None = None, at: int = 0) -> dict[str, Any]:
    return {"type": "answered", "name": name, "error": error, "at": at}


def reported(report: object = FRESH, at: int = 0, requested_at: int = 0) -> dict[str, Any]:
    return {"type": "reported", "report": report, "requestedAt": requested_at, "at": at}


def received(source: object, at: int = 0, **more: object) -> dict[str, Any]:
    return {"type": "received", "key": "A/B", "source": source, "isStreamed": True, "at": at} | more


def ticked(at: int) -> dict[str, Any]:
    return {"type": "ticked", "at": at}


def evaluate(folder: Path, *visits: list[dict[str, Any]], durations: tuple[int, ...] = ()) -> Any:
    """Return what is shown after each action of each visit."""
    [found] = node.run(folder, NODE, {"durations": durations, "visits": visits})
    return found


def last(found: Any, *names: str) -> list[list[object]]:
    """Return these values at the end of each visit."""
    return [[visit[-1][name] for name in names] for visit in found["visits"]]


def test_the_service_decides_whether_its_books_are_current(tmp_path: Path):
    """A 200 of /healthz is live however long nothing was published: the operator has set no limit."""
    start = [shown(), linked(), received({"spot": "4"}), answered()]
    cases: list[tuple[object, list[object]]] = [
        (FRESH, ["live", "last publication 2 s ago", "", False]),
        (FRESH | {"quiet_seconds": 3600}, ["live", "last publication 1 h ago", "", False]),
        (FRESH | {"published_at": None}, ["live", "time of publication not known", "", False]),
        (FRESH | {"problem": "cannot be read"}, ["live", "last publication 2 s ago; cannot be read", "", False]),
        (FRESH | {"error": "feed: has ended"}, ["stale", "feed: has ended", OLD, True]),
        (FRESH | {"error": "too quiet", "quiet_seconds": None}, ["stale", "too quiet", OLD, True]),
        (None, ["unknown", "the service does not report it", "", False]),
    ]
    found = evaluate(tmp_path, *([*start, reported(report)] for report, _ in cases))
    assert last(found, "name", "reason", "warning", "isOld") == [expected for _, expected in cases]


def test_the_age_of_a_publication_grows_until_the_stream_brings_the_next(tmp_path: Path):
    visit = [
        *(shown(), linked(), received({"spot": "4"}), answered(), reported(at=1500, requested_at=1000)),
        ticked(5000),
        received({"spot": "5"}, at=9000, isFirst=False),
        ticked(11_000),
        reported(FRESH | {"quiet_seconds": 20}, at=12_000, requested_at=8000),
        # A restarted service has loaded its feed again.
        *(answered("health", "gone", at=13_000), answered("health", at=13_500)),
    ]
    reasons = [one["reason"] for one in evaluate(tmp_path, visit)["visits"][0]]
    ages = ["3 s", "6 s", "0 s", "2 s", "3 s", "25 s", "25 s"]
    assert reasons[4:] == [f"last publication {age} ago" for age in ages]


def test_a_service_that_is_silent_or_fails_does_not_answer_and_all_is_old(tmp_path: Path):
    live = [shown(), linked(), received({"spot": "4"}, isStreamed=False), answered(), reported()]
    found = evaluate(
        tmp_path,
        [*live, ticked(5000)],
        [*live, ticked(5001)],
        [*live, reported(at=4000), ticked(5001)],
        [*live, answered("health", "It has gone.", at=10)],
        [*live, answered("content", "It has gone.", at=10), reported(at=20)],
        [*live, answered("content", "It has gone.", at=10), answered(at=20), reported(at=20)],
        # The client notices the silence of a stream, and the next requests show why it is lost.
        [*live, received({"spot": "5"}, at=10), answered("content", "It has gone.", at=20), ticked(60_000)],
        [*live, received({"spot": "5"}, at=10), {"type": "lost", "at": 5010}, ticked(5020)],
        [shown(), ticked(5000)],
        [shown(), ticked(5001)],
        [*live, shown(at=9000)],
    )
    names = ["live", "lost", "live", "lost", "lost", "live", "live", "lost", "connecting", "lost", "connecting"]
    assert last(found, "name", "isOld") == [[name, name != "live"] for name in names]
    warnings = [visit[-1]["warning"] for visit in found["visits"]]
    assert warnings[1].startswith("The service is silent. No response since ")
    assert warnings[3].startswith("It has gone. No response since ")


def test_a_book_follows_its_pair_and_a_version_is_newer_than_a_response(tmp_path: Path):
    four, five = {"spot": "4"}, {"spot": "5"}
    found = evaluate(
        tmp_path,
        [linked(), received(four), received(five)],
        [linked(), received(five), received(four)],
        [linked(), received(four), received(five), received(five | {"bids": []})],
        [linked(), received(five), received(four, isStreamed=False)],
        [linked(), received(four), received(None)],
        [linked(), received(four), linked(OTHER), received(five)],
        [linked(), received(four), linked(PAIR, "0.1")],
        [linked(), received(four), linked(None)],
        [linked(), received(four), linked({"base": None, "quote": None, "key": None})],
    )
    assert last(found, "book") == [
        *([[True, True, 1, "5"]], [[True, True, -1, "4"]], [[True, True, 1, "5"]], [[True, True, 0, "5"]]),
        *([[False, True, 0, "4"]], [[None, False, 0, None]], [[True, True, 0, "4"]], [None], [None]),
    ]


def test_an_amount_is_not_that_of_another_token(tmp_path: Path):
    typed = [linked(), {"type": "ordered", "text": "1.5", "at": 0}]
    found = evaluate(
        tmp_path,
        typed,
        [*typed, linked(PAIR, "0.1"), received({"spot": "5"})],
        [*typed, {"type": "chosen", "sort": "spread", "at": 0}],
        [*typed, linked(OTHER)],
    )
    assert last(found, "text") == [["1.5"], ["1.5"], ["1.5"], [""]]


def test_a_duration_has_one_unit_and_is_never_negative(tmp_path: Path):
    given = (-DAY, -1, 0, 999, SECOND, 59_999, MINUTE, 59 * MINUTE, HOUR, 47 * HOUR, 2 * DAY, 400 * DAY)
    found = evaluate(tmp_path, durations=given)["durations"]
    assert found == [*["0 s"] * 4, "1 s", "59 s", "1 min", "59 min", "1 h", "47 h", "2 d", "400 d"]
