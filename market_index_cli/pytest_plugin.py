"""The pytest entry point: `pytest --market-index-url=URL` checks the service at URL, each rule as one test.

pytest imports it in every run, so it imports the rest only when the option is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from market_index.contract import Result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("market-index")
    group.addoption(
        "--market-index-url", metavar="URL", help="Check that the service at this base URL keeps its contract."
    )
    group.addoption("--market-index-strict", action="store_true", help="Let the decisions of market-index bind, too.")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the service, and add a test for each rule."""
    if not (url := config.getoption("--market-index-url")):
        return
    from market_index_feeds import FeedError  # noqa: PLC0415  # see the module docstring
    from market_index_feeds.http import Address  # noqa: PLC0415  # see the module docstring
    from market_index_feeds.service_requests import check_service  # noqa: PLC0415  # see the module docstring

    try:
        report = check_service(Address(url, {}), seconds=120)
    except FeedError as error:
        found = {"service": ("failed", str(error))}
    else:
        strict = config.getoption("--market-index-strict")
        found = {one.rule.name.lower(): _outcome(one, report.stopped, strict=strict) for one in report.results}
    for name, (outcome, text) in found.items():
        item: Any = _RuleItem.from_parent(session, name=f"market-index::{name}")
        item.outcome, item.text = outcome, text
        items.append(item)


def _outcome(result: Result, stopped: str | None, *, strict: bool) -> tuple[str, str]:
    """Return the outcome of a rule, and what pytest says about it. What a stopped check has not reached fails."""
    outcome = result.outcome(strict=strict).value
    if outcome == "not applicable":
        nothing = outcome, "the service has nothing to check this with"
        return ("failed", f"not checked: {stopped}") if stopped else nothing
    return outcome, "\n".join(map(str, [f"{result.rule.source}: {result.rule.text}", *result.faults]))


class _RuleItem(pytest.Item):
    outcome: str
    text: str

    def runtest(self) -> None:
        if self.outcome == "failed":
            pytest.fail(self.text, pytrace=False)
        if self.outcome == "warning":
            pytest.xfail(self.text)
        if self.outcome == "not applicable":
            pytest.skip(self.text)

    def reportinfo(self) -> tuple[str, None, str]:
        return self.config.getoption("--market-index-url"), None, self.name
