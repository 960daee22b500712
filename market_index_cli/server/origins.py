"""Validates the hosts and the origins of options: a text that browsers never send would never match a request."""

from __future__ import annotations

import re
from typing import Final

from market_index.errors import safe_repr

_HOST: Final = r"(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])"
_ORIGIN: Final = rf"http://{_HOST}(?!:80$)(?::[0-9]+)?|https://{_HOST}(?!:443$)(?::[0-9]+)?"


def read_host(text: str) -> str:
    """Return the host in lower case: a name, or an address, with brackets for IPv6.

    >>> read_host("Example.com"), read_host("127.0.0.1"), read_host("[::1]")
    ('example.com', '127.0.0.1', '[::1]')
    >>> read_host("example.com:8000")
    Traceback (most recent call last):
    ValueError: a host must be a name or an address without a port, such as example.com or [::1], got 'example.com:8000'

    Raises:
        ValueError: it is neither.
    """
    host = text.lower()
    if re.fullmatch(_HOST, host):
        return host
    examples = "such as example.com or [::1]"
    raise ValueError(f"a host must be a name or an address without a port, {examples}, got {safe_repr(text)}")


def read_origin(text: str) -> str:
    """Return the origin if it is `*`, or a scheme, a host in lower case, and a port unless it is the scheme's default.

    >>> read_origin("https://example.com"), read_origin("http://127.0.0.1:3000")
    ('https://example.com', 'http://127.0.0.1:3000')
    >>> read_origin("https://example.com/")
    Traceback (most recent call last):
    ValueError: an origin must be as browsers send it, such as https://example.com, got 'https://example.com/'

    Raises:
        ValueError: browsers do not send this text as an origin.
    """
    if text == "*" or re.fullmatch(_ORIGIN, text):
        return text
    raise ValueError(f"an origin must be as browsers send it, such as https://example.com, got {safe_repr(text)}")
