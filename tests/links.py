"""Local TCP ports that forward to a server, and ports that are no server at all."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Thread

from tests.waiting import DEADLINE_SECONDS


@contextmanager
def listening(sent: bytes, received: list[bytes] | None = None) -> Iterator[int]:
    """Open a port that is not a NATS server. It sends `sent` on each connection, and appends data to `received`."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with closing(connection):
                    connection.sendall(sent)
                    connection.settimeout(0.2)
                    try:
                        if received is not None:
                            received.append(connection.recv(1000))
                    except OSError:
                        pass

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE_SECONDS)


@contextmanager
def linked(port: int, there: Callable[[bytes], object], back: Callable[[bytes], object]) -> Iterator[int]:
    """Open a port that forwards to another one. `there` and `back` are called with each chunk.

    If one of them raises `OSError`, the chunk and the connection are lost.
    """
    ends: list[socket.socket] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            while True:
                try:
                    near, _ = listener.accept()
                except OSError:
                    return
                far = socket.create_connection(("127.0.0.1", port))
                ends.extend((near, far))
                Thread(target=_forward, args=(near, far, there), daemon=True).start()
                Thread(target=_forward, args=(far, near, back), daemon=True).start()

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE_SECONDS)
        for end in ends:
            end.close()


def _forward(source: socket.socket, target: socket.socket, pass_on: Callable[[bytes], object]) -> None:
    with suppress(OSError):
        while chunk := source.recv(10_000):
            pass_on(chunk)
            target.sendall(chunk)
    target.close()
