"""The stream of changes: server-sent events at `/stream` (decision 28).

Theory of operation
    For each client the server knows only the version that it has sent, which is an immutable index. It sends the
    difference to the current version when the client has accepted what was sent before. So a slow client gets fewer
    versions, each consistent and exact, and there is no queue.

    One task for each event loop waits for the next version, and wakes the clients whose pairs it changes. A client that
    waits refers to no version, which would stay in memory: the task gives it the version before the change. The text of
    an event is made once for each step from one version to the current one, and shared by all clients that take it.

    A large version is sent in pieces, and in each turn of the event loop one client builds one piece. So the loop also
    accepts connections and responds to other requests, however many clients connect together.

- `endpoint`: the request and its response.
- `audience`: the clients of an event loop, and what each has; pings and timeouts.
- `steps`: the difference of two versions as events.
- `shutdown`: whether uvicorn shuts down.
"""

from market_index_http.stream.endpoint import Stream

__all__ = ["Stream"]
