"""The JavaScript modules exact.js, names.js and units.js of the page, run by node and compared with Python."""

from __future__ import annotations

import json
import random
import unicodedata
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise, permutations
from typing import Any

import pytest

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair, format_price
from market_index.display import Token, Tokens
from market_index_cli.page.overview import Overview
from market_index_cli.tokens import Display, ticker
from tests.invisible import INVISIBLE
from tests.market_index_cli.page import node
from tests.page import HOSTILE_NAMES, fixed, token

NODE = """
import * as exact from "./exact.mjs";
import { Tokens, Units } from "./assets.mjs";
const { pairs, notPrices, spans, assets, entries, shown, readable, percents, columns, typed } = given;
const tokens = new Tokens(entries);
const attempt = (work) => { try { return work(); } catch (error) { return `${error.name}: ${error.message}`; } };
console.log(JSON.stringify({
  sums: pairs.map(([a, b]) => {
    const [one, other] = [exact.decimal(a), exact.decimal(b)];
    return [
      exact.text(one), exact.text(one + other), exact.text(one - other), exact.text((one + other) / 2n),
      exact.compare(one, other), exact.text(exact.product(one, other)), exact.position(one, 0n, one + other),
    ];
  }),
  notPrices: notPrices.map((text) => attempt(() => exact.decimal(text))),
  spans: spans.map(([low, high, count]) => {
    const ticks = exact.ticks(exact.decimal(low), exact.decimal(high), count);
    return [ticks.map(exact.text), ticks.map((one) => exact.price(one, 64))];
  }),
  grouped: [0n, 999n, 1000n, 2n ** 53n + 1n, 2n ** 64n - 1n].map(exact.whole).map(exact.exactly),
  readable: readable.map(exact.decimal).map((one) => [exact.amount(one), exact.price(one)]),
  columns: columns.map((texts) => {
    const values = texts.map(exact.decimal);
    return values.map((one) => exact.inColumn(one, exact.columnOf(values)));
  }),
  typed: typed.map((text) => attempt(() => exact.text(exact.typed(text)))),
  percents: percents.map((texts) => exact.percent(...texts.map(exact.decimal))),
  ignorable: Array.from({ length: 0x110000 }, (_, code) => code)
    .filter((code) => /\\p{Default_Ignorable_Code_Point}/u.test(String.fromCodePoint(code))),
  labels: assets.map((id) => tokens.nameParts(id)),
  shown: shown.map(([base, quote, price, amount]) => {
    const [whole, smallest] = [tokens, new Tokens()].map((one) => new Units({ base, quote }, one));
    const value = exact.decimal(price);
    const worth = whole.worth({ prices: [{ value, amount: BigInt(amount) }, { value, amount: 1n }] });
    return [
      exact.text(whole.price(value)), exact.exactly(whole.amount(BigInt(amount))),
      exact.text(smallest.price(value)), exact.exactly(smallest.amount(BigInt(amount))), exact.text(worth),
      [whole.baseName, whole.quoteName, whole.remark], tokens.nameOf(base), tokens.nameOf(quote),
    ];
  }),
}));
"""

ASSETS = [token(name, number) for name in (b"SNEK", b"A  B", b"NONE") for number in (1, 2, 2**32 + 1)]
TOKENS = Tokens(
    [
        Token(token(b"SNEK"), "SNEK", decimals=0),
        Token(token(b"A  B", 2), "A B", decimals=19),
        Token(token(b"WIDE", 3), "SNEK", decimals=18),
        # Their labels would be the same.
        Token(token(b"one", 4), "TWIN", decimals=6),
        Token(token(b"two", 4), "TWIN"),
    ]
)
SHOWN_PAIRS = [
    Pair(base, quote)
    for base, quote in permutations([ADA, *(token.asset for token in TOKENS.entries), token(b"NONE", 9)], 2)
]
AMOUNTS = [1, 999, 1_500_000, 2**53 + 1, 2**64 - 1]

READABLE = {
    "499381.007323": ["499,381", "499,381"],
    "1234567.8": ["1.23457 M", "1,234,570"],
    "999999.9": ["1 M", "1,000,000"],
    "0.0000012499934917464313811661290187": ["0.00000124999"] * 2,
    "0.00000124999550000000000": ["0.00000125", "0.00000125"],
    "1234567890123": ["1.23457 T", "1.23457×10¹²"],
    "18446744073709551615": ["1.84467×10¹⁹"] * 2,
    "0": ["0", "0"],
}
PERCENTS = {
    ("1", "3"): "33.3 %",
    ("0", "1"): "0 %",
    ("0.00001234", "1"): "0.00123 %",
    ("0.0010002", "1"): "0.1 %",
    ("0.0099999", "1"): "1 %",
    ("2", "1"): "200 %",
    ("0.0243", "100.0023"): "0.0243 %",
}
COLUMNS = [
    (["10", "20", "30"], ["10", "20", "30"]),
    (["1.5", "0.25", "100"], ["1.50", "0.25", "100.00"]),
    (["424000000", "1272320000", "97660000"], ["424.00 M", "1,272.32 M", "97.66 M"]),
    (["499381.007323", "12345678.9", "3"], ["499,381", "12,345,679", "3"]),
    (["0.000123456789", "5", "0.0001"], ["0.000123457", "5.000000000", "0.000100000"]),
    (["1000000", "2000000", "0.5"], ["1.00000 M", "2.00000 M", "0.5"]),
    (["0"], ["0"]),
    ([], []),
]
NUMBERS = {
    "1": "1",
    " 1500 ": "1500",
    "1500.5": "1500.5",
    "1,234,567": "1234567",
    "1,500.25": "1500.25",
    "1,234,567.": "1234567",
    "1 000": "1000",
    "1 000 000.5": "1000000.5",
    "1\u202f000\u00a0000": "1000000",
    "1 234,5": "1234.5",
    "1,5": "1.5",
    "12,34": "12.34",
    "0,500": "0.5",
    "1234,567": "1234.567",
    ".5": "0.5",
    ",5": "0.5",
    "5.": "5",
    "5,": "5",
    "007": "7",
    "0": "0",
    "1K": "1000",
    "1M": "1000000",
    "1.5 B": "1500000000",
    "1,5 M": "1500000",
    "12.3457 M": "12345700",
    "1,272.32 M": "1272320000",
    "1 T": "1000000000000",
    "0.000000000000000000000000000000000000001": "0.000000000000000000000000000000000000001",
}
TWO_MEANINGS = {
    "1,500": "1500 or 1.500",
    "1,500 M": "1500 M or 1.500 M",
    "1 234,567": "1234567 or 1234.567",
}
NO_NUMBERS = [
    *("1.000,5", "1.000.000", "1,50,000", "1,234,56", "1,234,567,8", "1,,5", "1,000 000", "1 00", "1 0000", "0 500"),
    *("1_000", "1e5", "-5", "+5", ".", ",", "", " ", "abc", "1m", "1 MM", "0x10", "\u0661", "5 ADA", "1" * 41),
]
TYPED = [*NUMBERS, *TWO_MEANINGS, *NO_NUMBERS]
EDGE_PRICES = ["1e-28", str(2**96 - 1), "0.1", "0.10", "1", "4123.5", "0.0000044", "9007199254740993", "1e28"]


def prices(count: int) -> list[str]:
    """Return prices of all magnitudes, always the same ones, starting with the edge cases."""
    drawn = random.Random(7)
    made = [format_price(Decimal(text)) for text in EDGE_PRICES]
    while len(made) < count:
        coefficient = drawn.randrange(1, 2 ** drawn.randrange(1, 97))
        price = Decimal(coefficient).scaleb(-drawn.randrange(29))
        made.append(format(price, "f"))
    return made


def asset_names() -> list[bytes]:
    """Return hostile names, names in several scripts, and random names."""
    texts = ["SNEK", "žluťoučký", "مرحبا", "名前", "🐍", "a b", *"\u3000\u200d\u00ad\u2028\u0000\u115f"]
    drawn = random.Random(9)
    random_names = [drawn.randbytes(drawn.randrange(33)) for _ in range(300)]
    invisible = [text.encode() for one in INVISIBLE for text in (one, f"SN{one}EK", f"{one}SNEK")]
    return [*HOSTILE_NAMES, *map(str.encode, texts), *random_names, *invisible]


def inputs() -> dict[str, Any]:
    """Return the inputs of the program NODE."""
    ones, others = prices(400), prices(400)
    random.Random(8).shuffle(others)
    least, nine = (format_price(Decimal(f"{digit}e-28")) for digit in (1, 9))
    return {
        "pairs": [*zip(ones, others, strict=True), *zip(ones[:20], ones[:20], strict=True)],
        "notPrices": ["", "1.", ".5", "-1", "+1", "1e5", " 1", "1\n", "0x1", "1_0", "\u0661", None, 5, ["1"]],
        "spans": [
            ("0", "5266451", 4),
            ("4110", "4142.55", 8),
            ("1", "1.0000000000000000000000000001", 5),
            ("0", "3", 2),
            # Ranges from 0 with few ticks: 0 may be the only round number.
            *(("0", high, count) for high in ("4.3", "0.000000045", *ones[:100]) for count in (2, 3, 5)),
            ("0", str(2**96), 4),
            (least, nine, 4),
        ],
        "readable": list(READABLE),
        "percents": list(PERCENTS),
        "columns": [values for values, _ in COLUMNS],
        "typed": TYPED,
        "assets": [*(str(token(name)) for name in asset_names()), *map(str, ASSETS), "ADA"],
        "entries": names_of(
            [
                *[token(name) for name in asset_names()],
                *ASSETS,
                *(one.asset for one in TOKENS.entries),
                token(b"NONE", 9),
            ]
        ),
        "shown": [
            (str(pair.base), str(pair.quote), price, str(amount))
            for pair in SHOWN_PAIRS
            for price, amount in zip(ones[:40], AMOUNTS * 8, strict=True)
        ],
    }


def names_of(assets: list[AssetId], tokens: Tokens = TOKENS) -> Any:
    """Return the content of /tokens for these assets."""
    live = LiveIndex(OrderBook(Pair(asset, ADA)) for asset in assets)
    return json.loads(Overview(live, tokens).tokens().text)


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The inputs of the modules, and their results, all computed in one process."""
    given = inputs()
    [found] = node.run(tmp_path_factory.mktemp("modules"), NODE, given)
    return {**found, "given": given}


def test_the_modules_compute_as_exactly_as_fractions(computed: Any):
    for (one, other), result in zip(computed["given"]["pairs"], computed["sums"], strict=True):
        a, b = Fraction(one), Fraction(other)
        wanted = [fixed(a), fixed(a + b), fixed(a - b), fixed((a + b) / 2), (a > b) - (a < b), fixed(a * b)]
        assert result[:-1] == wanted
        assert abs(Fraction(result[-1]) - a / (a + b)) < Fraction(1, 2**39)
    assert computed["grouped"] == [f"{n:,}" for n in (0, 999, 1000, 2**53 + 1, 2**64 - 1)]
    assert {one.partition(":")[0] for one in computed["notPrices"]} == {"SyntaxError"}


def test_the_numbers_of_a_column_have_one_word_and_aligned_decimals(computed: Any):
    assert computed["columns"] == [written for _, written in COLUMNS]


@pytest.mark.decision(41)
def test_a_typed_number_is_understood_or_rejected_with_the_reason(computed: Any):
    results = dict(zip(TYPED, computed["typed"], strict=True))
    ambiguous = {
        text: f"SyntaxError: {text} has two meanings: type {offered}." for text, offered in TWO_MEANINGS.items()
    }
    no_number = "SyntaxError: The amount must be a number, such as 1500.5, 1,500.50 or 1.5 M."
    assert results == NUMBERS | ambiguous | dict.fromkeys(NO_NUMBERS, no_number)


def test_the_page_and_the_terminal_write_prices_in_the_same_way(computed: Any):
    display = Display(is_exact=False)
    assert computed["readable"] == list(READABLE.values())
    assert [price for _, price in READABLE.values()] == [
        display.price(SHOWN_PAIRS[0], Decimal(text)) for text in READABLE
    ]
    assert computed["percents"] == list(PERCENTS.values())


def test_ticks_are_round_numbers_with_exact_labels(computed: Any):
    powers = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
    for (low, high, count), (ticks, labels) in zip(computed["given"]["spans"], computed["spans"], strict=True):
        values = [Fraction(tick) for tick in ticks]
        assert Fraction(low) <= min(values)
        assert max(values) <= Fraction(high)
        assert 1 <= len(values) <= count + 1
        for step in {after - before for before, after in pairwise(values)}:
            assert fixed(step).strip("0.") in {"1", "2", "5"}
        for value, label in zip(values, labels, strict=True):
            number, _, power = label.partition("×10")
            assert Fraction(number.replace(",", "")) * Fraction(10) ** int(power.translate(powers) or 0) == value


def test_a_code_point_with_the_property_is_not_shown(computed: Any):
    """Python does not have the property Default_Ignorable_Code_Point. JavaScript has it."""
    assert len(computed["ignorable"]) > 4_000
    # A surrogate is not UTF-8.
    assert not any(token(chr(code).encode("utf-8", "surrogatepass")).asset_name_text for code in computed["ignorable"])
    # All others are shown, but category C, separators, and two blank symbols. Eight characters are at most 32 bytes.
    hidden = {*computed["ignorable"], 0x2800, 0x1D159}
    visible = [
        one
        for code, one in enumerate(map(chr, range(0x110000)))
        if code not in hidden and unicodedata.category(one)[0] not in "CZ"
    ]
    for at in range(0, len(visible), 8):
        text = "".join(visible[at : at + 8])
        assert token(text.encode()).asset_name_text == text


def test_a_name_has_digits_of_its_policy_unless_it_is_the_only_one_of_the_registry(computed: Any):
    entries = {str(entry.asset): entry.ticker for entry in TOKENS.entries}
    labels = {}
    for text, (name, policy) in zip(computed["given"]["assets"], computed["labels"], strict=True):
        labels[text] = f"{name} {policy}".strip()
        if text in entries:
            assert name == entries[text]
            assert policy in ("", f"{text[:8]}…", text)
        elif text != "ADA":
            assert name == ticker(AssetId.parse(text))
            assert policy in (f"{text[:8]}…", text)
    # A browser shows several spaces as one.
    folded = [" ".join(label.casefold().split()) for label in labels.values()]
    assert len({*folded}) == len(folded), "no two assets look the same"
    assert labels[str(token(b"A  B", 2))] == f"A B {token(b'A  B', 2)}", "others have these digits, too"
    assert labels["ADA"] == "ADA"


def test_the_only_token_of_a_name_has_no_digits():
    alone, other = token(b"ALONE"), token(b"ALONE", 2)
    tokens = Tokens([Token(alone, "ALONE", decimals=2)])
    rows = {row["id"]: row for row in names_of([alone], tokens)["tokens"]}
    assert (rows[str(alone)]["name"], rows[str(alone)]["policy"]) == ("ALONE", "")
    # Without a registry all names are chosen by minters; beside one, a name without an entry has digits.
    assert names_of([alone], Tokens())["tokens"][1]["policy"] == ""
    assert names_of([token(b"NEW", 3)], tokens)["tokens"][1]["policy"] == "00000000…"
    assert {row["policy"] for row in names_of([alone, other], Tokens())["tokens"]} == {"", str(alone), str(other)}


def test_the_page_and_the_library_show_the_same_whole_units(computed: Any):
    for (base, quote, price, amount), result in zip(computed["given"]["shown"], computed["shown"], strict=True):
        pair = Pair(AssetId.parse(base), AssetId.parse(quote))
        human = format(TOKENS.human_price(pair, Decimal(price)), "f")
        assert result[:2] == [human, format(TOKENS.human_amount(pair.base, int(amount)), ",f")]
        assert result[2:4] == [format_price(Decimal(price)), f"{int(amount):,}"]
        assert result[4] == fixed(Fraction(human) * Fraction(TOKENS.human_amount(pair.base, int(amount) + 1)))
        units, *names = result[5:]
        for asset, name, unit in zip((pair.base, pair.quote), names, units, strict=False):
            is_known = TOKENS.decimals(asset) is not None
            assert unit == (f"\u2068{name}\u2069" if is_known else f"smallest units of \u2068{name}\u2069")
            assert (name in units[2]) == (not is_known) or is_known
