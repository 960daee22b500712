"""Whether the server shuts down. Only uvicorn can be asked; with another server, the host calls `Stream.end`."""

from __future__ import annotations

import signal


def uvicorn_ends() -> bool:
    """Whether uvicorn, in the main thread of this process, has received a signal to end.

    uvicorn waits for streams before it ends the lifespan, and tells no app that it shuts down. But its handler of the
    signal is a method of its server, which knows.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
