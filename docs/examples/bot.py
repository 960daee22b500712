import random
import sys
import time
from decimal import Decimal
from typing import Any

import httpx
from httpx_sse import connect_sse

client = httpx.Client(base_url=sys.argv[1], timeout=5)  # a stream is never silent for longer
books: dict[str, Any] = {}


def apply(book: Any, change: Any) -> Any:
    for side in ("bids", "asks"):
        known = {Decimal(level["price"]): level for level in (*book[side], *change[side])}
        change[side] = [one for _, one in sorted(known.items(), reverse=side == "bids") if one["accumulated_liquidity"]]
    return change


def follow() -> None:
    with connect_sse(client, "GET", "stream", params={"pairs": sys.argv[2], "levels": "changed"}) as source:
        answer = source.response
        sys.exit(answer.read().decode()) if answer.status_code == 400 else answer.raise_for_status()
        for event in source.iter_sse():
            value = event.json()
            pair = f"{value.get('base')}/{value.get('quote')}"
            if event.event == "version":  # now the books belong together: use them
                for name, book in books.items():
                    print(name, *(book[s][0]["price"] if book[s] else "-" for s in ("bids", "asks")), flush=True)
            elif event.event == "retract":
                books.pop(pair, None)
            else:
                books[pair] = apply(books[pair], value) if event.event == "change" else value
    raise httpx.ReadError("the stream has ended")


try:
    while True:
        try:
            follow()
        except httpx.HTTPError as error:
            print(f"the books are old: {error}", file=sys.stderr)
        time.sleep(random.uniform(1, 3))
except KeyboardInterrupt:
    for name, book in books.items():
        served = client.get("trading-view/order-book", params={"base": book["base"], "quote": book["quote"]}).json()
        print(name, "equal" if served == book else "different")
