"""The seeds of fuzzing: from the sample books, from recorded data, and edge cases."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from random import Random
from typing import Final

from tests.conftest import RECORDED
from tests.fuzz.targets import TARGETS
from tests.market_index.wire.texts import BOOK, encoded

SAMPLE: Final = Path(__file__).resolve().parents[2] / "docs" / "samples" / "order-books.ndjson"

MAX_BYTES: Final = 4096
"""The longest input. Python rejects integers of more than 4,300 digits, so no input reaches that limit."""

RECORDED_SEEDS: Final = 20

TOKENS: Final[dict[str, tuple[str, ...]]] = {
    "order-books": (
        '"base"', '"quote"', '"spot"', '"bids"', '"asks"', '"price"', '"accumulated_liquidity"', '"ADA"', "null",
        "true", "NaN", "18446744073709551615", "18446744073709551616", '"79228162514264337593543950335"', '"1e-28"',
        '"2e1"', '"0.10"', "-0", "1.0", "1e2", r"\u0061", r"\ud83d\ude00", "[]", "{}", "[[[[", ",", ":", '"', "\\",
        "\ufeff",
    ),
    "pair-lists": (
        '"pairs"', '"base"', '"quote"', '"last_spot"', '"ADA"', '"lovelace"', "null", "false", '"0.5"', '"5e-1"',
        r"\u0061", "[]", "{}", ",", ":", '"', "\\",
    ),
    "assets": ("ADA", "ada", "lovelace", ":", ".", "534e454b", "0", "a", "A", "F", "g", " ", "٣", "\n", "00" * 28),
    "prices": (
        "0.", ".", "1", "9", "0", "e", "E", "+", "-", "e-28", "e28", "e1000000", "_", " ", "٣", "\n", "NaN", "Infinity",
        "79228162514264337593543950335", "79228162514264337593543950336",
    ),
    "long-texts": (
        "\x00", '"place"', '"base"', '"offered"', '"amount"', '"price"', '"spot"', '"bids"', '"as_of"', '"pairs"', "0",
        "1", ".", "e", "/", "-", ":", "@", '"', "\\", r"\u0061", ",", "[", "]", "{", "}", "[],", '{"a":0},', '"a":0,',
        "NaN", "0.1,", " ", "ab",
    ),
}  # fmt: skip
"""The tokens from which inputs of each target are generated."""


def seeds(target: str) -> list[bytes]:
    """Return the first inputs of a target."""
    return [seed for seed in SEEDS[target]() if len(seed) <= MAX_BYTES]


def mutations(target: str, seed: bytes, count: int) -> list[bytes]:
    """Return `count` inputs that differ from the seed in a few places; they are the same in each run."""
    random = Random(seed)
    tokens = [token.encode() for token in TOKENS[target]]
    return [mutated(seed, tokens, random) for _ in range(count)]


def mutated(seed: bytes, tokens: list[bytes], random: Random) -> bytes:
    for _ in range(random.randint(1, 3)):
        start = random.randint(0, len(seed))
        end = min(len(seed), start + random.choice([0, 1, 1, 8]))
        inserted = random.choice([b"", seed[start:end] * 2, random.choice(tokens), random.randbytes(1)])
        seed = seed[:start] + inserted + seed[end:]
    return seed[:MAX_BYTES]


def order_book_seeds() -> list[bytes]:
    book = encoded(BOOK)
    changes = [
        (b'"price": "0.0041"', b'"price": "0.1", "price": "0.0041"'),
        (b'"price": "0.0041"', b'"pric\\u0065": "0.0041"'),
        (b'"price": "0.0041"', b'"price": "0.0041", "amount": ""'),
        (b'"spot": "0.0042"', b'"spot": null, "spot": "0.0042"'),
        (b'_liquidity": 5', b'_liquidity": true'),
        (b'_liquidity": 5', b'_liquidity": 5.0'),
        (b'_liquidity": 5', b'_liquidity": 18446744073709551616'),
    ]
    changed = [book.replace(before, after, 1) for before, after in changes]
    return [b"", b"null", b"[" * 2000, book, *changed, *sample_lines(), *recorded_lines("order-books.ndjson.gz")]


def pair_list_seeds() -> list[bytes]:
    infos = [
        {"base": book["base"], "quote": book["quote"], "last_spot": book["spot"]}
        for book in map(json.loads, sample_lines())
    ]
    return [encoded({"pairs": some}) for some in ([], infos[:1], infos, infos[:1] * 2)]


def asset_seeds() -> list[bytes]:
    books = map(json.loads, sample_lines())
    texts = {book[side] for book in books for side in ("base", "quote")}
    texts |= {json.loads(line)["asset"] for line in recorded_lines("cardano-assets.ndjson")}
    spellings = {text.replace(":", separator) for text in texts for separator in (":", ".", "")}
    edge_cases = [
        "lovelace",
        f"{'0' * 56}:0",
        f"{'0' * 55} :",
        f"{'0' * 56}:00  ",
        f"{'0' * 56}:{'0' * 66}",
        f"{'0' * 54}٣",
    ]
    return [text.encode() for text in [*edge_cases, *sorted(spellings)]]


def price_seeds() -> list[bytes]:
    books = list(map(json.loads, sample_lines()))
    columns = ["\n".join(level["price"] for level in book[side]) for book in books for side in ("bids", "asks")]
    columns += [
        "0.10\n1e-28\n2E3\n5.\n.5",
        "0",
        "0." + "0" * 28 + "1",
        f"{2**96 - 1}",
        f"{2**96}",
        "1٣",
        "1 ",
        "1e1000000",
    ]
    return [column.encode() for column in columns]


def long_text_seeds() -> list[bytes]:
    """Return texts in which two NULs, written as `<` and `>` here, delimit the piece that is repeated."""
    place = {"place": "a#0", "base": BOOK["base"], "quote": "ADA", "offered": "base", "amount": "1", "price": "2"}
    stretched = [("place", "<a>"), ("amount", "<0>1"), ("amount", "-<1>"), ("price", "<1>/29000"), ("price", "1.<0>x")]
    stretched += [("price", "1e<1>x"), ("base", "<ab>:"), ("base", ":<ab>x")]
    texts = [json.dumps(place | {key: text}) for key, text in stretched]
    texts += ['{"block": <[>', '{"bids": [<[],> 0]}', '{<"as_of":1,>"base":1}', '{"as_of": <1>}', '{"remove": <"a":0,>']
    texts += [json.dumps({"spot": "<1>/7", "base": BOOK["base"], "quote": "ADA"})]
    texts += [json.dumps(BOOK | {"spot": "0.<1>x"}), "2026-11-22T04:17:03.<1>", ":</>", "<:>", "<a>"]
    texts += [f"<{line.decode()}>" for line in sample_lines()[:2]]
    return [re.sub("[<>]", "\0", text).encode() for text in texts]


SEEDS: Final = dict(
    zip(
        TARGETS,
        (order_book_seeds, pair_list_seeds, asset_seeds, price_seeds, long_text_seeds),
        strict=True,
    )
)


def sample_lines() -> list[bytes]:
    return SAMPLE.read_bytes().splitlines()


def recorded_lines(name: str) -> list[bytes]:
    """Return evenly spaced lines of a recorded file."""
    content = (RECORDED / name).read_bytes()
    content = gzip.decompress(content) if name.endswith(".gz") else content
    lines = [line for line in content.splitlines() if len(line) <= MAX_BYTES]
    return lines[:: max(1, len(lines) // RECORDED_SEEDS)]
