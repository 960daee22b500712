"""Validates hosts: reads them in the form that browsers send in the Host field of a request."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final

from market_index.errors import safe_repr

_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
_HOST_AND_PORT: Final = re.compile(r"(\[.*\]|[^:]*)(?::[0-9]*)?").fullmatch


def read_host(text: str) -> str:
    """Return the host as browsers send it: a name in lower case or an address, with brackets for IPv6.

    >>> read_host("Example.com"), read_host("127.0.0.1"), read_host("[0:0::1]")
    ('example.com', '127.0.0.1', '[::1]')
    >>> read_host("example.com:8000")
    Traceback (most recent call last):
    ValueError: a host must be a name or an address without a port, such as example.com or [::1], got 'example.com:8000'

    Raises:
        ValueError: browsers do not send this text as a host, so it would never match.
    """
    host = text.lower()
    if set(host) <= _NAME_CHARACTERS and "" not in host.split("."):
        return host
    # Browsers do not send a zone, such as eth0 in fe80::1%eth0.
    if host.startswith("[") and host.endswith("]") and "%" not in host:
        try:
            return f"[{IPv6Address(host[1:-1])}]"
        except ValueError:
            pass
    examples = "such as example.com or [::1]"
    raise ValueError(f"a host must be a name or an address without a port, {examples}, got {safe_repr(text)}")


def host_of(field: str) -> str | None:
    """Return the host of a Host field without its port; None if the field is not a host with an optional port."""
    parts = _HOST_AND_PORT(field)
    try:
        return None if parts is None else read_host(parts[1])
    except ValueError:
        return None
