"""Parts of a body: their digests, and the parts that versions share."""

from __future__ import annotations

import gc
from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from market_index.wire.parts import EncodedPart, digest_of, shared_parts, text_of

texts = st.lists(st.binary(max_size=8), max_size=8)


def digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=16).digest()


@given(texts)
def test_the_digest_of_parts_is_that_of_their_digests(some: list[bytes]):
    parts = list(map(EncodedPart, some))
    assert text_of(parts) == b"".join(some)
    assert digest_of(parts) == digest(b"".join(map(digest, some)))
    assert [part.digest for part in parts] == list(map(digest, some))


def test_only_equal_parts_are_shared():
    one, other = shared_parts([EncodedPart(b"one"), EncodedPart(b"other")])
    assert (one.text, other.text) == (b"one", b"other")


def test_equal_parts_are_shared_while_one_exists():
    first, second = shared_parts([EncodedPart(b"shared"), EncodedPart(b"shared")])
    assert first is second
    (third,) = shared_parts([EncodedPart(b"shared")])
    assert third is first
    assert shared_parts([first]) == (first,)
    kept = EncodedPart(b"shared")
    del first, second, third
    gc.collect()
    assert shared_parts([kept]) == (kept,)
