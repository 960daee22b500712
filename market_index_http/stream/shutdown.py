"""Whether the server ends. Only uvicorn is asked; of other servers, the host calls `Stream.end`."""

from __future__ import annotations

import signal


def uvicorn_ends() -> bool:
    """Whether uvicorn, in the main thread of this process, has received a signal to end.

    It waits for streams before it ends the lifespan, and reports its shutdown to no app. A method of its server handles
    the signal.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
