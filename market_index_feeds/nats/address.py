"""The URL of a bucket: its servers, its name and the credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from attrs import field, frozen

from market_index.errors import safe_repr
from market_index_feeds.names import shown_name

_URL: Final = re.compile(r"([^:/?#]+)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.DOTALL).fullmatch
"""Matches a URL (RFC 3986, appendix B). `urlsplit` of Python 3.14 rejects a list of hosts with an IPv6 address."""
_BUCKET: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII).fullmatch
_PORT: Final = 4222


@frozen
class BucketAddress:
    """A bucket, the servers to connect to first, and the credentials, which no message shows.

    `shown` is the URL as messages show it. `certificates` are files in PEM: the authorities, the certificate and its
    key.
    """

    shown: str
    servers: tuple[str, ...]
    bucket: str
    is_secure: bool
    user: str | None = field(repr=False)
    password: str | None = field(repr=False)
    token: str | None = field(repr=False)
    creds: str | None
    certificates: tuple[str | None, str | None, str | None]

    @classmethod
    def parse(cls, url: str, environment: Mapping[str, str] = os.environ) -> BucketAddress:
        """Parse a URL: `nats://[user:password@]host[:port][,host[:port]...]/bucket[?creds=file]`.

        A user without a password is a token. Credentials that the URL does not have come from the variables that other
        NATS programs read: NATS_USER and NATS_PASSWORD, NATS_TOKEN, NATS_CREDS (a file of credentials), and for TLS
        NATS_CA, NATS_CERT and NATS_KEY (files in PEM).

        >>> address = BucketAddress.parse("tls://reader:secret@a.example,b.example:4333/books", {})
        >>> address.servers, address.bucket, address.shown
        (('tls://a.example:4222', 'tls://b.example:4333'), 'books', 'tls://a.example,b.example:4333/books')

        Raises `ValueError`, which shows no credentials.
        """
        scheme, netloc, path, query = _split(url)
        hosts = netloc.split(",")
        # If every server has credentials, those of the first count.
        userinfo = hosts[0].rpartition("@")[0]
        options = _options(query)
        user, password, token = _credentials(userinfo, environment)
        # Credentials in the URL replace those of the environment.
        get = environment.get
        creds = options.get("creds") or (None if userinfo else get("NATS_CREDS"))
        return cls(
            shown=shown_name(url),
            servers=tuple(f"{scheme}://{_server(host.rpartition('@')[2])}" for host in hosts),
            bucket=_bucket(path.removeprefix("/")),
            is_secure=scheme == "tls",
            user=user,
            password=password,
            token=token,
            creds=creds or None,
            certificates=(get("NATS_CA") or None, get("NATS_CERT") or None, get("NATS_KEY") or None),
        )


def _split(url: str) -> tuple[str, str, str, str]:
    """Return scheme, hosts, path and query. Raises `ValueError` if they are ambiguous, or if there is a fragment."""
    parts = _URL(url)
    if parts is None:
        raise ValueError("must be a URL such as nats://127.0.0.1:4222/books")
    scheme, hosts, path, query, fragment = parts.groups("")
    if "@" in f"{path}{query}{fragment}":
        # Otherwise a part of a password would be parsed as something else, and shown.
        raise ValueError("credentials must contain / ? # @ as %2F %3F %23 %40, and so must everything after them")
    if fragment:
        raise ValueError(f"the URL must not have a fragment: {_shown(fragment)}")
    return scheme.lower(), hosts, path, query


def _bucket(name: str) -> str:
    if not _BUCKET(name):
        raise ValueError(
            "a bucket must follow the servers, as in nats://127.0.0.1:4222/books, "
            f"its name of letters, digits, - and _, got {_shown(name)}"
        )
    return name


def _server(text: str) -> str:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, _PORT if parts.port is None else parts.port
    except ValueError:
        host, port = None, 0
    if not host or not port:
        raise ValueError(f"a server must be a host such as 127.0.0.1:4222, got {_shown(text)}")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _options(query: str) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    for name in options.keys() - {"creds"}:
        raise ValueError(f"the only option is creds, got {_shown(name)}")
    return options


def _credentials(userinfo: str, environment: Mapping[str, str]) -> tuple[str | None, str | None, str | None]:
    """Return a user and a password, or a token."""
    user, mark, password = userinfo.partition(":")
    if userinfo:
        return (unquote(user), unquote(password), None) if mark else (None, None, unquote(user))
    if token := environment.get("NATS_TOKEN"):
        return None, None, token
    name = environment.get("NATS_USER")
    return (name, environment.get("NATS_PASSWORD", ""), None) if name else (None, None, None)


def _shown(text: str) -> str:
    """Return a part of a URL as messages show it: without anything before an `@`, which may be a password."""
    return safe_repr(text.rpartition("@")[2])
