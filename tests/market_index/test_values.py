"""What every value of the library has in common: equality, hash, immutability, pickle, copy, repr, and validation."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
import re
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import attrs
import msgspec
import pytest
from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, override
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.vendor.pretty import pretty

import market_index
import market_index.display
from market_index import (
    ADA,
    AssetId,
    CumulativeLevel,
    Freshness,
    Liquidity,
    LiveIndex,
    MarketIndex,
    MarketIndexError,
    Order,
    OrderBook,
    Pair,
    PairInfo,
    PriceLevel,
    RestingOrders,
    Side,
    wire,
)
from market_index.display import Token, Tokens
from market_index.strategies import (
    amounts,
    asset_ids,
    market_indexes,
    order_books,
    orders,
    pair_infos,
    pairs,
    price_levels,
    prices,
    resting_orders,
)

books = order_books(max_levels=3)
# Books whose levels were not accessed yet: decoded, and derived from another.
read_books = books.map(lambda book: wire.order_book_from_json(wire.order_book_to_json(book)))
derived_books = books.map(lambda book: book.apply(bids=[("7", 7)], asks=[("8", 8)]))
sides = st.one_of(books, read_books, derived_books).map(lambda book: book.asks)
some_freshness = st.builds(Freshness, st.none() | st.just("slot 7"), st.none() | st.just(dt.datetime.now(dt.UTC)))
tokens = st.builds(Token, asset_ids(ada=False), st.none() | st.text(), st.none() | st.text(), st.none() | st.just(6))
values = st.one_of(
    asset_ids(),
    pairs(),
    pair_infos(),
    price_levels(),
    orders(),
    books,
    read_books,
    derived_books,
    sides,
    market_indexes(),
    resting_orders(),
    some_freshness,
    tokens,
    st.lists(tokens, max_size=3, unique_by=lambda token: token.asset).map(Tokens),
    books.map(lambda book: book.buy(10**12)),
    order_books(sides=Side.ASK, min_levels=1, max_levels=3).map(lambda book: book.cumulative(Side.ASK)[-1]),
    st.builds(Liquidity, base=amounts(), quote=prices()),
)

# `copy` has it since Python 3.13.
replace: Any = getattr(copy, "replace", attrs.evolve)

SNEK = AssetId(bytes(28), b"SNEK")
PAIR = Pair(SNEK, ADA)
LEVEL = PriceLevel("2", 10)
BOOK = OrderBook.from_levels(PAIR, bids=[LEVEL, ("1", 5)], asks=[("3", 7)], spot="2.5")
ORDER = Order(PAIR, Side.ASK, Fraction(1, 3), 7)
RECORDS = [
    SNEK,
    PAIR,
    PairInfo(SNEK, ADA, "2.5"),
    LEVEL,
    ORDER,
    BOOK,
    Freshness("slot 7", dt.datetime(2026, 11, 22, tzinfo=dt.UTC)),
    Liquidity(7, Decimal("2.5")),
    CumulativeLevel(Decimal("0.5"), 7, Decimal("2.5")),
    BOOK.sell(12),
    Token(SNEK, "SNEK", "Snek", 0),
    Tokens([Token(SNEK)], ("text 2: no entry",)),
]
COLLECTIONS = [BOOK.bids, MarketIndex([BOOK], "slot 7"), RestingOrders({"a#0": ORDER}, {PAIR: "2"}, "slot 7")]


class HandMade:
    """Its pickle makes an object of another class from a state, and calls no constructor."""

    def __init__(self, kind: type, state: object) -> None:
        self.kind, self.state = kind, state

    def __reduce__(self) -> tuple[object, ...]:
        return object.__new__, (self.kind,), self.state


class Foreign:
    """An object of another class that does not implement comparison."""

    __hash__ = None  # type: ignore[assignment]  # it need not be hashable

    def __eq__(self, other: object) -> bool:
        return NotImplemented


def name_of(value: object) -> str:
    return type(value).__name__


def test_each_public_value_class_is_tested():
    public = {one for name in market_index.__all__ if isinstance(one := getattr(market_index, name), type)}
    public = {one for one in public if not issubclass(one, Exception)}
    # A tuple of values, an enumeration, and the only object that changes.
    assert public - {*map(type, [*RECORDS, *COLLECTIONS])} == {market_index.CumulativeLevels, Side, LiveIndex}


def test_completion_shows_the_public_names():
    assert dir(market_index) == sorted(market_index.__all__)


@given(values)
def test_a_value_survives_pickle(value):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        duplicate = pickle.loads(pickle.dumps(value, protocol))
        assert duplicate == value
        assert hash(duplicate) == hash(value)
        assert repr(duplicate) == repr(value)
        assert type(duplicate) is type(value)


@given(values)
def test_a_copy_is_the_value_itself(value):
    assert copy.copy(value) is value
    assert copy.deepcopy(value) is value
    assert copy.deepcopy([value])[0] is value


def test_a_live_index_is_neither_copied_nor_pickled():
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="copy its `current`"):
            duplicate(LiveIndex())


@given(values, values)
def test_a_value_equals_only_values_of_its_class(one, other):
    if type(one) is not type(other):
        assert one != other
    assert (one == other) == (other == one)
    if one == other:
        assert hash(one) == hash(other)
    foreigners = [None, 0, "ADA", b"", (), [], Foreign(), object()]
    for foreign in foreigners if isinstance(one, MarketIndex) else [*foreigners, {}]:
        assert not one == foreign  # noqa: SIM201  # the subject is ==
        assert one != foreign


def names_in(value: object) -> set[str]:
    """Return all names of an object but those of methods of Python, and one that it does not have."""
    slots = {slot for of_type in type(value).__mro__ for slot in getattr(of_type, "__slots__", ())}
    return slots | {name for name in dir(value) if not name.startswith("__")} | {"another"}


@pytest.mark.decision(38)
@given(values)
def test_a_value_rejects_assignment_also_of_private_names(value):
    assert not hasattr(value, "__dict__")
    parts = [value]
    for levels in (value.bids, value.asks) if type(value) is OrderBook else ():
        parts.append(levels)
    for part in parts:
        for name in names_in(part) - {"__weakref__"}:
            with pytest.raises(AttributeError):
                setattr(part, name, None)
            with pytest.raises(AttributeError):
                delattr(part, name)


@given(st.one_of(asset_ids(), pairs()))
def test_a_value_is_ordered_only_against_values_of_its_class(value):
    with pytest.raises(TypeError):
        _ = value < "ADA"


NAMES = {"datetime": dt, "Decimal": Decimal, "Fraction": Fraction} | vars(market_index) | vars(market_index.display)


class TestText:
    """What `repr` and IPython show can be evaluated."""

    @given(values)
    def test_a_short_repr_evaluates_to_the_value(self, value):
        text = repr(value)
        assert "\n" not in text
        if "<" in text:  # a summary, of an index, orders and entries, or of more than three levels
            assert value not in (MarketIndex(), RestingOrders(), Tokens())
            assert isinstance(value, MarketIndex | RestingOrders | Tokens) or text.count("…") == text.count("<Levels: ")
        else:
            assert eval(text, dict(NAMES)) == value  # printed by the library

    @given(values | order_books(max_levels=20))
    def test_what_ipython_and_hypothesis_print_evaluates_to_the_value(self, value):
        assert eval(pretty(value), dict(NAMES)) == value  # printed by the library

    @pytest.mark.parametrize("value", [BOOK, *COLLECTIONS], ids=name_of)
    def test_ipython_prefers_it_to_the_repr(self, value):
        # Hypothesis calls an inherited method. IPython calls that of the first class that has it or a repr.
        assert callable(vars(type(value)).get("_repr_pretty_"))

    def test_up_to_50_items_are_printed_one_by_one(self):
        for count, is_whole in ((50, True), (51, False)):
            book = OrderBook.from_levels(PAIR, asks=[(str(at), 1) for at in range(1, count + 1)])
            index = MarketIndex(OrderBook(Pair(AssetId(at.to_bytes(28, "big"), b""), ADA)) for at in range(count))
            resting = RestingOrders(dict.fromkeys(map(str, range(count)), ORDER))
            entries = Tokens(Token(pair.base) for pair in index)
            for value in (book, book.asks, index, resting, entries):
                text = pretty(value)
                assert ("<" not in text) == is_whole
                assert is_whole or len(text) < 500


AMOUNT = "must be a whole number (int) from"
DIFFERENT = "base and quote must be different assets, got 'ADA' twice"
AS_OF = "as_of must be 1 to 200 printable ASCII characters with no space at either end, got"
# The rule of each field, and values that break it. A message is the rule, and the rejected value.
WRONG: dict[type, dict[str, dict[str, list[object]]]] = {
    AssetId: {
        "policy_id": {
            "policy_id must have 28 bytes, got": [bytes(27), b""],
            "policy_id must be bytes, got": ["", None],
        },
        "asset_name": {
            "asset_name must have at most 32 bytes, got 33": [bytes(33)],
            "asset_name must be bytes, got": [bytearray(4), "SNEK"],
        },
    },
    Pair: {"base": {"base must be an AssetId, got": ["ADA", None]}, "quote": {"quote must be an AssetId, got": [PAIR]}},
    PairInfo: {
        "base": {DIFFERENT: [ADA], "base must be an AssetId, got": ["ADA"]},
        "quote": {"quote must be an AssetId, got": ["ADA"]},
        "last_spot": {"a price must be": ["-1", Decimal(0), 0.5]},
    },
    PriceLevel: {
        "price": {
            "a price must be": [Decimal(-5), Decimal("NaN"), Decimal(2**96), "0", 0.5, 1, None],
            "a price must have at most 28 decimal places, got": [Decimal("1e-29")],
        },
        "accumulated_liquidity": {
            f"accumulated_liquidity {AMOUNT} 1 to 2^64-1, got": [0, -1, 2**64, 10**6000, True, 1.0, "1", None]
        },
    },
    Order: {
        "pair": {DIFFERENT: [Pair(ADA, ADA)], "pair must be a Pair, got": [None, "SNEK/ADA"]},
        "side": {"side must be Side.BID or Side.ASK, got": ["bid", None, 1]},
        "price": {
            "a ratio must have at most 600 digits in each number, got": [
                Fraction(10**600 + 1, 10**600 - 1),
                Fraction(10**5000 + 1, 10**5000),
            ],
            "a ratio must be above 0, got": [Fraction(0), Fraction(-1, 3)],
            "a price must be": [Fraction(1, 3 * 10**28), Fraction(2**97), Decimal(-5), 0.5, None],
        },
        "amount": {f"amount {AMOUNT} 0 to 2^64-1, got": [-1, 2**64, True, 1.0, "1"]},
    },
    OrderBook: {
        "pair": {DIFFERENT: [Pair(ADA, ADA)], "pair must be a Pair, got": ["ADA", None]},
        "bids": {
            "bids[1].price must be below bids[0].price, which is 2, got 2": [[LEVEL, LEVEL]],
            "bids[0] must be a PriceLevel, got ('2', 1)": [[("2", 1)]],
            "bids must be a list of PriceLevel, best price first, got": [7, None],
        },
        "asks": {
            "asks[1].price must be above asks[0].price, which is 2, got 1": [BOOK.bids],
            "asks[1].price must be above asks[0].price, which is 4, got 2": [[PriceLevel("4", 1), LEVEL]],
        },
        "spot": {"the spot must be": [Decimal(-1), 0.5, "0"]},
    },
    Freshness: {
        "as_of": {AS_OF: [" x", "x ", "", "x" * 201, "a\n", "\x7f", "ä", "\u2028", "\x00", "a\tb", b"a", 7]},
        "published_at": {
            "published_at must be a datetime with a time zone, got": [dt.datetime(2026, 1, 1), "2026-01-01", 1.0],  # noqa: DTZ001  # without a time zone
            "published_at must be in the years 1 to 9999, got": [
                dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-1)))
            ],
        },
    },
    Token: {
        "asset": {"asset must be an AssetId, got": ["SNEK", None]},
        "ticker": {"ticker must be a text, got": [7]},
        "name": {"name must be a text, got": [b"Snek"]},
        "decimals": {"decimals must be an integer from 0 to 19, got": [-1, 20, True, "6"]},
    },
    Tokens: {
        "entries": {
            "an entry must be a Token of another asset than ADA, got": [[Token(ADA)], ["SNEK"]],
            "an asset must have one entry, got another one of": [[Token(SNEK), Token(SNEK)]],
        }
    },
}
ROWS = [
    pytest.param(value, {name: wrong}, rule, id=f"{name_of(value)}-{name}-{number}")
    for value in RECORDS
    for name, rules in WRONG.get(type(value), {}).items()  # results of an analysis are not validated
    for number, (rule, wrong) in enumerate((rule, wrong) for rule, some in rules.items() for wrong in some)
]


class Reduced:
    """Is pickled as other values are: a function, its arguments, and a state."""

    def __init__(self, reduced: tuple[Any, ...]) -> None:
        self.reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self.reduced


class TestValidation:
    """Each way to make a value validates it or fails (decision 38)."""

    def forged(self, value: Any, wrong: dict[str, object]) -> Any:
        """Return an invalid value that no constructor has seen."""
        forged = object.__new__(type(value))
        for name, part in (attrs.asdict(value, recurse=False) | wrong).items():
            object.__setattr__(forged, name, part)
        return forged

    def require_valid_or_error(self, fields: dict[str, object], kind: type) -> None:
        """Let msgspec make the value. It converts some types, such as 1.0 to 1, and does not know others."""
        with suppress(msgspec.ValidationError, TypeError):
            read: Any = msgspec.convert(fields, kind)
            parts = attrs.asdict(read, recurse=False)
            assert parts == attrs.asdict(kind(**parts), recurse=False)
            assert any(type(parts[name]) is not type(part) for name, part in fields.items())

    @pytest.mark.decision(1, 6, 11, 38)
    @pytest.mark.parametrize(("value", "wrong", "rule"), ROWS)
    def test_each_way_rejects_each_invalid_field(self, value, wrong, rule):
        fields = attrs.asdict(value, recurse=False) | wrong
        unread = {name: override(struct_hook=lambda part, _: part) for name in fields}
        structure: Any = make_dict_structure_fn(type(value), Converter(), _cattrs_detailed_validation=False, **unread)  # type: ignore[arg-type]  # of attrs
        for make in (
            lambda: type(value)(**fields),
            lambda: attrs.evolve(value, **wrong),
            lambda: replace(value, **wrong),
            lambda: structure(fields, type(value)),
            lambda: pickle.loads(pickle.dumps(self.forged(value, wrong))),
        ):
            with pytest.raises(MarketIndexError, match=f"^{re.escape(rule)}"):
                make()
        self.require_valid_or_error(fields, type(value))
        with attrs.validators.disabled(), pytest.raises(MarketIndexError):
            type(value)(**fields)

    @pytest.mark.decision(38)
    @pytest.mark.parametrize("value", RECORDS, ids=name_of)
    def test_each_way_accepts_what_is_valid(self, value):
        fields = attrs.asdict(value, recurse=False)
        assert type(value)(**fields) == attrs.evolve(value) == replace(value) == value
        if type(value) is Order:
            with pytest.raises(TypeError, match="Type unions"):
                msgspec.convert(fields, Order)
        else:
            assert msgspec.convert(fields, type(value)) == value

    def test_msgspec_normalizes_as_the_constructor_does(self):
        for text, level in ((b"0.50", PriceLevel("0.5", 7)), (b"5E+1", PriceLevel("50", 7))):
            read: object = msgspec.json.decode(b'{"price":"%s","accumulated_liquidity":7}' % text, type=PriceLevel)
            assert repr(read) == repr(level)
        read = msgspec.json.decode(b'{"published_at":"2026-01-01T01:00:00.1239+01:00"}', type=Freshness)
        assert repr(read) == repr(Freshness(None, dt.datetime(2026, 1, 1, 0, 0, 0, 123000, tzinfo=dt.UTC)))

    @pytest.mark.decision(38)
    @pytest.mark.parametrize("value", COLLECTIONS, ids=name_of)
    def test_a_collection_is_made_by_its_constructor_alone(self, value):
        kind = type(value)
        for make in (lambda: attrs.evolve(value), lambda: attrs.asdict(value)):
            with pytest.raises(attrs.exceptions.NotAnAttrsClassError):
                make()
        with pytest.raises((TypeError, attrs.exceptions.NotAnAttrsClassError)):
            replace(value)
        for text in (b"{}", b"[]", b'{"side":"bid"}', b'{"books":[]}'):
            with pytest.raises((msgspec.ValidationError, TypeError)):
                msgspec.json.decode(text, type=kind)
        with pytest.raises((MarketIndexError, TypeError, ValueError)):
            kind([7])

    @pytest.mark.decision(38)
    @pytest.mark.parametrize("value", [*RECORDS, *COLLECTIONS], ids=name_of)
    def test_a_pickle_that_calls_no_constructor_is_rejected(self, value):
        names = [name for of_type in type(value).__mro__ for name in getattr(of_type, "__slots__", ())]
        state = dict.fromkeys(names)
        for wrong in (state, (None, state), tuple(state.values())):  # as for a dict, slots, and a class of attrs
            with pytest.raises((AttributeError, pickle.UnpicklingError)):
                pickle.loads(pickle.dumps(HandMade(type(value), wrong)))

    @pytest.mark.decision(38)
    @pytest.mark.parametrize(
        ("prices", "amounts"), [("1 2", [7, 7]), ("2 1", [7, 0]), ("2", [7, 7]), ("-1", [7]), ("2", [-1]), ("2", [0.5])]
    )
    def test_a_pickle_of_invalid_levels_is_rejected(self, prices, amounts):
        rebuild, (side, *_) = BOOK.bids.__reduce__()
        with pytest.raises((MarketIndexError, TypeError, OverflowError, ValueError)):
            rebuild(side, prices, amounts)

    @pytest.mark.decision(38)
    @pytest.mark.parametrize("value", [*RECORDS, *COLLECTIONS], ids=name_of)
    def test_a_pickle_with_a_state_is_rejected(self, value):
        # A state is set after the constructor, which has validated other fields.
        make, arguments = value.__reduce__()
        name = attrs.fields(type(value))[0].name if value in RECORDS else type(value).__slots__[-1]
        for state in ({name: None}, (None,), (None, {name: None})):
            forged = Reduced((make, arguments, state))
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                with pytest.raises((AttributeError, pickle.UnpicklingError)):
                    pickle.loads(pickle.dumps(forged, protocol))


class TestRecords:
    """attrs and pattern matching."""

    def test_asdict_leaves_collections_as_they_are(self):
        as_dict = attrs.asdict(BOOK)
        assert as_dict == {
            "pair": {"base": attrs.asdict(SNEK), "quote": attrs.asdict(ADA)},
            "bids": BOOK.bids,
            "asks": BOOK.asks,
            "spot": Decimal("2.5"),
        }
        assert as_dict["bids"] is BOOK.bids
        assert attrs.asdict(Tokens([Token(SNEK, "SNEK")])) == {
            "entries": ({"asset": attrs.asdict(SNEK), "ticker": "SNEK", "name": None, "decimals": None},),
            "rejected": (),
        }

    def test_records_and_collections_match_patterns(self):
        match BOOK:
            case OrderBook(Pair(base, _), [PriceLevel(price, _), *_], asks, spot):
                assert (base, price, asks, spot) == (SNEK, Decimal(2), BOOK.asks, Decimal("2.5"))
            case _:
                pytest.fail("not matched")
        match RestingOrders({"a#0": ORDER}), MarketIndex([BOOK]), Tokens([Token(SNEK)]):
            case ({"a#0": Order(amount=7)}, MarketIndex(as_of=None), Tokens((Token(asset),))):
                assert asset == SNEK
            case _:
                pytest.fail("not matched")
