"""A JSON parser by RFC 8259, independent of the parser of the standard library, which the library uses.

It also reads NaN and infinities, as numbers. No rule of the grammar accepts one.
"""

from __future__ import annotations

import re
from typing import Any, Final

from attrs import frozen

MAX_DEPTH: Final = 100
"""Deeper than any message of the contract, and than a value before a repeated key in an input of the fuzzer."""

NUMBER: Final = re.compile(r"NaN|-?Infinity|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
LITERALS: Final = {"true": True, "false": False, "null": None}


class NotJson(Exception):
    """The text is not JSON, or is nested too deeply."""


@frozen
class Number:
    """The text of a number."""

    text: str


def read_json(text: bytes) -> Any:
    """Return the value of a JSON text in UTF-8; the last of repeated keys wins."""
    try:
        reader = _Reader(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise NotJson from None
    value = reader.value(0)
    reader.skip_space()
    if reader.next():
        raise NotJson
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def next(self) -> str:
        """Return the next character; an empty string at the end."""
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        """Return the next character, and advance."""
        character = self.next()
        if not character:
            raise NotJson
        self.at += 1
        return character

    def expect(self, character: str) -> None:
        if self.take() != character:
            raise NotJson

    def skip_space(self) -> None:
        while self.next() and self.next() in " \t\n\r":
            self.at += 1

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise NotJson
        self.skip_space()
        character = self.next()
        if character == "{":
            return dict(self.items("{", "}", lambda: self.field(depth)))
        if character == "[":
            return self.items("[", "]", lambda: self.value(depth + 1))
        return self.string() if character == '"' else self.scalar()

    def items(self, first: str, last: str, item: Any) -> list[Any]:
        """Read the items between two brackets, separated by commas."""
        self.expect(first)
        self.skip_space()
        items: list[Any] = []
        if self.next() != last:
            items.append(item())
            self.skip_space()
            while self.next() == ",":
                self.expect(",")
                items.append(item())
                self.skip_space()
        self.expect(last)
        return items

    def field(self, depth: int) -> tuple[str, Any]:
        self.skip_space()
        key = self.string()
        self.skip_space()
        self.expect(":")
        return key, self.value(depth + 1)

    def string(self) -> str:
        self.expect('"')
        characters: list[str] = []
        while (character := self.take()) != '"':
            if character < " ":
                raise NotJson
            characters.append(self.escape() if character == "\\" else character)
        # Combine each pair of surrogates to one character.
        return "".join(characters).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def escape(self) -> str:
        character = self.take()
        if character != "u":
            if character not in ESCAPES:
                raise NotJson
            return ESCAPES[character]
        digits = "".join(self.take() for _ in range(4))
        if re.fullmatch("[0-9a-fA-F]{4}", digits) is None:
            raise NotJson
        return chr(int(digits, 16))

    def scalar(self) -> Any:
        for text, value in LITERALS.items():
            if self.text.startswith(text, self.at):
                self.at += len(text)
                return value
        match = NUMBER.match(self.text, self.at)
        if match is None:
            raise NotJson
        self.at = match.end()
        return Number(match[0])
