"""Labels and human units of tokens, also from hostile entries of the registry."""

from __future__ import annotations

import json
import re
import unicodedata
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import (
    ADA,
    AssetId,
    InvalidOrderBook,
    InvalidPrice,
    InvalidTokens,
    Pair,
)
from market_index.display import Token, Tokens
from market_index.display.tokens import MAX_DECIMALS, MAX_NAME_LENGTH
from market_index.errors import safe_repr
from market_index.prices import MAX_COEFFICIENT
from market_index.strategies import pairs, prices
from market_index.strategies import tokens as drawn_tokens
from tests.invisible import INVISIBLE

DEEP = 100_000
NOT_JSON = "token metadata must be JSON, but is not:"
NO_ENTRIES = 'token metadata must be an entry with a subject, an array of entries, or {"subjects": […]}, got'
POLICY = "279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f"
NAMELESS = AssetId(bytes(28), b"")
SNEK, OTHER = (AssetId.parse(f"{policy}:534e454b") for policy in (POLICY, POLICY.replace("279c", "1111")))


def entry(asset: AssetId = SNEK, **properties: Any) -> dict[str, Any]:
    """Return an entry in the form of the registry."""
    return {"subject": asset.unit, **{name: {"value": value, "signatures": []} for name, value in properties.items()}}


def version_2(one: dict[str, Any]) -> dict[str, Any]:
    """Return an entry as version 2 of the registry's API has it."""
    values = {name: {"value": found["value"], "source": "CIP_26"} for name, found in one.items() if name != "subject"}
    return {"subject": one["subject"], "metadata": {**values, "url": None}, "standards": None}


def read(*entries: Any) -> Tokens:
    return Tokens.from_json(json.dumps([*entries]).encode())


class TestReading:
    """`Tokens.from_json`."""

    ENTRIES = (
        entry(SNEK, ticker="SNEK", name="Snek", decimals=0, logo="iVBORw0KGgo="),
        entry(OTHER, name="Other", decimals=MAX_DECIMALS),
    )
    TOKENS = (Token(OTHER, None, "Other", MAX_DECIMALS), Token(SNEK, "SNEK", "Snek", 0))

    @pytest.mark.parametrize(
        "texts",
        [
            [json.dumps(ENTRIES)],
            [json.dumps({"subjects": ENTRIES})],
            ["\ufeff" + json.dumps(ENTRIES, indent=2)],
            [json.dumps(one, indent=2) for one in ENTRIES],
            [json.dumps({"subjects": [version_2(one) for one in ENTRIES], "queryPriority": ["CIP_68", "CIP_26"]})],
            [json.dumps({"subject": version_2(one), "queryPriority": ["CIP_68", "CIP_26"]}) for one in ENTRIES],
        ],
        ids=["array", "response", "mark", "files", "version 2", "version 2, one each"],
    )
    def test_each_form_has_the_same_entries(self, texts: list[str]):
        tokens = Tokens.from_json(*(text.encode() for text in texts))
        assert (tokens.entries, tokens.rejected) == (self.TOKENS, ())
        assert tokens == Tokens(self.TOKENS) == Tokens(reversed(self.TOKENS))
        assert hash(tokens) == hash(Tokens(self.TOKENS))
        assert [tokens.decimals(asset) for asset in (SNEK, OTHER, ADA, NAMELESS)] == [0, MAX_DECIMALS, 6, None]

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (b"", f"{NOT_JSON} Expecting value: line 1 column 1 (char 0)"),
            (b"{}\n{}", f"{NOT_JSON} Extra data: line 2 column 1 (char 3)"),
            (b"\xff", f"{NOT_JSON} 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
            (b"[" * DEEP, f"{NOT_JSON} nested too deeply"),
            (b"[" * DEEP + b'"', f"{NOT_JSON} nested too deeply"),
            (b"7", f"{NO_ENTRIES} 7"),
            (b'{"subjects": {}}', f"{NO_ENTRIES} {{'subjects': {{}}}}"),
        ],
    )
    def test_a_text_without_entries_is_rejected(self, text: bytes, reason: str):
        with pytest.raises(InvalidTokens) as raised:
            Tokens.from_json(text)
        assert str(raised.value) == reason
        # Beside others it is left out, as an entry that is not valid.
        good = json.dumps(entry(OTHER, ticker="X")).encode()
        tokens = Tokens.from_json(good, text)
        assert (tokens.entries, tokens.rejected) == ((Token(OTHER, "X"),), (f"text 2: {reason}",))
        with pytest.raises(InvalidTokens, match=rf"^a\.json: {re.escape(reason)}$"):
            Tokens.from_json(text, text, names=["a.json", "b.json"])

    @pytest.mark.parametrize(
        ("names", "places"),
        [([], ("text 1", "text 2", "text 3")), (["a.json", "b.json", "c"], ("a.json", "b.json", "c"))],
    )
    def test_messages_name_the_text_and_the_entry(self, names: list[str], places: tuple[str, str, str]):
        texts, rule = [b'[{"subject": 7}, 7]', b'{"subject": 8}', b'{"subjects": [9]}'], "an entry must have a subject"
        assert Tokens.from_json(*texts, names=names).rejected == (
            f"{places[0]} entry 0: {rule}, got {{'subject': 7}}",
            f"{places[0]} entry 1: {rule}, got 7",
            f"{places[1]}: {rule}, got {{'subject': 8}}",
            f"{places[2]} entry 0: {rule}, got 9",
        )
        assert Tokens.from_json(texts[1]).rejected == (f"the entry: {rule}, got {{'subject': 8}}",)

    @pytest.mark.parametrize(
        ("wrong", "reason"),
        [
            ({"subject": None}, "an entry must have a subject, got {'subject': None}"),
            (
                {"subject": SNEK.unit},
                f"an entry must have a ticker, a name or decimals, got {safe_repr({'subject': SNEK.unit})}",
            ),
            ({"subject": "x"}, "the policy id must have 56 digits, got 1: 'x'"),
            (
                {"subject": "lovelace", "decimals": {"value": 6}},
                f"an entry must be a Token of another asset than ADA, got {Token(ADA, decimals=6)}",
            ),
            (entry(decimals=6.0), "decimals must be an integer from 0 to 19, got '6.0'"),
            (entry(ticker=7), "ticker must be a text, got 7"),
            (entry(name=["a"]), "name must be a text, got ['a']"),
            ({"subject": SNEK.unit, "metadata": None}, "metadata must be an object, got None"),
            ({"subject": SNEK.unit, "ticker": "SNEK"}, "ticker must be an object with a value, got 'SNEK'"),
            ({"subject": SNEK.unit, "decimals": {}}, "decimals must be an object with a value, got {}"),
            (entry(OTHER, name="Y"), f"an asset must have one entry, got another one of {OTHER}"),
        ],
    )
    def test_an_entry_that_is_not_valid_is_left_out(self, wrong: Any, reason: str):
        tokens = read(entry(OTHER, ticker="X"), wrong)
        assert (tokens.entries, tokens.rejected) == ((Token(OTHER, "X"),), (f"entry 1: {reason}",))
        assert (tokens, hash(tokens)) == (read(entry(OTHER, ticker="X")), hash(read(entry(OTHER, ticker="X"))))

    def test_a_text_with_a_number_of_many_digits_is_rejected(self):
        text = json.dumps([entry(decimals=7)]).replace("7,", "7" * 100_000 + ",").encode()
        with pytest.raises(InvalidTokens, match=rf"^{NOT_JSON} Exceeds the limit"):
            Tokens.from_json(text)

    def test_a_value_of_null_is_absent(self):
        assert read(entry(ticker=None, decimals=0)).entries == (Token(SNEK, decimals=0),)
        assert read({"subject": SNEK.unit, "ticker": None, "name": {"value": "x"}}).entries == (Token(SNEK, name="x"),)

    def test_each_text_needs_a_name(self):
        with pytest.raises(ValueError):
            Tokens.from_json(b"[]", names=["a", "b"])

    def test_a_text_is_read_as_its_bytes_are(self):
        text = '[{"subject": "%s", "ticker": {"value": "大"}}]' % ("00" * 28)
        assert Tokens.from_json(text) == Tokens.from_json(text.encode())
        assert Tokens.from_json(text).find("大")


class TestLabels:
    """`Tokens.label` and `Tokens.find`."""

    def test_a_label_is_the_first_name_and_digits_of_the_policy(self):
        assert read(entry(ticker="SN", name="Snek")).label(SNEK) == "SN 279c909f"
        assert read(entry(ticker=" ", name="Snek")).label(SNEK) == "Snek 279c909f"
        assert read(entry(decimals=0)).label(SNEK) == "SNEK 279c909f"
        assert Tokens().label(SNEK) == "SNEK 279c909f"
        assert Tokens().label(AssetId(SNEK.policy_id, b"\xff")) == "279c909f"

    @pytest.mark.decision(29)
    def test_equal_tickers_are_distinguished_by_the_policy(self):
        tokens = read(entry(SNEK, ticker="X"), entry(OTHER, ticker="X"))
        assert (tokens.label(SNEK), tokens.label(OTHER)) == ("X 279c909f", "X 1111909f")

    def test_equal_tickers_whose_policies_begin_alike_have_the_whole_identifier(self):
        twin = AssetId(SNEK.policy_id[:4] + bytes(24), b"SNEK")
        third = AssetId(SNEK.policy_id, b"THIRD")
        tokens = read(entry(SNEK, ticker="X"), entry(twin, ticker="X"), entry(third, ticker="X"))
        assert [tokens.label(one) for one in (SNEK, twin, third)] == [f"X {one}" for one in (SNEK, twin, third)]
        nameless = [AssetId(one.policy_id, b"\xff") for one in (SNEK, twin)]
        tokens = read(*[entry(one, decimals=0) for one in nameless])
        assert [tokens.label(one) for one in nameless] == list(map(str, nameless))

    def test_a_token_without_an_entry_does_not_look_like_one_with_an_entry(self):
        twin = AssetId(SNEK.policy_id[:4] + bytes(24), b"SNEK")
        assert read(entry(SNEK, decimals=0)).label(twin) == f"SNEK {twin}"

    @pytest.mark.parametrize(
        ("name", "shown"),
        [
            ("a\nb\tc\x1b[31m", "a b c [31m"),
            ("\u202eevil\u2066", "evil"),
            ("\u200b\u200d", "SNEK"),
            ("\u0301\u0301", "SNEK"),
            *((one, "SNEK") for one in INVISIBLE),
            *((f"{one}X{one}", "X") for one in INVISIBLE),
            # Not "SNAKE", which another token may be named.
            *((f"SN{one}AKE", "SN AKE") for one in INVISIBLE),
            ("   ", "SNEK"),
            ("\U0001f600" * 50, "\U0001f600" * 50),
            ("x" * 51, "x" * 49 + "…"),
            ("<b>&", "<b>&"),
            ("\u5b89", "\u5b89"),
        ],
    )
    def test_a_hostile_name_is_one_line_of_printable_text(self, name: str, shown: str):
        assert read(entry(ticker=name)).label(SNEK) == f"{shown} 279c909f"

    @given(drawn_tokens())
    def test_no_two_entries_have_the_same_label(self, tokens: Tokens):
        assets = [ADA, *(token.asset for token in tokens.entries)]
        labels = [tokens.label(asset) for asset in assets]
        assert len({*labels}) == len(assets)
        for asset, label in zip(assets, labels, strict=True):
            assert asset.policy_id.hex()[:8] in label
            assert label.isprintable()
            assert (label == "ADA") is asset.is_ada
            assert not any(unicodedata.category(one).startswith("C") for one in label)
            assert len(label) <= MAX_NAME_LENGTH + 1 + 121

    def test_tokens_are_found_by_ticker_name_and_asset_name(self):
        tokens = read(entry(SNEK, ticker="SN", name="The Snek"), entry(OTHER, ticker="ADA", name="sn"))
        assert tokens.find("sn") == (OTHER, SNEK)
        assert tokens.find("the snek") == (SNEK,)
        assert tokens.find("SNEK") == (OTHER, SNEK)
        assert tokens.find("ada") == (ADA, OTHER)
        assert tokens.find("") == tokens.find("nothing") == ()
        assert tokens.names(SNEK) == {"SN", "The Snek", "SNEK"}
        assert tokens.names(ADA) == {"ADA"}
        assert tokens.names(NAMELESS) == frozenset()


class TestHumanUnits:
    """Prices and amounts in whole units, and back."""

    TOKENS = Tokens([Token(SNEK, decimals=0), Token(OTHER, decimals=19)])

    @given(pairs(), st.integers(0, MAX_DECIMALS), st.integers(0, MAX_DECIMALS), prices())
    def test_prices_are_exact_and_come_back(self, pair: Pair, base: int, quote: int, price: Decimal):
        decimals = {ADA: 6} | {asset: n for asset, n in ((pair.base, base), (pair.quote, quote)) if asset != ADA}
        tokens = Tokens(Token(asset, decimals=number) for asset, number in decimals.items() if asset != ADA)
        with localcontext(prec=3):
            human = tokens.human_price(pair, price)
            assert Fraction(human) == Fraction(price) * Fraction(10) ** (decimals[pair.base] - decimals[pair.quote])
            _, digits, exponent = human.as_tuple()
            assert exponent == 0 or (isinstance(exponent, int) and exponent < 0 and digits[-1] != 0)
            assert tokens.price_from_human(pair, human) == price
            assert tokens.price_from_human(pair, str(human)) == price

    @given(st.integers(0, MAX_DECIMALS), st.integers(0, 2**70))
    def test_amounts_are_exact_and_come_back(self, decimals: int, amount: int):
        tokens = Tokens([Token(SNEK, decimals=decimals)])
        human = tokens.human_amount(SNEK, amount)
        assert Fraction(human) == Fraction(amount, 10**decimals)
        assert tokens.amount_from_human(SNEK, human) == tokens.amount_from_human(SNEK, str(human)) == amount

    def test_differences_and_zero_are_converted_too(self):
        assert str(self.TOKENS.human_price(Pair(SNEK, ADA), Decimal("-1.50"))) == "-0.0000015"
        assert str(self.TOKENS.human_price(Pair(OTHER, SNEK), Decimal("-0E-28"))) == "0"
        assert str(self.TOKENS.human_amount(OTHER, 0)) == "0"
        assert str(self.TOKENS.human_price(Pair(OTHER, SNEK), Decimal("3E2"))) == "3" + "0" * 21

    def test_an_asset_without_decimals_counts_in_smallest_units(self):
        assert self.TOKENS.human_amount(NAMELESS, 7) == 7
        assert self.TOKENS.human_price(Pair(NAMELESS, ADA), Decimal(5)) == Decimal("0.000005")
        assert self.TOKENS.amount_from_human(NAMELESS, "7") == 7

    @pytest.mark.parametrize("wrong", [1.5, "1", None, True, Decimal("NaN"), Decimal("Infinity")])
    def test_only_a_finite_decimal_is_a_price_and_also_an_int_an_amount(self, wrong: Any):
        given = re.escape(f"{type(wrong).__name__}: {safe_repr(wrong)}")
        with pytest.raises(InvalidPrice, match=rf"^a price must be a finite Decimal, got {given}$"):
            self.TOKENS.human_price(Pair(SNEK, ADA), wrong)
        with pytest.raises(TypeError, match=rf"^amount must be an int or a finite Decimal, got {given}$"):
            self.TOKENS.human_amount(SNEK, wrong)

    @pytest.mark.parametrize("human", ["-1", "10,000", "NaN", Decimal(-1), 1.5, True, None, "1e999999999", "0/0"])
    def test_other_values_are_no_human_numbers(self, human: Any):
        with pytest.raises(InvalidPrice, match=r"^the price must "):
            self.TOKENS.price_from_human(Pair(SNEK, ADA), human)
        with pytest.raises(InvalidPrice, match=r"^the amount must "):
            self.TOKENS.amount_from_human(SNEK, human)

    @pytest.mark.parametrize("zero", ["0", "0.00", ".0", "0e5", 0, Decimal(0), Decimal("0E-7")])
    def test_zero_is_an_amount_and_no_price(self, zero: Any):
        assert self.TOKENS.amount_from_human(ADA, zero) == 0
        with pytest.raises(InvalidPrice):
            self.TOKENS.price_from_human(Pair(SNEK, ADA), zero)

    def test_the_units_name_the_assets_whose_decimals_are_not_known(self):
        tokens = Tokens([Token(SNEK, decimals=0), Token(OTHER, "X")])
        assert tokens.units(SNEK, ADA) == tokens.units() == "in whole units"
        assert tokens.units(OTHER, SNEK, NAMELESS, OTHER) == (
            "in whole units, but in smallest units of X 1111909f and of 00000000, whose decimals are not known"
        )

    @pytest.mark.parametrize(
        ("human", "message"),
        [
            ("1/3", "a price of SNEK 279c909f in ADA must be a price in smallest units, got '1/3'"),
            ("1e-35", "a price must be at least"),
            (str(MAX_COEFFICIENT), "a price must be at most"),
            ("1e100", "a price must be at most"),
        ],
    )
    def test_a_human_price_that_is_no_price_in_smallest_units_is_rejected(self, human: str, message: str):
        with pytest.raises(InvalidPrice, match=rf"^{message}"):
            self.TOKENS.price_from_human(Pair(SNEK, ADA), human)

    def test_an_amount_with_too_many_decimals_is_rejected(self):
        with pytest.raises(InvalidOrderBook, match=r"^an amount of ADA must have at most 6 decimals, got '0.0000001'$"):
            self.TOKENS.amount_from_human(ADA, "0.0000001")
