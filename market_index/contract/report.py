"""The rules, each with the paragraph that states it, and what a check finds about them."""

from __future__ import annotations

from enum import Enum
from typing import Final, final

from attrs import Factory, define, frozen

from market_index.contract.messages import Request

MAX_FAULTS: Final = 3
"""How many faults of a rule are kept. All are counted."""


class Rule(Enum):
    """A rule: what it demands, and the paragraph of the contract, the RFC or the decision that states it.

    A rule of the contract or of HTTP binds every service. A rule of a decision, where the contract is silent, binds
    with `strict`. A hint never binds: what it finds looks like a mistake, which cannot be proved from outside.
    """

    LIST_STATUS = "contract 4.1", "the response to a request for the pair list has status 200"
    JSON = "contract 1", "every body is JSON (RFC 8259): UTF-8, one value, no key twice, no NaN, a JSON type"
    LIST_SHAPE = "contract 4.1", "the list is an object whose field pairs is an array of PairInfo"
    ASSETS = "contract 2", "an asset is ADA, or policy id, colon and asset name in hex"
    PRICES = "contract 2", "a price is a string with a decimal number above 0"
    LIST_ONCE = "contract 4.1, rule 1", "every pair is listed once"
    BOOK_STATUS = "contract 4.2", "every listed pair has a book"
    BOOK_SHAPE = "contract 2", "a book has base, quote, spot, bids and asks; a level has price and liquidity"
    ECHO = "contract 4.2, rule 1", "base and quote of a book equal those of the request"
    BIDS = "contract 4.2, rule 2", "bids are ordered by price, highest first"
    ASKS = "contract 4.2, rule 3", "asks are ordered by price, lowest first"
    LIQUIDITY = "contract 2", "accumulated_liquidity is a JSON integer, 0 or more"
    SPOT = "contract 1 and 2", "the spot of a book and the last_spot of its pair are the same at one moment"
    PARAMETERS = "contract 4.2", "the order and the percent-encoding (RFC 3986) of parameters have no effect"
    NOT_FOUND = "contract 4.2", "what is not listed, such as the inverse of a pair, has no book but status 404"
    REQUIRED = "contract 4.2", "a request without base or without quote has no book"
    ERROR_BODY = "contract 2 and 7", 'a 404 has the body {"error": <text>}'
    ERROR_NAMES = "contract 7", "the message of a 404 names the pair"
    TAGS = "RFC 9110, 13.1.2", "a body of other content has another ETag, and a 304 is only for the current ETag"

    ONE_TEXT = "decisions 3 and 4", "a price is fixed-point without needless zeros, of 28 decimal places and 96 bits"
    IDENTIFIERS = "decisions 6 and 7", "a listed asset has 28 bytes and a name of at most 32, in lower case"
    AMOUNTS = "decisions 1 and 14", "accumulated_liquidity is from 1 to 2^64-1"
    LIST_ORDER = "decision 9", "the list is in ledger order: by base, then by quote, ADA first"
    TWO_ASSETS = "decision 11", "no pair has one asset twice; asked for one, the status is 404"
    ONE_LEVEL = "decision 13", "a side has one level per price"
    LETTER_CASE = "decision 7", "a book is found by upper-case hex too"
    MALFORMED = "decisions 8 and 16", "a missing, empty, repeated or malformed parameter has status 400"
    ERROR_SHOWS = "decision 16", "the message of a 400 names the parameter and shows its value"
    UNKNOWN = "decision 17", "unknown parameters have no effect"
    OTHER_PATHS = "decision 18", "any other path, also with a trailing slash, has status 404 and the error body"
    OTHER_METHODS = "decision 18", "any other method has status 405, Allow and the error body"
    HEAD = "decision 18", "HEAD has the status and the header fields of GET"
    NOT_FOUND_TEXT = "decision 20", "the message of a 404 begins with: Pair <base>/<quote> not found"
    EXCESSIVE = "decision 25", "a target above 8 KiB, or with more than 32 parameters, has status 400"

    SUMS = "hint: decision 1", "amounts do not look like running sums down the book"
    SIDES = "hint: contract 4.2", "bids and asks do not look exchanged"
    FLOATS = "hint: decision 3", "numbers do not look like binary floats"
    SAME_BOOKS = "hint: contract 4.2", "no two pairs have the same levels"
    REVALIDATION = "hint: RFC 9110, 13.1.2", "a request with the current ETag has status 304"

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self.text = text

    def binds(self, *, strict: bool) -> bool:
        """Whether a service must keep this."""
        return not self.source.startswith("hint" if strict else ("hint", "decision"))


class Outcome(Enum):
    """What a check says about a rule."""

    PASSED = "passed"
    FAILED = "failed"
    WARNING = "warning"
    NOT_APPLICABLE = "not applicable"


@final
@frozen
class Fault:
    """What breaks a rule: the request, what its response must have, and what it had. Its text has three lines."""

    request: Request
    expected: str
    came: str

    def __str__(self) -> str:
        return f"{self.request}\n  expected: {self.expected}\n  came:     {self.came}"


@final
@define
class Result:
    """What was found about a rule.

    Of `checked` cases, `failed` broke the rule; `faults` has the first ones. `undecided` is how many cases could not be
    checked, because the service changed meanwhile.
    """

    rule: Rule
    checked: int = 0
    failed: int = 0
    undecided: int = 0
    faults: list[Fault] = Factory(list)

    def outcome(self, *, strict: bool = False) -> Outcome:
        """Return what this says; with `strict`, decisions bind."""
        if self.failed:
            return Outcome.FAILED if self.rule.binds(strict=strict) else Outcome.WARNING
        return Outcome.PASSED if self.checked else Outcome.NOT_APPLICABLE


@final
@frozen
class Report:
    """The results of all rules, in their order. `stopped` says why it is not whole, None if it is."""

    results: tuple[Result, ...]
    requests: int
    stopped: str | None

    def failed(self, *, strict: bool = False) -> list[Result]:
        """Return the results of the rules that failed."""
        return [one for one in self.results if one.outcome(strict=strict) is Outcome.FAILED]
