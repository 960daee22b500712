"""Lines of events, for the tests of files and streams. Pairs are identified by a number."""

from __future__ import annotations

import json

from tests.feeds.made_up import pair

RESET = b'{"reset":true}\n'


def event(**values: object) -> bytes:
    """Return the line of an event."""
    return json.dumps(values).encode() + b"\n"


def named(number: int) -> dict[str, object]:
    """Return the keys that name a pair."""
    return {"base": str(pair(number).base), "quote": str(pair(number).quote)}


def place(order_id: str, number: int = 1, amount: object = 10, price: object = "2", offered: str = "base") -> bytes:
    return event(place=order_id, **named(number), offered=offered, amount=amount, price=price)


def remove(order_id: str) -> bytes:
    return event(remove=order_id)


def spot(number: int, price: object) -> bytes:
    return event(spot=price, **named(number))


def untrack(number: int) -> bytes:
    return event(untrack=True, **named(number))


def block(text: str) -> bytes:
    return event(block=text)


def rollback(text: str) -> bytes:
    return event(rollback=text)
