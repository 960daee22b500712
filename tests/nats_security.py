"""Credentials and certificates for the NATS servers of tests."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import nkeys
import trustme
from nacl.signing import SigningKey

_KEY_PREFIXES = {
    "O": nkeys.PREFIX_BYTE_OPERATOR,
    "A": nkeys.PREFIX_BYTE_ACCOUNT,
    "S": nkeys.PREFIX_BYTE_ACCOUNT,
    "U": nkeys.PREFIX_BYTE_USER,
}


def accounts(folder: Path) -> tuple[str, Path]:
    """Return the configuration of a server that trusts an operator, and a user's credentials (JWT, NKEYS)."""
    keys = {kind: SigningKey.generate() for kind in _KEY_PREFIXES}
    public = {kind: _encoded(bytes([_KEY_PREFIXES[kind]]), bytes(key.verify_key)) for kind, key in keys.items()}

    def token(issuer: str, subject: str, claims: dict[str, Any]) -> str:
        return _token(keys[issuer], public[issuer], public[subject], claims)

    endless = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1) | {"wildcards": True}
    stored = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    account = token("O", "A", {"type": "account", "limits": endless | stored})
    system = token("O", "S", {"type": "account", "limits": endless})
    user = token("A", "U", {"type": "user", "subs": -1, "data": -1, "payload": -1})
    credentials = folder / "user.creds"
    credentials.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{_seed(keys['U'])}\n------END USER NKEY SEED------\n"
    )
    return (
        f"operator: {token('O', 'O', {'type': 'operator'})}\nsystem_account: {public['S']}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {public['A']}: {account}, {public['S']}: {system} }}"
    ), credentials


def _encoded(prefix: bytes, raw: bytes) -> str:
    """Return a key as NKEYS writes it: prefix, key and checksum in base 32."""
    body = prefix + raw
    return base64.b32encode(body + nkeys.crc16(bytearray(body)).to_bytes(2, "little")).decode().rstrip("=")


def _seed(key: SigningKey) -> str:
    """Return the seed of a user, from which its key is derived."""
    prefix = _KEY_PREFIXES["U"]
    return _encoded(bytes([nkeys.PREFIX_BYTE_SEED | (prefix >> 5), (prefix & 31) << 3]), bytes(key))


def _token(key: SigningKey, issuer: str, subject: str, claims: dict[str, Any]) -> str:
    """Return a JWT of these claims, signed with the key of its issuer."""
    parts = [
        {"typ": "JWT", "alg": "ed25519-nkey"},
        {"jti": "x", "iat": 1_700_000_000, "iss": issuer, "sub": subject, "name": subject}
        | {"nats": {"version": 2} | claims},
    ]
    text = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    signature = key.sign(text.encode()).signature
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def certified(folder: Path, more: str = "") -> str:
    """Return the configuration of servers with a certificate for `localhost`, issued by a new authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    files = {"cert_file": "cert.pem", "key_file": "key.pem", "ca_file": "ca.pem"}
    named = ", ".join(f'{name}: "{folder / file}"' for name, file in files.items())
    return f"tls {{ {named}, {more} }}"
