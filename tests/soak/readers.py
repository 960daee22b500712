"""Clients that check every response: the status, the whole body, and that it is not older than the previous one."""

from __future__ import annotations

import gzip
import json
import random
from contextlib import closing
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlencode

from tests.faults.publisher import PAIRS, bid_prices
from tests.market_index_feeds.made_up import pair
from tests.service import Client, HttpResponse
from tests.soak.actors import Actor

PAIR_LIST: Final = "/trading-view/pair-list"


class Reader(Actor):
    """A client that checks every response. The server may close its connection to make room for others."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__()
        self.generation = 0
        """The newest generation received."""
        self.lost = 0
        """The number of connections that were closed before the response."""
        self._port = port
        self._client: Client | None = None
        self._random = random.Random(number)

    def act(self) -> None:
        """Request a book or the pair list, and check the response."""
        number = self._random.randrange(PAIRS + 1)
        target = PAIR_LIST if number == PAIRS else _book_target(number)
        answer = self._answer(target)
        if answer is None:
            return
        assert answer.status == 200, f"{target}: got {answer.status}: {answer.body!r}"
        is_compressed = answer.headers.get("content-encoding") == "gzip"
        found = json.loads(gzip.decompress(answer.body) if is_compressed else answer.body)
        generation = _generation_of_pair_list(found) if number == PAIRS else _generation_of_book(number, found)
        assert generation >= self.generation, f"got generation {generation} after {self.generation}"
        self.generation = generation

    def end(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def _answer(self, target: str) -> HttpResponse | None:
        """Return the response; None if the connection was closed to make room for another."""
        encoding = self._random.choice(["", "Accept-Encoding: gzip\r\n"])
        try:
            if self._client is None:
                self._client = Client(self._port)
            answer = self._client.request(target, headers=encoding)
        except TimeoutError:
            raise
        except (OSError, HTTPException):
            self.end()
            self._client = None
            self.lost += 1
            return None
        return answer


def newest(port: int) -> int:
    """Return the generation of the pair list."""
    with closing(Client(port)) as client:
        return _generation_of_pair_list(client.request(PAIR_LIST).json)


def assert_books_are(port: int, generation: int) -> None:
    """Assert that every book has this generation."""
    with closing(Client(port)) as client:
        found = [_generation_of_book(number, client.request(_book_target(number)).json) for number in range(PAIRS)]
    assert found == [generation] * PAIRS


def _book_target(number: int) -> str:
    return f"/trading-view/order-book?{urlencode({'base': str(pair(number).base), 'quote': 'ADA'})}"


def _generation_of_pair_list(found: Any) -> int:
    """Return the generation of a pair list, which all its pairs must have."""
    (spot,) = {info["last_spot"] for info in found["pairs"]}
    bases = [str(pair(number).base) for number in range(PAIRS)]
    wanted = {"pairs": [{"base": base, "quote": "ADA", "last_spot": spot} for base in bases]}
    assert found == wanted, f"the pair list must be {wanted}, got {found}"
    return int(spot)


def _generation_of_book(number: int, found: Any) -> int:
    """Return the generation of a book, which must be exactly the published book."""
    generation = int(found["spot"])
    bids = [{"price": str(price), "accumulated_liquidity": generation} for price in reversed(bid_prices(generation))]
    base = str(pair(number).base)
    wanted = {"base": base, "quote": "ADA", "spot": str(generation), "bids": bids, "asks": []}
    assert found == wanted, f"the book must be {wanted}, got {found}"
    return generation
