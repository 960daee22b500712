"""The command `market-index check`, which checks a service, or what a producer writes, against all rules."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any, TypeAlias

import click
from attrs import asdict
from click.core import ParameterSource

from market_index_cli.console import counted
from market_index_cli.errors import EXIT_ABSENT, feed_errors
from market_index_cli.logs import printable
from market_index_cli.options import HEADERS, SECONDS, headers_of
from market_index_feeds import FeedError
from market_index_feeds.checking import check_lines
from market_index_feeds.http import Address
from market_index_feeds.service_requests import check_service, sender
from market_index_feeds.sources import kind_of

# Whether it is a fault, its JSON, and its text. What has no JSON is only printed as text.
Found: TypeAlias = Iterator[tuple[bool, object, str]]


@click.command
@click.argument("source", metavar="SOURCE")
@click.option("--strict", is_flag=True, help="Let the decisions of this project bind, where the contract is silent.")
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
        if not kind.takes_headers:
            _reject_options("strict", "seconds", "headers")
            found = _check_lines(source)
        else:
            opening = kind.opening(source, headers=headers_of(headers))
            address = Address(opening.target, opening.headers, kind.prefix)
            if kind.takes_exchanges:
                _reject_options("strict")
                with kind.requirements(source, FeedError):
                    found = _check_ledger(kind.open_source(opening), address, seconds)
            else:
                found = _check_service(address, seconds, strict=strict)
        has_failed = False
        for is_fault, fields, text in found:
            has_failed |= is_fault
            if not as_json:
                click.echo("\n".join(map(printable, text.split("\n"))))
            elif fields is not None:
                click.echo(json.dumps(fields))
    if has_failed:
        sys.exit(EXIT_ABSENT)


def _reject_options(*names: str) -> None:
    """Reject options that were typed, and have no effect on this kind of source."""
    for name in names:
        if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} has no effect on such a SOURCE")


def _check_service(address: Address, seconds: float, *, strict: bool) -> Found:
    report = check_service(address, seconds=seconds)
    rules, texts = list[dict[str, Any]](), list[str]()
    for one in report.results:
        rule, outcome = one.rule, one.outcome(strict=strict).value
        about = {"rule": rule.name.lower(), "source": rule.source, "text": rule.text, "outcome": outcome}
        faults = [asdict(fault) | {"request": str(fault.request)} for fault in one.faults]
        counts = {"checked": one.checked, "failed": one.failed, "undecided": one.undecided}
        rules.append({**about, **counts, "faults": faults})
        undecided = f" ({one.undecided} times undecided, because the service changed)" if one.undecided else ""
        texts.append(f"{outcome.replace('failed', 'FAILED'):15} {rule.source:24} {rule.text}{undecided}")
        texts += [indent(str(fault), "    ") for fault in one.faults]
        if one.failed > len(one.faults):
            texts.append(f"    and {one.failed - len(one.faults)} more")
    failed = len(report.failed(strict=strict))
    texts.append(f"{failed} of {len(rules)} rules failed, by {report.requests} requests")
    if report.stopped:
        texts.append(f"not all was checked: {report.stopped}")
    yield bool(failed), {"rules": rules, "requests": report.requests, "stopped": report.stopped}, "\n".join(texts)


def _check_ledger(source: Any, address: Address, seconds: float) -> Found:
    from market_index_feeds.ledger.checking import check_ledger  # noqa: PLC0415  # it needs the extra `ledger`

    with sender(address, seconds=seconds) as send:
        for one in check_ledger(source, send):
            word = {True: "passed", False: "FAILED", None: "found"}[one.holds]
            yield one.holds is False, asdict(one), f"{word:7} {one.name:24} {one.text}"


def _check_lines(source: str) -> Found:
    faults = warnings = 0
    for one in check_lines(source):
        faults, warnings = faults + (not one.is_warning), warnings + one.is_warning
        event = " ".join(filter(None, (one.event, one.order_id)))
        text = f"{'warning: ' * one.is_warning}line {one.line}: {event}{': ' * bool(event)}{one.reason}"
        yield not one.is_warning, asdict(one), text
    yield False, None, f"{counted(faults, 'fault')}, {counted(warnings, 'warning')}"
