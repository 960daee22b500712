"""The lines of a file that are not order books, in JSON: commit lines and retract lines."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from attrs import frozen

from market_index import AssetId, Freshness, InvalidAssetId, InvalidOrderBook, Pair
from market_index.errors import safe_repr
from market_index.wire import (
    format_time,
    freshness_from_json,
    freshness_to_json,
    object_from_json,
    pair_to_json,
    parse_time,
)


@frozen
class CommitLine:
    """A commit line: the freshness of the lines before it, and when they were recorded.

    `recorded_at` is wall-clock time of the recorder, in UTC and milliseconds; None if the line is not of a recording.
    """

    freshness: Freshness
    recorded_at: datetime | None = None


def marker_from_json(text: bytes) -> CommitLine | Pair | None:
    """Return the content of a commit line, or the pair of a retract line; None for any other text.

    >>> marker_from_json(b'{"as_of": "slot 145000000", "recorded_at": "2026-11-22T04:17:03Z"}').recorded_at
    datetime.datetime(2026, 11, 22, 4, 17, 3, tzinfo=datetime.timezone.utc)
    >>> str(marker_from_json(b'{"retract": true, "base": "ADA", "quote": "%s:"}' % (b"00" * 28)))
    'ADA/00000000000000000000000000000000000000000000000000000000:'

    Raises:
        InvalidFreshness: A commit line is not valid.
        InvalidAssetId: An identifier of a retract line is not valid.
        InvalidOrderBook: A retract line has another shape.
    """
    # Most lines are order books, which are not decoded for this.
    if b'"as_of"' not in text and b'"retract"' not in text:
        return None
    try:
        value: dict[str, Any] = object_from_json(text)
    except InvalidOrderBook:
        return None
    if "as_of" in value and value.keys().isdisjoint({"base", "quote"}):
        freshness, recorded_at = freshness_from_json(text), value.get("recorded_at")
        return CommitLine(freshness, None if recorded_at is None else parse_time(recorded_at))
    return _retracted(value) if "retract" in value else None


def _retracted(value: dict[str, Any]) -> Pair:
    if unknown := value.keys() - {"retract", "base", "quote"}:
        raise InvalidOrderBook(f"unknown key {safe_repr(min(unknown))}")
    if value["retract"] is not True:
        raise InvalidOrderBook(f"retract: must be true, got {safe_repr(value['retract'])}")
    return Pair(_asset(value, "base"), _asset(value, "quote"))


def _asset(value: dict[str, Any], name: str) -> AssetId:
    if name not in value:
        raise InvalidOrderBook(f"{name}: missing")
    try:
        return AssetId.parse(value[name])
    except InvalidAssetId as error:
        raise error.at(name) from None


def commit_to_json(line: CommitLine) -> bytes:
    """Return a commit line, without a newline.

    >>> commit_to_json(CommitLine(Freshness("slot 145000000")))
    b'{"as_of":"slot 145000000","published_at":null}'
    """
    text = freshness_to_json(line.freshness)
    if line.recorded_at is None:
        return text
    return b'%b,"recorded_at":"%b"}' % (text[:-1], format_time(line.recorded_at).encode())


def retraction_to_json(pair: Pair) -> bytes:
    """Return a retract line, without a newline.

    >>> from market_index import ADA
    >>> retraction_to_json(Pair(AssetId(bytes(28), b""), ADA))
    b'{"retract":true,"base":"00000000000000000000000000000000000000000000000000000000:","quote":"ADA"}'
    """
    return b'{"retract":true,%b' % pair_to_json(pair)[1:]
