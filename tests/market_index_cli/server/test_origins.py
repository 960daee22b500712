"""Only origins as browsers send them are accepted."""

from __future__ import annotations

import pytest

from market_index_cli.server.origins import read_origin


@pytest.mark.parametrize(
    "origin",
    ["*", "http://localhost", "https://page.example:8443", "http://[::1]:3000", "https://xn--nxasmq6b.example"],
)
def test_an_origin_as_browsers_send_it_is_accepted(origin: str):
    assert read_origin(origin) == origin


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("https://page.example/", "https://page.example"),
        ("https://page.example/app?x=1", "https://page.example"),
        ("HTTPS://Page.example", "https://page.example"),
        ("https://page.example:443", "https://page.example"),
        ("http://page.example:80", "http://page.example"),
        ("https://me:secret@page.example", "https://page.example"),
        ("http://[0::1]:3000", "http://[::1]:3000"),
        *(
            (text, "such as https://example.com")
            for text in (
                "page.example",
                "ftp://page.example",
                "https://",
                "https://page.example:port",
                "https://[::1",
                "null",
                "https://*.page.example",
                "https://pagé.example",
                "https://page .example",
                "https://page.example;b",
                "https://%70age.example",
                "https://a.example,https://b.example",
                "https://.",
                "",
            )
        ),
    ],
)
def test_any_other_text_is_rejected_with_a_suggestion(text: str, suggestion: str):
    with pytest.raises(ValueError) as rejected:
        read_origin(text)
    assert str(rejected.value) == f"an origin must be as browsers send it, {suggestion}, got {text!r}"
