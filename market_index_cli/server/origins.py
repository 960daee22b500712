"""Validates the hosts and the origins of options: a text that browsers never send would never match a request."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from market_index.errors import safe_repr

_NAME: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.ASCII).fullmatch
_IPV6: Final = re.compile(r"\[([0-9a-f:.]+)\]").fullmatch
_ORIGIN: Final = re.compile(r"(https?)://(.+?)(?::([1-9][0-9]{0,4}))?", re.ASCII).fullmatch
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_MAX_PORT: Final = 65535


def read_host(text: str) -> str:
    """Return the host as browsers send it: a name in lower case, or an address, that of IPv6 shortened and in brackets.

    >>> read_host("Example.com"), read_host("127.0.0.1"), read_host("[0:0::1]")
    ('example.com', '127.0.0.1', '[::1]')
    >>> read_host("example.com:8000")
    Traceback (most recent call last):
    ValueError: a host must be a name or an address without a port, such as example.com or [::1], got 'example.com:8000'

    Raises:
        ValueError: it is neither.
    """
    host = text.lower()
    if _NAME(host):
        return host
    if found := _IPV6(host):
        with suppress(AddressValueError):
            return f"[{IPv6Address(found[1])}]"
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
    if text == "*":
        return text
    if found := _ORIGIN(text):
        scheme, host, port = found.groups()
        with suppress(ValueError):
            if read_host(host) == host and port != _DEFAULT_PORTS[scheme] and int(port or 0) <= _MAX_PORT:
                return text
    raise ValueError(f"an origin must be as browsers send it, such as https://example.com, got {safe_repr(text)}")
