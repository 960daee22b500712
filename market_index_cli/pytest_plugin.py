"""The pytest entry point: `pytest --market-index-url=URL` checks the service at URL, each rule as one test.

pytest imports it in every run, so it imports the rest only when the option is given.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from market_index.contract import Report, Rule
    from market_index_feeds import FeedError


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("market-index")
    group.addoption(
        "--market-index-url", metavar="URL", help="Check that the service at this base URL keeps its contract."
    )
    group.addoption("--market-index-strict", action="store_true", help="Let the decisions of market-index bind, too.")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each rule."""
    if config.getoption("--market-index-url"):
        from market_index.contract import Rule  # noqa: PLC0415  # see the module docstring

        for rule in Rule:
            item: Any = _RuleItem.from_parent(session, name=f"market-index::{rule.name.lower()}")
            item.rule = rule
            items.append(item)


class _RuleItem(pytest.Item):
    """A rule: expected to fail if it only warns, skipped if it is not applicable, unless the check was stopped."""

    rule: Rule

    def runtest(self) -> None:
        from market_index.contract import Outcome  # noqa: PLC0415  # see the module docstring

        report = _report(self.config.getoption("--market-index-url"))
        if isinstance(report, Exception):
            pytest.fail(str(report), pytrace=False)
        (result,) = [one for one in report.results if one.rule is self.rule]
        outcome = result.outcome(strict=self.config.getoption("--market-index-strict"))
        text = "\n".join(map(str, [f"{self.rule.source}: {self.rule.text}", *result.faults]))
        if outcome is Outcome.FAILED:
            pytest.fail(text, pytrace=False)
        if outcome is Outcome.WARNING:
            pytest.xfail(text)
        if outcome is Outcome.NOT_APPLICABLE and report.stopped:
            pytest.fail(f"not checked: {report.stopped}", pytrace=False)
        if outcome is Outcome.NOT_APPLICABLE:
            pytest.skip("the service has nothing to check this with")

    def reportinfo(self) -> tuple[str, None, str]:
        return self.config.getoption("--market-index-url"), None, self.name


@cache
def _report(url: str) -> Report | FeedError:
    """Check a service once. Return why it cannot be read, if so."""
    from market_index_feeds import FeedError  # noqa: PLC0415  # see the module docstring
    from market_index_feeds.http import Address  # noqa: PLC0415  # see the module docstring
    from market_index_feeds.service_requests import check_service  # noqa: PLC0415  # see the module docstring

    try:
        return check_service(Address(url, {}), seconds=120)
    except FeedError as error:
        return error
