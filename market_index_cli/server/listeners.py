"""The socket of the server: bound to an address, bound to a path, or passed by systemd."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from market_index_feeds.file_lock import try_lock

_FIRST_PASSED: Final = 3
"""The descriptor of the first socket that systemd passes (sd_listen_fds(3))."""


@contextmanager
def opened(host: str, port: int, path: Path | None, passed: socket.socket | None) -> Iterator[socket.socket]:
    """Yield the passed socket, or one that is bound to the path, or to the address; close it at the end.

    A bound socket does not listen: connections fail until the app is served. Its path is removed at the end.

    Raises:
        OSError: the path or the address cannot be bound.
        UnicodeError: the host is not a valid host name.
    """
    if passed is not None:
        with passed:
            yield passed
    elif path is not None:
        with _bound_path(path) as listener:
            yield listener
    else:
        with bind(host, port) as listener:
            yield listener


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address but does not listen.

    Raises:
        OSError: the address cannot be bound.
        UnicodeError: the host is not a valid host name.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


@contextmanager
def _bound_path(path: Path) -> Iterator[socket.socket]:
    with _locked(path.with_name(f"{path.name}.lock")), _bound(path) as listener:
        yield listener


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a file, which is created and stays. Raises `OSError` if another process has locked it.

    A server that is loading does not listen yet, so only its lock distinguishes it from one that was killed.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not try_lock(descriptor):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _bound(path: Path) -> Iterator[socket.socket]:
    _remove_unused(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        # As on a port of this machine, any user may connect; the permissions of the folder restrict it.
        path.chmod(0o666)
        own = _identity(path)
        try:
            yield listener
        finally:
            with suppress(FileNotFoundError):
                if _identity(path) == own:
                    path.unlink()


def _remove_unused(path: Path) -> None:
    """Remove the socket of a server that was killed. A path that is in use, or not a socket, stays: bind rejects it."""
    with suppress(FileNotFoundError, BlockingIOError):
        if stat.S_ISSOCK(path.stat().st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                # Another program may have too many connections that it has not accepted.
                client.settimeout(0)
                try:
                    client.connect(str(path))
                except ConnectionRefusedError:
                    path.unlink()


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def passed_socket(environment: Mapping[str, str] = os.environ) -> socket.socket | None:
    """Return the socket that systemd, or a program with its protocol, passes to this process; None if there is none.

    uvicorn's own option for it is not used: it takes every socket for a Unix socket. So the server would not send small
    responses immediately (`TCP_NODELAY`), and would know no address of a client.

    Raises:
        OSError: what was passed is not a socket.
        ValueError: several were passed, or it is not a listening stream socket.
    """
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return None
    if environment.get("LISTEN_FDS") != "1":
        raise ValueError(f"exactly one socket must be passed, got LISTEN_FDS={environment.get('LISTEN_FDS', '')}")
    passed = socket.socket(fileno=_FIRST_PASSED)
    passed.set_inheritable(False)
    if passed.type != socket.SOCK_STREAM or not passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        passed.close()
        raise ValueError("the passed socket must be a stream socket that listens (ListenStream=, Accept=no)")
    return passed


def address_of(listener: socket.socket) -> str:
    """Return the address of a socket for messages: the host and the port, or a path."""
    if listener.family == socket.AF_UNIX:
        return str(listener.getsockname())
    host, port, *_ = listener.getsockname()
    return f"{host} port {port}"


def url_of(listener: socket.socket) -> str:
    """Return where a socket listens: a URL, or `unix:` and a path."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port, *_ = listener.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
