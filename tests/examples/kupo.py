"""A small Kupo, which answers as its API says, and fails as a real one can."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from attrs import field, frozen, mutable

from tests.waiting import DEADLINE_SECONDS


@frozen
class State:
    """What Kupo has indexed: the outputs at its last block.

    A new block is announced before it is stored: with `former`, the first response to each pattern has these outputs.
    """

    slot: int
    outputs: Sequence[Any] = ()
    fork: str = "a"
    former: Sequence[Any] | None = None

    @property
    def tag(self) -> str:
        return f"{self.slot:07x}{self.fork}".ljust(64, "0")

    @property
    def text(self) -> str:
        return f"slot {self.slot} {self.tag[:8]}"


@mutable
class Kupo:
    """The state of a server, and how its responses are wrong."""

    state: State
    port: int = 0
    failure: str = ""
    requests: int = 0
    not_modified: int = 0
    answered: set[tuple[str, str]] = field(factory=set)
    """The tag and the pattern of each response."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def matches(self, state: State, pattern: str) -> list[Any]:
        """Return the outputs of a pattern: a credential with any stake part, or a policy with any name."""
        is_first = (state.tag, pattern) not in self.answered
        self.answered.add((state.tag, pattern))
        outputs = state.outputs if state.former is None or not is_first else state.former
        part, _, kind = pattern.partition("/")
        if kind == "*":
            return [one for one in outputs if one["address"] in ADDRESSES.get(part, ())]
        policy = pattern.removesuffix(".*")
        return [one for one in outputs if any(key.startswith(policy) for key in one["value"]["assets"])]


ADDRESSES: dict[str, set[str]] = {}
"""The addresses of each script: a test registers those that it uses."""


class Handler(BaseHTTPRequestHandler):
    """Answers `/matches/<pattern>?unspent&resolve_hashes` and `/health`."""

    protocol_version = "HTTP/1.1"
    kupo: Kupo

    def do_GET(self) -> None:
        kupo = self.kupo
        self.state = kupo.state  # a test may change it meanwhile
        kupo.requests += 1
        if kupo.failure == "closed":
            self.close_connection = True
        elif kupo.failure == "error":
            self.send(500, b'{"hint":"an error"}')
        elif self.path == "/health":
            self.send(202 if kupo.failure == "syncing" else 200, b"{}")
        elif self.headers["If-None-Match"] == self.state.tag and kupo.failure != "no block":
            kupo.not_modified += 1
            self.send(304, b"")
        else:
            self.send_matches()

    def send_matches(self) -> None:
        kupo = self.kupo
        pattern, _, flags = self.path.removeprefix("/matches/").partition("?")
        assert flags == "unspent&resolve_hashes"
        body = json.dumps(kupo.matches(self.state, pattern)).encode()
        match kupo.failure:
            case "another body":
                self.send(200, b'{"hint":"an error"}')
            case "half" | "half without a size" as failure:
                self.send(200, body[: len(body) // 2], size=len(body) if failure == "half" else None)
                self.close_connection = True
            case _:
                self.send(200, body)

    def send(self, status: int, body: bytes, size: int | None = -1) -> None:
        self.send_response(status)
        if self.kupo.failure == "no block":
            self.send_header("X-Most-Recent-Checkpoint", "0")
        else:
            self.send_header("X-Most-Recent-Checkpoint", str(self.state.slot))
            self.send_header("ETag", self.state.tag)
        if size is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(body) if size < 0 else size))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(kupo: Kupo) -> Iterator[Kupo]:
    """Serve a Kupo on its port, or on a free one."""
    handler = type("HandlerOfOne", (Handler,), {"kupo": kupo})
    with ThreadingHTTPServer(("127.0.0.1", kupo.port), handler) as server:
        kupo.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield kupo
        finally:
            server.shutdown()
            thread.join(DEADLINE_SECONDS)
