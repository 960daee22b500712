"""Origins of web pages, as browsers send them."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from market_index.errors import safe_repr
from market_index_cli.server.hosts import read_host

ANY_ORIGIN: Final = "*"

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def read_origin(text: str) -> str:
    """Return the origin: a scheme, a host and an optional port as a browser sends them, or `*` for any.

    >>> read_origin("https://example.com"), read_origin("http://127.0.0.1:3000")
    ('https://example.com', 'http://127.0.0.1:3000')
    >>> read_origin("https://example.com/")
    Traceback (most recent call last):
    ValueError: 'https://example.com/' is not an origin: say https://example.com

    Raises:
        ValueError: no browser sends this text as an origin, so it would never match.
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
        raise ValueError(f"{safe_repr(text)} is not an origin, such as https://example.com")
    origin = f"{scheme}://{host}{'' if port in {None, _DEFAULT_PORTS[scheme]} else f':{port}'}"
    if text != origin:
        raise ValueError(f"{safe_repr(text)} is not an origin: say {origin}")
    return origin
