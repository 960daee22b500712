"""Logging of the commands that run until a signal ends them."""

from __future__ import annotations

import logging

import pytest

from market_index_cli.console import OncePerSecond


def test_a_message_is_logged_once_per_second(caplog: pytest.LogCaptureFixture):
    now = 100.0
    once = OncePerSecond(lambda: now)
    logger = logging.getLogger("market_index_cli.test")
    logger.addFilter(once)
    try:
        for second in (100.0, 100.5, 100.9, 101.0):
            now = second
            logger.warning("%s connections are open", second)
            logger.warning("another message")
    finally:
        logger.removeFilter(once)
    assert caplog.messages == [
        "100.0 connections are open", "another message", "101.0 connections are open", "another message"
    ]  # fmt: skip
