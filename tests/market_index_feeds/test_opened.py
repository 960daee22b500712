"""Names in messages are on one line, without credentials."""

from __future__ import annotations

import pytest

from market_index_feeds.opened import shown_name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("market.db", "market.db"),
        ("me@home.db", "me@home.db"),
        ("nats://user:pass@host:4222/books", "nats://host:4222/books"),
        ("nats://user:p/a?s@s@host/books?token=x", "nats://host/books"),
        ("http://host/?secret", "http://host/"),
        ("a\nb", r"'a\nb'"),
    ],
)
def test_a_name_is_shown_on_one_line_without_credentials(name: str, shown: str):
    assert shown_name(name) == shown
