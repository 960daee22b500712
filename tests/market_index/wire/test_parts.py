"""Parts of a body: their text and their digests."""

from __future__ import annotations

from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from market_index.wire.parts import EncodedPart, digest_of, text_of

texts = st.lists(st.binary(max_size=8), max_size=8)


def digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=16).digest()


@given(texts)
def test_the_digest_of_parts_is_that_of_their_digests(some: list[bytes]):
    parts = list(map(EncodedPart, some))
    assert text_of(parts) == b"".join(some)
    assert digest_of(parts) == digest(b"".join(map(digest, some)))
    assert [part.digest for part in parts] == list(map(digest, some))
