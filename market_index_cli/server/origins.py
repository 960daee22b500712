"""Validates origins of web pages: only the text that browsers send is accepted."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from market_index.errors import safe_repr
from market_index_cli.server.hosts import read_host

ANY_ORIGIN: Final = "*"

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def read_origin(text: str) -> str:
    """Return the origin if it is `*` or as browsers send it: a scheme, a host and an optional port.

    >>> read_origin("https://example.com"), read_origin("http://127.0.0.1:3000")
    ('https://example.com', 'http://127.0.0.1:3000')
    >>> read_origin("https://example.com/")
    Traceback (most recent call last):
    ValueError: an origin must be as browsers send it, https://example.com, got 'https://example.com/'

    Raises:
        ValueError: browsers do not send this text as an origin, so it would never match.
    """
    if text == ANY_ORIGIN:
        return text
    try:
        parts = urlsplit(text)
        name, scheme, port = parts.hostname or "", parts.scheme, parts.port
        host = read_host(f"[{name}]" if ":" in name else name)
    except ValueError:
        scheme, host, port = "", "", None
    if scheme not in _DEFAULT_PORTS:
        raise ValueError(f"an origin must be as browsers send it, such as https://example.com, got {safe_repr(text)}")
    origin = f"{scheme}://{host}{'' if port in {None, _DEFAULT_PORTS[scheme]} else f':{port}'}"
    if text != origin:
        raise ValueError(f"an origin must be as browsers send it, {origin}, got {safe_repr(text)}")
    return origin
