import json
import random
import sys
import time
from decimal import Decimal
from typing import Any

import requests
import sseclient

url = sys.argv[1]
books: dict[str, Any] = {}


def apply(book: Any, change: Any) -> Any:
    for side in ("bids", "asks"):
        known = {Decimal(level["price"]): level for level in (*book[side], *change[side])}
        change[side] = [one for _, one in sorted(known.items(), reverse=side == "bids") if one["accumulated_liquidity"]]
    return change


def follow() -> None:
    with requests.get(f"{url}/stream", {"pairs": sys.argv[2], "levels": "changed"}, stream=True, timeout=5) as source:
        sys.exit(source.text) if source.status_code == 400 else source.raise_for_status()
        for event in sseclient.SSEClient(source.iter_content(None)).events():
            value = json.loads(event.data)
            pair = f"{value.get('base')}/{value.get('quote')}"
            if event.event == "version":  # now the books belong together: use them
                for name, book in books.items():
                    print(name, *(book[s][0]["price"] if book[s] else "-" for s in ("bids", "asks")), flush=True)
            elif event.event == "retract":
                books.pop(pair, None)
            else:
                books[pair] = apply(books[pair], value) if event.event == "change" else value
    raise requests.ConnectionError("the stream has ended")


try:
    while True:
        try:
            follow()
        except requests.RequestException as error:
            print(f"the books are old: {error}", file=sys.stderr)
        time.sleep(random.uniform(1, 3))
except KeyboardInterrupt:
    for name, book in books.items():
        now = requests.get(f"{url}/trading-view/order-book?base={book['base']}&quote={book['quote']}", timeout=5).json()
        print(name, "equal" if now == book else "different")
