"""Where a bucket is, and how its servers are told who asks."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from attrs import field, frozen

from market_index.errors import safe_repr
from market_index_feeds.opened import without_credentials

_BUCKET: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII).fullmatch
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", re.ASCII).fullmatch
_PORT: Final = 4222
_OPTIONS: Final = {"creds", "replicas"}


@frozen
class Address:
    """A bucket, the servers to begin with, and the credentials, which no message shows.

    `shown` is the address as messages show it. `replicas` is how many servers are to keep a bucket that is made, None
    for three where there is a cluster, and one where there is none.
    """

    shown: str
    servers: tuple[str, ...]
    bucket: str
    is_secure: bool
    replicas: int | None
    user: str | None = field(repr=False)
    password: str | None = field(repr=False)
    token: str | None = field(repr=False)
    creds: Path | None
    certificates: tuple[Path | None, Path | None, Path | None]

    @classmethod
    def parse(cls, url: str, environment: Mapping[str, str] = os.environ) -> Address:
        """Take a URL apart: `nats://[user:password@]host[:port][,host[:port]...]/bucket[?creds=file][&replicas=3]`.

        A user without a password is a token. What the URL does not say is taken from the variables that other programs
        for NATS read: NATS_USER and NATS_PASSWORD, NATS_TOKEN, NATS_CREDS (a file of credentials), and for TLS NATS_CA,
        NATS_CERT and NATS_KEY (files in PEM).

        >>> address = Address.parse("tls://reader:secret@a.example,b.example:4333/books", {})
        >>> address.servers, address.bucket, address.shown
        (('tls://a.example:4222', 'tls://b.example:4333'), 'books', 'tls://a.example,b.example:4333/books')

        Raises `ValueError`, which shows no credentials.
        """
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ValueError("it is not a URL") from None
        if "@" in f"{parts.path}{parts.query}{parts.fragment}":
            # Else part of a password would be taken for something else, and shown.
            raise ValueError("in credentials / ? # @ are written %2F %3F %23 %40, and @ behind the servers is as well")
        scheme = parts.scheme.lower()
        # Where each server is given credentials, they are those of the first.
        userinfo = parts.netloc.split(",")[0].rpartition("@")[0]
        servers = tuple(f"{scheme}://{_server(host.rpartition('@')[2])}" for host in parts.netloc.split(","))
        bucket = parts.path.removeprefix("/")
        if not _BUCKET(bucket):
            raise ValueError(
                f"a bucket is named behind the servers, as in nats://127.0.0.1:4222/books, by letters, digits, "
                f"- and _: not {_shown(bucket)}"
            )
        options = _options(parts.query)
        if parts.fragment:
            raise ValueError(f"nothing is meant by #{_shown(parts.fragment)}")
        user, password, token = _credentials(userinfo, environment)
        # Whoever names credentials in the URL means those, whatever the environment holds.
        creds = options.get("creds") or (None if userinfo else environment.get("NATS_CREDS"))
        return cls(
            shown=without_credentials(url),
            servers=servers,
            bucket=bucket,
            is_secure=scheme == "tls",
            replicas=_replicas(options.get("replicas")),
            user=user,
            password=password,
            token=token,
            creds=_path(creds),
            certificates=(
                _path(environment.get("NATS_CA")),
                _path(environment.get("NATS_CERT")),
                _path(environment.get("NATS_KEY")),
            ),
        )

    def tls(self) -> ssl.SSLContext | None:
        """Return what the servers are to show for themselves, and what is shown to them; None where nothing is said.

        Raises `OSError` where a file cannot be read, or is not what it should be.
        """
        authorities, certificate, key = self.certificates
        if not self.is_secure and authorities is certificate is None:
            # What every machine trusts takes ten milliseconds to read.
            return None
        context = ssl.create_default_context(cafile=authorities)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        return context


def _server(text: str) -> str:
    host, mark, port = text.rpartition(":")
    if not mark or text.endswith("]"):
        host, port = text, str(_PORT)
    if not _HOST(host):
        raise ValueError(f"{_shown(text)} is not a server, such as 127.0.0.1:4222")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise ValueError(f"{_shown(port)} is not a port")
    return f"{host}:{int(port)}"


def _options(query: str) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    for name in options.keys() - _OPTIONS:
        raise ValueError(f"{_shown(name)} is not an option: there are creds and replicas")
    return options


def _credentials(userinfo: str, environment: Mapping[str, str]) -> tuple[str | None, str | None, str | None]:
    """Return a user and a password, or a token."""
    user, mark, password = userinfo.partition(":")
    if userinfo:
        return (unquote(user), unquote(password), None) if mark else (None, None, unquote(user))
    token = environment.get("NATS_TOKEN")
    if token:
        return None, None, token
    name = environment.get("NATS_USER")
    if name and "NATS_PASSWORD" not in environment:
        return None, None, name
    return (name, environment.get("NATS_PASSWORD"), None) if name else (None, None, None)


def _replicas(text: str | None) -> int | None:
    if text is None or (len(text) == 1 and text in "12345"):
        return None if text is None else int(text)
    raise ValueError(f"replicas is a number from 1 to 5, not {_shown(text)}")


def _shown(text: str) -> str:
    """Return a part of a URL as messages show it: without what stands before an `@`, which may be a password."""
    return safe_repr(text.rpartition("@")[2])


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
