"""Local TCP ports that forward to a server slowly or on command, and ports that are no server at all."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from queue import Queue
from threading import Event, Thread

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
def held_link(port: int) -> Iterator[tuple[int, Event]]:
    """Open a port that forwards to another one while the gate is set. Data in the other direction is not delayed."""
    gate = Event()
    with linked(port, lambda chunk: gate.wait(DEADLINE_SECONDS), lambda chunk: None) as near:
        yield near, gate
        gate.set()


@contextmanager
def slow_link(port: int, bytes_per_second: int) -> Iterator[int]:
    """Open a port that forwards to another one. The rate of the other direction is limited."""
    with linked(port, lambda chunk: None, lambda chunk: time.sleep(len(chunk) / bytes_per_second)) as near:
        yield near


@contextmanager
def linked(port: int, there: Callable[[bytes], object], back: Callable[[bytes], object]) -> Iterator[int]:
    """Open a port that forwards to another one. `there` and `back` are called with each chunk, and may delay it."""
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


def _forward(source: socket.socket, target: socket.socket, delay: Callable[[bytes], object]) -> None:
    # Sent data arrives even if the sender has closed its connection.
    in_flight: Queue[bytes] = Queue(maxsize=100)

    def receive() -> None:
        chunk = b"?"
        while chunk:
            try:
                chunk = source.recv(10_000)
            except OSError:
                chunk = b""
            in_flight.put(chunk)

    Thread(target=receive, daemon=True).start()
    with suppress(OSError):
        while chunk := in_flight.get():
            delay(chunk)
            target.sendall(chunk)
    target.close()
