"""The command `market-index check`, which checks a service, or what a producer writes, against all rules."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import click
from attrs import asdict

from market_index.contract import NoResponse, Outcome, Report, Request, Response
from market_index.contract import check as check_service
from market_index_cli.console import counted
from market_index_cli.errors import EXIT_ABSENT, EXIT_FEED, Failed, feed_errors
from market_index_cli.logs import printable
from market_index_cli.options import HEADERS, SECONDS, headers_of
from market_index_feeds.checking import check_ledger, check_lines
from market_index_feeds.http import Address
from market_index_feeds.service_requests import sender
from market_index_feeds.sources import kind_of

Send: TypeAlias = Callable[[Request], Response]


@click.command
@click.argument("source", metavar="SOURCE")
@click.option(
    "--strict", is_flag=True, help="Let the decisions of this project bind, too, where the contract is silent."
)
@click.option(
    "--seconds",
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    type=SECONDS,
    help="Stop the requests to a service after a time.",
)
@HEADERS
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def check(source: str, *, strict: bool, seconds: float, headers: Path | None, as_json: bool) -> None:
    """Check a service, or the lines of a producer, against all rules.

    SOURCE is the base URL of a service with the two endpoints, in any language. Each rule is a line: passed, FAILED, a
    warning, or not applicable, with the paragraph of the contract or the number of the decision that states it. Below a
    fault are the request, what was expected, and what came. The requests only read: at most 2,000, one after the other.

    A Kupo (kupo:http://127.0.0.1:1442) is checked for its version, lag, patterns and network, and its orders and spots
    are counted.

    Or SOURCE is a file of order books, or of events of orders (orders:events.ndjson), or - (orders:-). All faults are
    listed, not only the first one, each with its line. What an earlier fault explains is no fault.

    The command ends with 1 if there is a fault, and with 3 if SOURCE cannot be read.

    \b
    Examples:
      market-index check http://127.0.0.1:8000 --strict
      market-index check orders:events.ndjson
    """
    with feed_errors():
        kind = kind_of(source)
        if kind.takes_headers:
            opening = kind.opening(source, headers=headers_of(headers))
            address = Address(opening.target, opening.headers, kind.prefix)
            try:
                with sender(address, seconds=seconds) as send:
                    if kind.takes_exchanges:
                        has_failed = _check_ledger(kind.open_source(opening), send, as_json=as_json)
                    else:
                        has_failed = _check_service(send, strict=strict, as_json=as_json)
            except NoResponse as error:
                raise Failed(EXIT_FEED, f"{address.name}: {error}") from None
        else:
            has_failed = _check_lines(source, as_json=as_json)
    if has_failed:
        sys.exit(EXIT_ABSENT)


def _check_service(send: Send, *, strict: bool, as_json: bool) -> bool:
    report = check_service(send, pause=lambda: time.sleep(0.5))
    for line in [json.dumps(_json(report, strict=strict))] if as_json else _lines(report, strict=strict):
        click.echo(line)
    return bool(report.failed(strict=strict))


def _check_ledger(source: Any, send: Send, *, as_json: bool) -> bool:
    has_failed = False
    for one in check_ledger(source, send):
        has_failed |= one.holds is False
        word = {True: "passed", False: "FAILED", None: "found"}[one.holds]
        click.echo(json.dumps(asdict(one)) if as_json else printable(f"{word:7} {one.name:24} {one.text}"))
    return has_failed


def _check_lines(source: str, *, as_json: bool) -> bool:
    faults = warnings = 0
    for one in check_lines(source):
        faults, warnings = faults + (not one.is_warning), warnings + one.is_warning
        event = " ".join(filter(None, (one.event, one.order_id)))
        text = f"{'warning: ' * one.is_warning}line {one.line}: {event}{': ' * bool(event)}{one.reason}"
        click.echo(json.dumps(asdict(one)) if as_json else printable(text))
    if not as_json:
        click.echo(f"{counted(faults, 'fault')}, {counted(warnings, 'warning')}")
    return bool(faults)


def _lines(report: Report, *, strict: bool) -> Iterator[str]:
    for one in report.results:
        outcome = one.outcome(strict=strict)
        word = outcome.value.upper() if outcome is Outcome.FAILED else outcome.value
        changes = f" ({one.changes} times undecided, because the service changed)" if one.changes else ""
        yield f"{word:15} {one.rule.source:24} {one.rule.text}{changes}"
        for fault in one.faults:
            yield f"    {fault.request}\n      expected: {fault.expected}\n      came:     {fault.came}"
        if one.failed > len(one.faults):
            yield f"    and {one.failed - len(one.faults)} more"
    failed = len(report.failed(strict=strict))
    yield f"{failed} of {len(report.results)} rules failed, by {report.requests} requests"
    if report.stopped:
        yield f"not all was checked: {report.stopped}"


def _json(report: Report, *, strict: bool) -> dict[str, Any]:
    rules = [
        {
            "rule": one.rule.name.lower(),
            "source": one.rule.source,
            "text": one.rule.text,
            "outcome": one.outcome(strict=strict).value,
            "checked": one.checked,
            "failed": one.failed,
            "undecided": one.changes,
            "faults": [
                {"request": str(fault.request), "expected": fault.expected, "came": fault.came} for fault in one.faults
            ],
        }
        for one in report.results
    ]
    return {"rules": rules, "requests": report.requests, "stopped": report.stopped}
