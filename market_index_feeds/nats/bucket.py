"""A bucket as its servers report it: its state, and its messages."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from market_index_feeds.nats.errors import Unanswered

OPERATION_HEADER: Final = "KV-Operation"
_MARKER_HEADER: Final = "Nats-Marker-Reason"


@frozen
class State:
    """A bucket at one moment: its creation time, the sequence of its last message, its number of keys, its bytes.

    A deleted key counts as long as the message that deleted it is stored. `discards_above` is the limit above which the
    servers delete the oldest message to store a new one; empty if they never do.
    """

    created: str
    last_sequence: int
    keys: int
    length: int
    discards_above: str = ""


@frozen(slots=True, eq=False)
class Message:
    """The message stored under a key. `value` is None if it deleted the key; `time` is in nanoseconds, wall clock."""

    key: str
    value: bytes | None
    headers: Mapping[str, str]
    sequence: int
    time: int


def stream_name(bucket: str) -> str:
    """Return the name of the stream that stores a bucket."""
    return f"KV_{bucket}"


def key_prefix(bucket: str) -> str:
    """Return what precedes a key in the subject of its messages."""
    return f"$KV.{bucket}."


def configuration(bucket: str, replicas: int) -> dict[str, object]:
    """Return the configuration of the stream of a new bucket."""
    return {
        "name": stream_name(bucket),
        "subjects": [f"{key_prefix(bucket)}>"],
        "max_msgs_per_subject": 1,
        "storage": "file",
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "num_replicas": replicas,
    }


def state_of(answer: Mapping[str, Any]) -> State:
    """Return the state that a server reports. Raises `Unanswered` if the server cannot know it."""
    if not answer.get("cluster", {"leader": "alone"}).get("leader"):
        # A server that lost its disk reports an empty bucket until it has found the others.
        raise Unanswered("the servers have not agreed who leads")
    state = answer["state"]
    limits = _discards_above(answer.get("config", {}))
    return State(answer["created"], state["last_seq"], state.get("num_subjects", 0), state["bytes"], limits)


def _discards_above(config: Mapping[str, Any]) -> str:
    """Return the limits of a configuration above which the servers delete old messages."""
    if config.get("discard") == "new":
        return ""
    return ", ".join(f"{name} {config[name]}" for name in ("max_bytes", "max_msgs") if config.get(name, -1) > 0)


def message_of(found: Mapping[str, Any], prefix: str) -> Message:
    """Return the message that a server's answer contains. The answer has no time that compares with a delivery's."""
    headers = _headers(b64decode(found.get("hdrs", "")))
    value = None if is_deletion(headers) else b64decode(found.get("data", ""))
    return Message(found["subject"].removeprefix(prefix), value, headers, found["seq"], 0)


def is_deletion(headers: Mapping[str, str]) -> bool:
    """Return whether a message with these headers deletes its key."""
    return headers.get(OPERATION_HEADER) in {"DEL", "PURGE"} or _MARKER_HEADER in headers


def _headers(text: bytes) -> dict[str, str]:
    """Return the headers of a stored message: a line with the version, then one line a header."""
    lines = str(text, "utf-8", "replace").split("\r\n")[1:]
    return {name.strip(): value.strip() for name, mark, value in (line.partition(":") for line in lines) if mark}
