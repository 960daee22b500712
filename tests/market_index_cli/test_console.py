"""Logging of the commands that run until a signal ends them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from market_index_cli.console import OncePerSecond


@contextmanager
def filtered(once: OncePerSecond) -> Iterator[logging.Logger]:
    logger = logging.getLogger("market_index_cli.test")
    logger.addFilter(once)
    try:
        yield logger
    finally:
        logger.removeFilter(once)


def test_a_message_is_logged_once_per_second(caplog: pytest.LogCaptureFixture):
    now = 100.0
    with filtered(OncePerSecond(lambda: now)) as logger:
        for second in (100.0, 100.5, 100.9, 101.0):
            now = second
            logger.warning("%s connections are open", second)
            logger.warning("another message")
    assert caplog.messages == [
        "100.0 connections are open", "another message", "101.0 connections are open", "another message"
    ]  # fmt: skip


def test_every_traceback_is_logged(caplog: pytest.LogCaptureFixture):
    with filtered(OncePerSecond(lambda: 100.0)) as logger:
        for error in (ValueError("one"), KeyError("two")):
            logger.error("Exception in ASGI application", exc_info=error)
    assert "ValueError: one" in caplog.text
    assert "KeyError: 'two'" in caplog.text
