"""Every compressor writes what the standard library reads, and isal is used where it is installed."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index.compressors import FASTEST, ZLIB, Compressor
from tests.compressors import COMPRESSORS, OtherVersion

EACH = pytest.mark.parametrize("compressor", COMPRESSORS.values(), ids=COMPRESSORS)
TEXTS = st.binary(max_size=2_000) | st.builds(bytes.__mul__, st.binary(max_size=200), st.integers(0, 500))

WITHOUT_ISAL = """
import sys
sys.modules["isal"] = None  # its import fails
from market_index.compressors import FASTEST, ZLIB
print(FASTEST.library.__name__, FASTEST.identifier() == ZLIB.identifier())
"""


@EACH
@given(text=TEXTS)
def test_the_standard_library_reads_what_a_compressor_writes(compressor: Compressor, text: bytes):
    assert gzip.decompress(compressor.gzip(text)) == text
    assert zlib.decompress(compressor.zlib(text)) == text
    assert compressor.crc32(text) == zlib.crc32(text)
    assert compressor.crc32(text, 5) == zlib.crc32(text, 5)


@given(st.lists(st.tuples(TEXTS, st.sampled_from([*COMPRESSORS.values()])), max_size=6))
def test_parts_of_any_compressor_join_into_one_member(parts: list[tuple[bytes, Compressor]]):
    content = b"".join(text for text, _ in parts)
    header, last_block = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff", b"\x03\x00"
    joined = b"".join(compressor.deflated_part(text) for text, compressor in parts)
    trailer = struct.pack("<LL", zlib.crc32(content), len(content))
    assert gzip.decompress(header + joined + last_block + trailer) == content


@EACH
def test_equal_texts_have_equal_output(compressor: Compressor):
    text = b"text " * 1_000
    outputs = {(compressor.gzip(text), compressor.zlib(text), compressor.deflated_part(text)) for _ in range(3)}
    ((packed, _, _),) = outputs
    assert packed[4:8] == bytes(4), "no time"


def test_an_identifier_names_the_library_and_its_output():
    assert ZLIB.identifier() == Compressor(zlib).identifier()
    assert ZLIB.identifier().startswith("zlib-")
    levels = [(1, 1), (2, 1), (1, 2), (2, 2)]
    digests = [Compressor(OtherVersion(*some)).identifier().partition("-")[2] for some in levels]
    assert digests[0] == ZLIB.identifier().partition("-")[2]
    assert len(set(digests)) == len(levels)


def test_isal_is_used_where_it_is_installed():
    isal_zlib = pytest.importorskip("isal.isal_zlib", reason="isal has no wheel for this platform")
    assert FASTEST.library is isal_zlib
    assert FASTEST.identifier().startswith("isal-")


def test_zlib_is_used_where_isal_is_not_installed():
    done = subprocess.run([sys.executable, "-Ic", WITHOUT_ISAL], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("zlib True\n", "")
