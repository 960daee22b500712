"""A bucket as its servers report it: its state, and its messages."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from market_index_feeds.nats.errors import Misconfigured, Unanswered, shown_text

OPERATION_HEADER: Final = "KV-Operation"
_MARKER_HEADER: Final = "Nats-Marker-Reason"
_NANOSECONDS: Final = 1_000_000_000


@frozen
class BucketState:
    """A bucket at one moment: its creation time, the sequence of its last message, its number of keys, its bytes.

    A deleted key counts as long as the message that deleted it is stored.
    """

    created: str
    last_sequence: int
    keys: int
    length: int


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


def state_of(answer: Mapping[str, Any]) -> BucketState:
    """Return the state that a server reports.

    Raises:
        Unanswered: The server cannot know it.
        Misconfigured: The bucket does not store exactly the last value of each key.
    """
    if not answer.get("cluster", {"leader": "alone"}).get("leader"):
        # A server that lost its disk reports an empty bucket until it has found the others.
        raise Unanswered("the servers have not agreed who leads")
    _require_last_values(answer["config"])
    state = answer["state"]
    return BucketState(answer["created"], state["last_seq"], state.get("num_subjects", 0), state["bytes"])


def _require_last_values(config: Mapping[str, Any]) -> None:
    """Raise `Misconfigured` unless a bucket stores the last value of each key until it is overwritten or deleted.

    With a history, the deletion of a key's last message makes an older value the last one, which no watch notices.
    With the other settings, the servers acknowledge values and delete them later.
    """
    options: dict[str, str] = {}
    if config["max_msgs_per_subject"] != 1:
        options[f"max_msgs_per_subject {config['max_msgs_per_subject']}"] = "--max-msgs-per-subject=1"
    if config["max_age"]:
        options[f"max_age {config['max_age'] / _NANOSECONDS:g} s"] = "--max-age=0s"
    if config["retention"] == "interest":
        options["retention interest"] = "--retention=limits"
    if config["discard"] == "old":
        limits = [name for name in ("max_bytes", "max_msgs") if config[name] > 0]
        options |= {f"{name} {config[name]}": "--discard=new" for name in limits}
    if options:
        raise Misconfigured(
            f"the bucket must store the last value of each key, and nothing else, got {', '.join(options)}; "
            f"run: nats stream edit {shown_text(config['name'])} {' '.join(dict.fromkeys(options.values()))}"
        )


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
