"""Only hosts and origins that browsers send are accepted."""

from __future__ import annotations

import pytest

from market_index_cli.server.origins import read_host, read_origin


@pytest.mark.parametrize(
    "host",
    ["page.example", "localhost", "127.0.0.1", "xn--nxasmq6b.example", "a_b-c.example", "[::1]", "[2001:db8::1]"],
)
def test_a_host_is_accepted_in_either_letter_case(host: str):
    assert read_host(host) == read_host(host.upper()) == host


@pytest.mark.parametrize("text", ["[0:0:0:0:0:0:0:1]", "[0:0::1]", "[0000::0001]"])
def test_an_address_is_shortened_as_browsers_do(text: str):
    assert read_host(text) == "[::1]"


NO_HOSTS = (
    "page.example:8000",
    "[::1]:8000",
    "::1",
    "[::1",
    "::1]",
    "[page.example]",
    "[]",
    "[:::]",
    "[1::2::3]",
    "[fe80::1%eth0]",
    "http://page.example",
    "page.example/",
    "me@page.example",
    "pagé.example",
    "page .example",
    "page.example\n",
    "*",
    ".",
    "",
    "a..b",
)


@pytest.mark.parametrize("text", NO_HOSTS)
def test_a_text_that_browsers_do_not_send_as_a_host_is_rejected(text: str):
    with pytest.raises(ValueError) as rejected:
        read_host(text)
    requirement = "a host must be a name or an address without a port, such as example.com or [::1]"
    assert str(rejected.value) == f"{requirement}, got {text!r}"


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "http://localhost",
        "https://page.example:8443",
        "http://page.example:443",
        "https://page.example:4430",
        "http://[::1]:3000",
        "https://xn--nxasmq6b.example",
    ],
)
def test_an_origin_as_browsers_send_it_is_accepted(origin: str):
    assert read_origin(origin) == origin


@pytest.mark.parametrize(
    "text",
    [
        "https://page.example/",
        "https://page.example/app?x=1",
        "HTTPS://page.example",
        "https://Page.example",
        "https://page.example:443",
        "http://page.example:80",
        "https://page.example:port",
        "https://page.example:0443",
        "https://page.example:0",
        "https://page.example:99999",
        "http://[0:0::1]",
        "https://page.example:",
        "https://page.example\n",
        "https://me:secret@page.example",
        "https://page.example;b",
        "https://a.example,https://b.example",
        "page.example",
        "ftp://page.example",
        "null",
        *(f"https://{host}" for host in NO_HOSTS if ":8000" not in host),
    ],
)
def test_a_text_that_browsers_do_not_send_as_an_origin_is_rejected(text: str):
    with pytest.raises(ValueError) as rejected:
        read_origin(text)
    requirement = "an origin must be as browsers send it, such as https://example.com"
    assert str(rejected.value) == f"{requirement}, got {text!r}"
