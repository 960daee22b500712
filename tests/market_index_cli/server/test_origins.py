"""Origins of web pages: those that browsers send, and no others."""

from __future__ import annotations

import pytest

from market_index_cli.server.origins import read_origin


@pytest.mark.parametrize(
    "origin",
    ["*", "http://localhost", "https://page.example:8443", "http://[::1]:3000", "https://xn--nxasmq6b.example"],
)
def test_an_origin_is_taken_as_a_browser_sends_it(origin: str):
    assert read_origin(origin) == origin


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("https://page.example/", "say https://page.example"),
        ("https://page.example/app?x=1", "say https://page.example"),
        ("HTTPS://Page.example", "say https://page.example"),
        ("https://page.example:443", "say https://page.example"),
        ("http://page.example:80", "say http://page.example"),
        ("https://me:secret@page.example", "say https://page.example"),
        ("page.example", "is not an origin, such as https://example.com"),
        ("ftp://page.example", "is not an origin, such as"),
        ("https://", "is not an origin, such as"),
        ("http://[0::1]:3000", "say http://[::1]:3000"),
        ("https://page.example:port", "is not an origin, such as"),
        ("https://[::1", "is not an origin, such as"),
        ("null", "is not an origin, such as"),
        ("https://*.page.example", "is not an origin, such as"),
        ("https://pagé.example", "is not an origin, such as"),
        ("https://page .example", "is not an origin, such as"),
        ("https://page.example;b", "is not an origin, such as"),
        ("https://%70age.example", "is not an origin, such as"),
        ("https://a.example,https://b.example", "is not an origin, such as"),
        ("https://.", "is not an origin, such as"),
        ("", "is not an origin, such as"),
    ],
)
def test_what_no_browser_sends_is_refused(text: str, message: str):
    with pytest.raises(ValueError) as refused:
        read_origin(text)
    assert message in str(refused.value)
