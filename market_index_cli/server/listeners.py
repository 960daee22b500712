"""The socket of the server: bound to an address or a path, or passed by systemd."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any, Final

from market_index_feeds.file_lock import try_lock

_FIRST_PASSED: Final = 3
"""The descriptor of the first socket that systemd passes (sd_listen_fds(3))."""


def bind(host: str, port: int, path: Path | None = None) -> socket.socket:
    """Return a socket that is bound to the path, or else to the address.

    It does not listen: connections fail until the app is served. A server leaves its socket at the path when it ends,
    so a socket is replaced unless a server listens on it, or has bound it and loads.

    Raises:
        OSError: it cannot be bound.
        UnicodeError: the host is not a valid host name.
    """
    if path is not None:
        _reserve(path)
        if path.is_socket():
            with socket.socket(socket.AF_UNIX) as other:
                other.settimeout(0)
                if other.connect_ex(str(path)) != errno.ECONNREFUSED:
                    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            path.unlink()
        found: Any = [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", str(path))]
    else:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        if path is not None:
            # As on a port of this machine, any user may connect; the permissions of the folder restrict it.
            path.chmod(0o666)
    except OSError:
        listener.close()
        raise
    return listener


def _reserve(path: Path) -> None:
    """Raise `OSError` if another process has locked the file `PATH.lock`, otherwise lock it until the end.

    So a server whose feed still loads keeps its path, although it does not listen. The file is never removed.
    """
    lock = os.open(f"{os.path.realpath(path)}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if not try_lock(lock):
        os.close(lock)
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def passed_socket() -> socket.socket | None:
    """Return the socket that systemd, or a program with its protocol, passes to this process; None if there is none.

    uvicorn's own option for it is not used, because it treats every socket as a Unix socket: small responses would be
    delayed (no `TCP_NODELAY`), and the addresses of clients would be unknown.

    Raises:
        OSError: what was passed is not a socket.
        ValueError: several were passed, or it is not a listening stream socket.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    if os.environ.get("LISTEN_FDS") != "1":
        raise ValueError(f"exactly one socket must be passed, got LISTEN_FDS={os.environ.get('LISTEN_FDS', '')}")
    passed = socket.socket(fileno=_FIRST_PASSED)
    passed.set_inheritable(False)
    if passed.type != socket.SOCK_STREAM or not passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        passed.close()
        raise ValueError("the passed socket must be a stream socket that listens (ListenStream=, Accept=no)")
    return passed


def url_of(listener: socket.socket) -> str:
    """Return where a socket listens: a URL, or `unix:` and a path."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port, *_ = listener.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
