"""Local TCP ports that forward to a server, and ports that are no server at all."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Thread

from tests.waiting import DEADLINE_SECONDS


@contextmanager
def accepting(handle: Callable[[socket.socket], object]) -> Iterator[int]:
    """Open a port, and pass each connection to a function."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    handle(listener.accept()[0])

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE_SECONDS)


@contextmanager
def listening(sent: bytes, received: list[bytes]) -> Iterator[int]:
    """Open a port that is not a NATS server. It sends `sent` on each connection, and appends data to `received`."""

    def answer(connection: socket.socket) -> None:
        with closing(connection), suppress(TimeoutError):
            connection.sendall(sent)
            connection.settimeout(DEADLINE_SECONDS)
            received.append(connection.recv(1000))

    with accepting(answer) as port:
        yield port


@contextmanager
def linked(port: int, there: Callable[[bytes], object], back: Callable[[bytes], object]) -> Iterator[int]:
    """Open a port that forwards to another one. `there` and `back` are called with each chunk.

    If one of them raises `OSError`, the chunk and the connection are lost.
    """
    ends: list[socket.socket] = []

    def connect(near: socket.socket) -> None:
        far = socket.create_connection(("127.0.0.1", port))
        ends.extend((near, far))
        Thread(target=_forward, args=(near, far, there), daemon=True).start()
        Thread(target=_forward, args=(far, near, back), daemon=True).start()

    with accepting(connect) as own:
        yield own
    for end in ends:
        end.close()


def _forward(source: socket.socket, target: socket.socket, pass_on: Callable[[bytes], object]) -> None:
    with suppress(OSError):
        while chunk := source.recv(10_000):
            pass_on(chunk)
            target.sendall(chunk)
    target.close()
