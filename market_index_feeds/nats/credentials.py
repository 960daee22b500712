"""The options of the client library for TLS and credentials.

The library lets the server decide whether to use TLS, even for a `tls://` URL. Without TLS, it would send a password in
plain text. So for such a URL each credential is a function, which raises unless a TLS handshake has begun.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import nats.errors

from market_index_feeds.nats.address import BucketAddress


class _ObservedContext(ssl.SSLContext):
    """A context for one connection, which remembers whether a TLS handshake has begun."""

    has_begun = False

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        self.has_begun = True
        return super().wrap_bio(*args, **options)


def connection_options(address: BucketAddress) -> dict[str, Any]:
    """Return the options for one connection to the servers of an address.

    Raises `OSError` if a file that the address names cannot be read or has wrong content.
    """
    authorities, certificate, key = address.certificates
    options: dict[str, Any] = {}
    context = _ObservedContext(ssl.PROTOCOL_TLS_CLIENT)
    # Otherwise TLS is left to the server. Loading the default authorities takes 10 ms.
    if address.is_secure or authorities or certificate:
        options["tls"] = context
        if authorities is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(authorities)
        if certificate is not None:
            context.load_cert_chain(certificate, key)

    def protected(credential: str | None) -> Callable[[], str | None]:
        def over_tls() -> str | None:
            if address.is_secure and not context.has_begun:
                raise nats.errors.Error("server does not require TLS; no credentials were sent")
            return credential

        return over_tls

    if address.user is not None:
        return options | {"user": protected(address.user), "password": protected(address.password)}
    # There always is a token, so that also the signature of a file of credentials is protected. If it is None, the
    # server reads it as no token.
    return options | {"token": protected(address.token), "user_credentials": address.creds}
