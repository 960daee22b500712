"""The app with the web page, and test data for it: sample books, hostile names and long numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from attrs import evolve

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair, wire
from market_index.display import Tokens
from market_index_cli.page.routes import page_routes
from market_index_http.operating import Health
from tests.apps import composed
from tests.command import SAMPLE
from tests.feed_state import FeedState
from tests.service import Service

PAGE = Path(__file__).resolve().parents[1] / "market_index_cli" / "page" / "static"

SNEK = AssetId.parse("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f:534e454b")
SNEK_ADA = Pair(SNEK, ADA)

HOSTILE_NAMES = [
    b"<script>document.x=1</script>",
    b"<img src=x onerror=alert(1)>",
    b"\"'><svg/onload=alert(1)>",
    "\u202egnp.exe".encode(),
    "a\u2066b\u2069".encode(),
    b"two\nlines",
    b"NUL\0NUL",
    b"\xff" * 32,
    "مرحبا بالعالم".encode(),
    "שלום".encode(),
    "Z̸̧͓a̵l̷g̶o".encode(),
    "\u00a0hard space".encode(),
    "\ufeffmark".encode(),
    "\ue000private".encode(),
    "\u0378unassigned".encode(),
    b" leading",
    b" ",
    b"ADA",
    b"__proto__",
    "名前🐍".encode(),
    "👩‍🚀".encode(),
    bytes.fromhex("000de140") + b"NFT",
    bytes.fromhex("000de140"),
    bytes.fromhex("000de141") + b"not labelled",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"javascript:alert(1)",
]


def token(name: bytes, number: int = 1) -> AssetId:
    return AssetId(number.to_bytes(28), name)


def sample() -> list[OrderBook]:
    return [wire.order_book_from_json(line) for line in SAMPLE.read_bytes().splitlines()]


def widest() -> OrderBook:
    """Return a book whose names and numbers have the maximum length."""
    return OrderBook.from_levels(
        Pair(token(b"W" * 32), token(b"M" * 32, 2)),
        bids=[("1e-28", 2**64 - 1), ("2e-28", 2**64 - 1)],
        asks=[(str(2**96 - 1), 2**64 - 1)],
        spot=str(2**96 - 1),
    )


def app_with_page(live: LiveIndex, health: Health | None = None, tokens: Tokens | None = None) -> Any:
    """Return an app with the page, and the stream of changes, whose books were published just now."""
    freshness = evolve(live.current.freshness, published_at=datetime.now(UTC))
    live.update((), freshness=freshness)
    others = page_routes(live, tokens or Tokens())
    return composed(live, stream=True, health=health or Health(FeedState()), others=others)


def token_of(service: Service, asset: AssetId) -> tuple[str, int | None]:
    """Return the name and the decimals of an asset in `/tokens`."""
    [found] = [one for one in service.request("/tokens").json["tokens"] if one["id"] == str(asset)]
    return found["name"], found["decimals"]


def fixed(value: Fraction) -> str:
    """Return the exact fixed-point text of a fraction, which must have one."""
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    digits = str(abs(int(value * 10**places))).zfill(places + 1)
    sign = "-" if value < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)
