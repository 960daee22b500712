"""Only hosts as browsers send them are accepted."""

from __future__ import annotations

import pytest

from market_index_cli.server.hosts import host_of, read_host


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("page.example", "page.example"),
        ("Page.Example", "page.example"),
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("xn--nxasmq6b.example", "xn--nxasmq6b.example"),
        ("[::1]", "[::1]"),
        ("[0:0::0001]", "[::1]"),
        ("[2001:DB8::1]", "[2001:db8::1]"),
    ],
)
def test_a_host_is_normalized_as_browsers_send_it(text: str, host: str):
    assert read_host(text) == host
    assert host_of(text) == host_of(f"{text}:8000") == host_of(f"{text}:") == host


@pytest.mark.parametrize(
    "text",
    [
        *(
            "page.example:8000",
            "[::1]:8000",
            "::1",
            "::1:8000",
            "[::1",
            "::1]",
            "[page.example]",
            "[]",
            "[fe80::1%eth0]",
        ),
        *(
            "http://page.example",
            "page.example/",
            "me@page.example",
            "pagé.example",
            "page .example",
            "*",
            ".",
            "",
            "a..b",
        ),
    ],
)
def test_a_text_that_browsers_do_not_send_as_a_host_is_rejected(text: str):
    with pytest.raises(ValueError) as rejected:
        read_host(text)
    requirement = "a host must be a name or an address without a port, such as example.com or [::1]"
    assert str(rejected.value) == f"{requirement}, got {text!r}"


@pytest.mark.parametrize(
    "field",
    [
        "",
        ":80",
        "page.example:80:81",
        "page.example:http",
        "me@page.example",
        "page.example/",
        "[::1]80",
        "[::1",
        "::1",
    ],
)
def test_a_field_that_is_not_a_host_with_an_optional_port_has_no_host(field: str):
    assert host_of(field) is None
