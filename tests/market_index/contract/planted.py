"""Faults for a double of a service, and correct services that differ from ours."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from itertools import accumulate, count
from operator import itemgetter
from typing import Any
from urllib.parse import parse_qsl

from attrs import evolve

from market_index.contract import NoResponse, Request, Response, Rule
from tests.market_index.contract.double import BOOKS, ORDER_BOOK, PAIR_LIST, SNEK, USD, Double, Planted, edited, of

Edit = Callable[[Any], Any]

FIRST, SECOND = ("ADA", SNEK), ("ADA", USD)
# The beginnings of texts that are no assets, as they are sent.
NO_ASSETS = (
    "UNKNOWN",
    ":",
    "ADA:",
    "00" * 27 + ":&",
    "f00d" * 14 + ":0&",
    "f00d" * 14 + ":00",
    ".",
    "%20ADA",
    "ADA%20",
    "ADA%0A",
    "%EF%BC%A1DA",
    "0x",
)
CHANGING = count(1)


# What a fault changes. Values are JSON before it is encoded; `one` is the value of a key.


def of_json(method: str) -> Callable[[str, Edit], Planted]:
    """Return a function that plants a change of one key of the JSON that a method makes."""
    return lambda key, edit: edited(method, lambda fields: fields | {key: edit(fields[key])})


info, book, level = map(of_json, ("info", "order_book", "level"))
entries = partial(of_json("pair_list"), "pairs")
price, amount = partial(level, "price"), partial(level, "accumulated_liquidity")


def error(edit: Edit) -> Planted:
    return edited("error_body", lambda fields: edit(fields["error"]))


def lookup(find: Callable[[Any, str, str], Any]) -> Planted:
    return of("find", lambda own: lambda base, quote: find(own, base, quote))


def asked(edit: Edit) -> Planted:
    """Change the target before it is read."""
    return of("respond", lambda own: lambda request: own(evolve(request, target=edit(request.target))))


def got(edit: Callable[[Request, Response], Response]) -> Planted:
    return of("edit", lambda _: edit)


def where(holds: Callable[[Request, Response], bool], edit: Edit) -> Planted:
    """Change some responses."""
    return got(lambda request, found: edit(found) if holds(request, found) else found)


def only(path: str, edit: Edit, status: int = 200) -> Planted:
    """Change the responses of a path that have a status."""
    return where(lambda request, found: (request.target.partition("?")[0], found.status) == (path, status), edit)


def body(edit: Edit) -> Edit:
    return lambda found: evolve(found, body=edit(found.body))


def header(name: str, value: str | None) -> Edit:
    def edit(found: Response) -> Response:
        headers = {key: one for key, one in found.headers.items() if key != name}
        return evolve(found, headers=headers if value is None else headers | {name: value})

    return edit


def status(code: int) -> Edit:
    return lambda found: evolve(found, status=code)


def to(code: int, *texts: str, of_status: int = 400) -> Planted:
    """Change a status of the order book, if the target has one of the texts."""
    parts = texts or (ORDER_BOOK,)
    return where(
        lambda one, found: found.status == of_status and any(part in one.target for part in parts), status(code)
    )


def instead(method: str, code: int) -> Planted:
    return where(lambda request, _: request.method == method, status(code))


def head(name: str, value: str) -> Planted:
    return where(lambda request, _: request.method == "HEAD", header(name, value))


def without(key: str) -> Edit:
    return lambda fields: {name: one for name, one in fields.items() if name != key or one}


def last(key: str, edit: Edit) -> Edit:
    """Change only the last level of a side that has several."""
    return lambda side: [*side[:-1], side[-1] | {key: edit(side[-1][key])}] if len(side) > 1 else side


def summed(side: Any) -> Any:
    totals = accumulate(level["accumulated_liquidity"] for level in side)
    return [level | {"accumulated_liquidity": total} for level, total in zip(side, totals, strict=True)]


def closed(target: str) -> str:
    if "%00" in target:
        raise NoResponse("the connection was closed")
    return target


def by_position(target: str) -> str:
    values = [one for _, one in parse_qsl(target.partition("?")[2])]
    return f"{ORDER_BOOK}?base={values[0]}&quote={values[1]}" if len(values) == 2 else target


def moving(change: Callable[[Any, int], None]) -> Planted:
    """Change the books at each request."""

    def plant(double: Double) -> None:
        numbers = count(1)
        double.move = lambda: change(double.books, next(numbers))  # type: ignore[method-assign]

    return plant


def spot_moves(books: Any, number: int) -> None:
    books[FIRST] = (f"0.00001{number}1", *books[FIRST][1:])


def all_moves(books: Any, number: int) -> None:
    books[FIRST] = (f"0.{number % 2 + 1}", [("0.05", 3 + number % 2)], [("3", 1)])


def pairs_move(books: Any, number: int) -> None:
    books.pop(SECOND, None)
    if number % 2:
        books[SECOND] = BOOKS[SECOND]


def both(*plants: Planted) -> Planted:
    return lambda double: [plant(double) for plant in plants]


# By the rule that finds them. Rules of decisions fail with --strict, and hints warn.
# fmt: off
PLANTED: dict[Rule, dict[str, Planted]] = {
    Rule.LIST_STATUS: {"201": only(PAIR_LIST, status(201)), "204": only(PAIR_LIST, status(204))},
    Rule.JSON: {
        "text/plain": got(lambda _, found: header("content-type", "text/plain")(found)),
        "text/html": only(PAIR_LIST, header("content-type", "text/html; charset=utf-8")),
        "text/html of a 404": only(ORDER_BOOK, header("content-type", "text/html"), 404),
        "two values": only(ORDER_BOOK, body(lambda text: text + text)),
        "single quotes": only(PAIR_LIST, body(lambda text: text.replace(b'"', b"'"))),
        "a BOM": only(PAIR_LIST, body(lambda text: b"\xef\xbb\xbf" + text)),
        "UTF-16": only(ORDER_BOOK, body(lambda text: text.decode().encode("utf-16"))),
        "a key twice": only(ORDER_BOOK, body(lambda text: text.replace(b'"bids"', b'"spot": "7", "bids"'))),
        "cut": only(ORDER_BOOK, body(lambda text: text[:-1])),
        "compressed for all": only(ORDER_BOOK, lambda found: header("content-encoding", "gzip")(body(gzip.compress)(found))),
    },
    Rule.LIST_SHAPE: {
        "an array": edited("pair_list", itemgetter("pairs")),
        "another key": edited("pair_list", lambda one: {"data": one["pairs"]}),
        "an object by pair": entries(lambda pairs: {str(pair): pair for pair in pairs}),
        "JSON in a string": only(PAIR_LIST, body(lambda text: json.dumps(text.decode()).encode())),
        "no last_spot if null": edited("info", without("last_spot")),
        "spot, not last_spot": edited("info", lambda one: {"spot": one.pop("last_spot"), **one}),
    },
    Rule.ASSETS: {
        "lovelace": info("base", lambda one: one.replace("ADA", "lovelace")),
        "a dot": info("quote", lambda one: one.replace(":", ".")),
        "no colon": info("quote", lambda one: one.replace(":", "")),
        "a ticker": info("base", lambda one: "MIN" if one != "ADA" else one),
        "no colon before an empty name": info("base", lambda one: one.removesuffix(":")),
        "a line break": info("base", lambda one: f"{one}\n"),
        "an odd digit": info("base", lambda one: one + "0" if ":" in one else one),
    },
    Rule.PRICES: {
        "last_spot is a number": info("last_spot", lambda one: one and float(one)),
        "last_spot is empty": info("last_spot", lambda one: one or ""),
        "last_spot is 0": info("last_spot", lambda one: one or "0"),
        "last_spot is the text null": info("last_spot", lambda one: one or "null"),
        "spot is 0.00": book("spot", lambda one: one or "0.00"),
        "spot is NaN": book("spot", lambda one: one or float("nan")),
        "a number": price(float),
        "a comma": price(lambda one: one.replace(".", ",")),
        "a plus": price(lambda one: f"+{one}"),
        "a space": price(lambda one: f"{one} "),
        "a fraction": price(lambda one: f"{one}/1"),
        "a negative one at the end": book("bids", last("price", lambda one: f"-{one}")),
    },
    Rule.LIST_ONCE: {
        "a pair twice": entries(lambda pairs: [*pairs, pairs[0]]),
        "a pair in two cases": entries(lambda pairs: [*pairs, {**pairs[-1], "base": pairs[-1]["base"].upper()}]),
    },
    Rule.BOOK_STATUS: {
        "none against ADA": lookup(lambda own, base, quote: None if quote == "ADA" else own(base, quote)),
        "none if empty": lookup(lambda own, base, quote: found if (found := own(base, quote)) and any(found[1:]) else None),
        "500 without a spot": only(ORDER_BOOK, lambda one: status(500)(one) if b'"spot": null' in one.body else one),
        "400 for an empty name": of("fault", lambda own: lambda texts: "no" if texts and texts[0][-1:] == ":" else own(texts)),
        "203": only(ORDER_BOOK, status(203)),
        "listed, not tracked": entries(lambda pairs: [*pairs, {**pairs[-1], "base": "d" * 56 + ":"}]),
    },
    Rule.BOOK_SHAPE: {
        "no spot if null": edited("order_book", without("spot")),
        "no bids if empty": edited("order_book", without("bids")),
        "null for no asks": book("asks", lambda one: one or None),
        "levels are arrays": edited("level", lambda one: list(one.values())),
        "amount": edited("level", lambda one: {"price": one["price"], "amount": 1}),
        "an envelope": edited("order_book", lambda one: {"data": one}),
        "sides by price": book("bids", lambda side: {level["price"]: level for level in side}),
    },
    Rule.ECHO: {
        "lower case": edited("order_book", lambda one: {**one, **{key: one[key].replace("ADA", "ada").lower().replace("ada", "ADA") for key in ("base", "quote")}}),
        "exchanged": edited("order_book", lambda one: one | {"base": one["quote"], "quote": one["base"]}),
        "lovelace": book("base", lambda one: one.replace("ADA", "lovelace")),
        "without the name": book("quote", lambda one: one.partition(":")[0]),
    },
    Rule.BIDS: {
        "lowest first": book("bids", lambda side: side[::-1]),
        "as floats": book("bids", lambda side: sorted(side, key=lambda one: (-float(one["price"]), -side.index(one)))),
    },
    Rule.ASKS: {
        "highest first": book("asks", lambda side: side[::-1]),
        "as texts": book("asks", lambda side: sorted(side, key=itemgetter("price"))),
        "by amount": book("asks", lambda side: sorted(side, key=itemgetter("accumulated_liquidity"))),
        "the last two exchanged": book("asks", lambda side: [*side[:-2], *side[:-3:-1]]),
    },
    Rule.LIQUIDITY: {
        "a string": amount(str), "a float": amount(float), "a fraction": amount(lambda one: one / 1e6),
        "true": amount(lambda one: one == 1 or one), "null": amount(lambda one: None if one == 1 else one),
        "negative at the end": book("asks", last("accumulated_liquidity", lambda one: -one)),
        "wrapped at 2^63": amount(lambda one: one - 2**64 if one >= 2**63 else one),
    },
    Rule.SPOT: {
        "of another pair": entries(lambda pairs: [one | {"last_spot": two["last_spot"]} for one, two in zip(pairs, pairs[1:] + pairs[:1], strict=True)]),
        "stale": info("last_spot", lambda one: one and "0.5"), "always null": info("last_spot", lambda _: None),
        "the best bid": edited("order_book", lambda one: one | {"spot": one["bids"][0]["price"] if one["bids"] else None}),
        "rounded": book("spot", lambda one: one and f"{float(one):.5f}".rstrip("0").rstrip(".")),
        "inverted": book("spot", lambda one: one and f"{1 / float(one):.6f}"),
    },
    Rule.PARAMETERS: {
        "by position": asked(by_position),
        "%3A is not decoded": asked(lambda one: one.replace("%3A", "_")),
    },
    Rule.NOT_FOUND: {
        "the list lacks a pair": entries(lambda pairs: [one for one in pairs if (one["base"], one["quote"]) != (SNEK, "ADA")]),
        "the inverse": lookup(lambda own, base, quote: own(base, quote) or own(quote, base)),
        "an empty book": lookup(lambda own, base, quote: own(base, quote) or (None, [], [])),
        "one asset": lookup(lambda own, base, quote: own(base, quote) or ((None, [], []) if base == quote else None)),
        "an empty book of no asset": both(of("fault", lambda own: lambda texts: own(["ADA"] if "zz" in f"{texts}" else texts)), lookup(lambda own, base, quote: (None, [], []) if "zz" in base + quote else own(base, quote))),
        "any quote": lookup(lambda own, base, _: next((one for pair, one in BOOKS.items() if pair[0] == base), None)),
        "200 with an error": to(200, of_status=404), "400": to(400, of_status=404), "204": to(204, of_status=404),
        "500": to(500, of_status=404),
        "400 for a long name": of("fault", lambda own: lambda texts: "long" if texts and len(texts[0]) > 100 else own(texts)),
    },
    Rule.REQUIRED: {
        "base is ADA": asked(lambda one: one.replace(f"{ORDER_BOOK}?quote", f"{ORDER_BOOK}?base=ADA&quote")),
        "quote is ADA": asked(lambda one: f"{one}&quote=ADA" if "base=" in one and "quote=" not in one else one),
        "without both, the list": asked(lambda one: PAIR_LIST if one == ORDER_BOOK else one),
    },
    Rule.ERROR_BODY: {
        "detail": error(lambda one: {"detail": one}), "an object": error(lambda one: {"error": {"message": one}}),
        "plain text": only(ORDER_BOOK, body(lambda _: b"not found"), 404), "null": error(lambda _: {"error": None}),
        "empty": only(ORDER_BOOK, body(lambda _: b""), 404),
    },
    Rule.ERROR_NAMES: {
        "nothing": error(lambda _: {"error": "Not found"}), "the base": error(lambda one: {"error": one.partition("/")[0]}),
        "cut": error(lambda one: {"error": one[:100]}),
    },
    Rule.TAGS: {
        "304 for any": of("matches", lambda _: lambda tag, condition: bool(condition)),
        "304 for a similar tag": of("matches", lambda _: lambda tag, condition: condition.startswith(tag[:-1])),
        "304 for another tag": of("matches", lambda own: lambda tag, condition: own(tag, condition) or condition == '"none"'),
        "no quotes": of("tag", lambda _: lambda found: "7"),
        "one for all content": both(moving(spot_moves), of("tag", lambda _: lambda found: '"1"')),
    },
    Rule.ONE_TEXT: {
        "an exponent": price(lambda one: f"{float(one):e}"), "trailing zeros": price(lambda one: one + "0" * ("." in one)),
        ".0": price(lambda one: one if "." in one else f"{one}.0"), "leading zeros": price(lambda one: f"0{one}"),
        "no zero": price(lambda one: one.removeprefix("0")),
        "30 places": price(lambda one: (one if "." in one else f"{one}.").ljust(32, "0") + "1"),
    },
    Rule.IDENTIFIERS: {
        "a short policy id": info("base", lambda one: one[2:] if ":" in one else one), "upper case": info("base", str.upper),
        "a long name": info("quote", lambda one: one + "00" * 30 if ":" in one else one),
    },
    Rule.AMOUNTS: {
        "2^64": amount(lambda one: one + 1 if one >= 2**63 else one),
        "0": book("asks", lambda side: [*side, {"price": "2000000", "accumulated_liquidity": 0}]),
    },
    Rule.LIST_ORDER: {
        "by quote": entries(lambda pairs: sorted(pairs, key=itemgetter("quote", "base"))),
        "ADA last": entries(lambda pairs: sorted(pairs, key=itemgetter("base", "quote"))),
        "reverse": entries(lambda pairs: pairs[::-1]),
    },
    Rule.TWO_ASSETS: {
        "400": where(lambda request, found: found.status == 404 and "base=ADA&quote=ADA" in request.target, status(400)),
        "listed": lambda double: double.books.update({("ADA", "ADA"): (None, [], [])}),
    },
    Rule.ONE_LEVEL: {
        "twice": book("asks", lambda side: side + side[-1:]),
        "in two texts": book("asks", lambda side: side + [one | {"price": f"{one['price']}.0"} for one in side[-1:] if "." not in one["price"]]),
    },
    Rule.LETTER_CASE: {
        "404": lookup(lambda _, base, quote: BOOKS.get((base, quote))),
        "400": of("fault", lambda own: lambda texts: "no" if texts and texts[0] != "ADA" and not texts[0].islower() else own(texts)),
        "another book": lookup(lambda own, base, quote: own(base, quote) and (BOOKS.get((base, quote)) or (None, [], []))),
    },
    Rule.MALFORMED: {
        "text/html": where(lambda _, found: found.status == 400, header("content-type", "text/html")),
        "404": to(404), "422": to(422), "500": to(500), "500 for bytes": to(500, "%ff"), "closed": asked(closed),
        "500 if missing": where(lambda request, _: request.target == ORDER_BOOK, status(500)),
        "lovelace": asked(lambda one: one.replace("lovelace", "ADA")), "ada": asked(lambda one: one.replace("=ada", "=ADA")),
        "stripped": asked(lambda one: one.replace("%20", "").replace("%0A", "")), "dots": asked(lambda one: one.replace(".", ":")),
        "the last wins": of("fault", lambda own: lambda texts: own(texts[-1:])),
        "the first wins": asked(lambda one: "&".join(one.split("&")[:2]) if "limit" not in one and "x=1" not in one else one),
        "404 if empty": to(404, "base=&"), "404 for a quote": to(404, "quote=lovelace"),
        "200 for two bases": where(lambda one, _: one.target.count("base=") == 2, status(200)),
        "200 for two quotes": where(lambda one, _: one.target.count("quote=") == 2, status(200)),
        **{f"404 for {text[:12]}": to(404, f"base={text}") for text in NO_ASSETS},
    },
    Rule.ERROR_SHOWS: {
        "nothing": error(lambda one: {"error": one if "Pair" in one or "Not" in one else "bad request"}),
        "another parameter": error(lambda one: {"error": one.replace("'quote'", "'base'")}),
    },
    Rule.UNKNOWN: {
        "400": where(lambda request, _: "limit=" in request.target, status(400)),
        "depth": got(lambda request, found: body(lambda text: text.replace(b'"accumulated_liquidity": 1', b'"accumulated_liquidity": 2'))(found) if "depth=" in request.target else found),
        "limit": of("pair_list", lambda own: lambda query: {"pairs": own(query)["pairs"][: 1 if "limit" in query else None]}),
    },
    Rule.OTHER_PATHS: {
        "a slash": asked(lambda one: one.replace("list/", "list")),
        "a redirect": where(lambda request, _: request.target.endswith("/"), status(307)),
        "html": where(lambda _, found: found.body == b'{"error": "Not Found"}', body(lambda _: b"<html>")),
        "200": where(lambda request, _: "nothing" in request.target, status(200)),
        "a slash of the book": asked(lambda one: one.replace("book/", "book")),
        "200 of the folder": where(lambda request, _: request.target == "/trading-view", status(200)),
    },
    Rule.OTHER_METHODS: {
        "as GET": of("respond", lambda own: lambda request: own(evolve(request, method="GET"))),
        "404": instead("PROPFIND", 404), "no Allow": got(lambda _, found: header("allow", None)(found)),
        "POST": where(lambda _, found: found.status == 405, header("allow", "GET, HEAD, POST")),
    },
    Rule.HEAD: {
        "405": instead("HEAD", 405), "length 0": head("content-length", "0"), "another type": head("content-type", "text/html"),
    },
    Rule.NOT_FOUND_TEXT: {
        "the inverse": error(lambda one: {"error": one.replace("Pair ADA/", "Pair ") if "Pair" in one else one}),
        "canonical": error(lambda one: {"error": one.lower().replace("pair", "Pair").replace("ada", "ADA")}),
    },
    Rule.EXCESSIVE: {
        "long": asked(lambda one: PAIR_LIST if len(one) > 8192 else one),
        "many": asked(lambda one: PAIR_LIST if one.count("&") == 32 else one),
    },
    Rule.SUMS: {"sums": edited("side", summed)},
    Rule.SIDES: {
        "exchanged": edited("order_book", lambda one: one | {"bids": one["asks"][::-1], "asks": one["bids"][::-1]}),
        "the same": edited("order_book", lambda one: one | {"asks": one["bids"][::-1]}),
    },
    Rule.FLOATS: {"times 0.1": price(lambda one: repr(float(one) * 3 * 0.1))},
    Rule.SAME_BOOKS: {"of another pair": lookup(lambda own, base, quote: BOOKS[FIRST] if base == "ADA" and own(base, quote) else own(base, quote))},
    Rule.REVALIDATION: {
        "never": of("matches", lambda _: lambda tag, condition: False),
        "one tag": of("matches", lambda _: lambda tag, condition: condition == tag),
        "new tags": of("tag", lambda _: lambda found: f'"{next(CHANGING)}"'),
    },
}


def bare(double: Double) -> None:
    """As a program of one page: no ETag, no HEAD, other errors, no rule for parameters or letter case."""
    double.tags = False

    def respond(request: Request) -> Response:
        path, _, query = request.target.partition("?")
        given = dict(parse_qsl(query, keep_blank_values=True))
        if request.method != "GET" or path not in {PAIR_LIST, ORDER_BOOK}:
            return Response(404 if request.method == "GET" else 501, {"Content-Type": "text/html"}, b"<html>")
        if path == PAIR_LIST:
            return double.success(request, double.pair_list(query))
        if not given.keys() >= {"base", "quote"}:
            return Response(400, {"Content-Type": "text/html"}, b"<html>")
        base, quote = given["base"], given["quote"]
        if (base, quote) not in BOOKS:
            return Response(404, {}, json.dumps({"code": 404, "error": f"no book of {quote} against {base}"}).encode())
        return double.success(request, double.order_book(base, quote, BOOKS[base, quote]))

    double.respond = respond  # type: ignore[method-assign]


CORRECT: dict[str, Planted] = {
    "bare": bare, "bare and moving": both(bare, moving(all_moves)),
    "without a content type": got(lambda _, found: header("content-type", None)(found)),
    "with trailing zeros": price(lambda one: one if "." not in one else one.ljust(12, "0")),
    "with exponents": price(lambda one: f"{one[2:].lstrip('0')}e-{len(one) - 2}" if one.startswith("0.0") else one),
    "upper case in the list": info("quote", str.upper), "in its own order": entries(lambda pairs: pairs[::-1]),
    "malformed is 404": to(404), "no 304": of("matches", lambda _: lambda tag, condition: False),
    "rate limited": where(lambda *_: next(CHANGING) % 30 == 0, status(429)),
    "a moving list in its own order": both(moving(pairs_move), entries(lambda pairs: pairs[::-1])),
}

# Those that also keep the decisions.
BY_ALL_DECISIONS: dict[str, Planted] = {
    "ours": lambda double: None, "with a charset": got(lambda _, found: header("content-type", "application/json; charset=utf-8")(found)),
    "with more keys": edited("order_book", lambda one: {"at": 7.5, **one, "bids": [level | {"orders": 3} for level in one["bids"]]}),
    "with more keys in the list": edited("pair_list", lambda one: {"pairs": [pair | {"volume": 1.5} for pair in one["pairs"]], "page": 1}),
    "with the time in each body": edited("order_book", lambda one: one | {"at": next(CHANGING)}),
    "with the query in each body": got(lambda request, found: body(lambda text: b'{"query": "%b", %b' % (request.target.encode(), text[1:]) if text[:7] == b'{"base"' else text)(found)),
    "keys in another order": edited("order_book", lambda one: dict(reversed(one.items()))),
    "indented": of("encode", lambda _: lambda one: json.dumps(one, indent=2).encode() + b"\n"),
    "strong tags": of("tag", lambda own: lambda found: own(found).removeprefix("W/")),
    "no pairs": lambda double: double.books.clear(),
    "one empty book": both(lambda double: double.books.clear(), lambda double: double.books.update({FIRST: (None, [], [])})),
    "books of one side": lambda double: double.books.update({pair: (one[0], [], [("9", number)]) for number, (pair, one) in enumerate(BOOKS.items(), 1)}),
    "a crossed book": lambda double: double.books.update({FIRST: ("1", [("9", 1), ("1", 2)], [("2", 3)])}),
    "a moving spot": moving(spot_moves), "moving as a whole": moving(all_moves), "moving pairs": moving(pairs_move),
    "sometimes unavailable": where(lambda *_: next(CHANGING) % 5 == 0, status(503)),
}
# fmt: on
