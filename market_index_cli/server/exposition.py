"""The metrics of all worker processes, from a buffer that they share.

Theory of operation
    Each worker has a slot, into which it writes the text of its metrics about once per second. Any worker answers a
    scrape with the texts of all slots, its own up to date. There is no lock, because a worker that is killed could hold
    it. Instead, a slot begins with the length and the checksum of its text: a reader that sees a text while it is
    written reads it again. The supervisor clears the slot of a worker that has ended.
"""

from __future__ import annotations

import re
from struct import Struct
from threading import Lock
from time import sleep
from typing import Any, Final, final
from zlib import crc32

from market_index_http.operating.metrics import Metrics

SLOT_BYTES: Final = 64 * 1024
"""The longest text of a worker; it has about 30 KiB."""

_HEADER: Final = Struct("QQ")
_FAMILY: Final = re.compile(rb"(# HELP \S+ .*\n# TYPE .*\n)((?:[^#].*\n)*)")
_PROCESS_SAMPLE: Final = re.compile(rb"^(process_\w+) ", re.MULTILINE)
_READS: Final = 10


@final
class Exposition:
    """The metrics of the workers that share a buffer. Those of the processes get the label `worker`, too.

    Args:
        metrics: The metrics of this worker, with the label `worker`.
        slots: A buffer of `SLOT_BYTES` for each worker, with zeros at first.
        worker: The number of this worker, from 0.
    """

    def __init__(self, metrics: Metrics, slots: Any, worker: int) -> None:
        whole = memoryview(slots).cast("B")
        self._slots = [whole[start : start + SLOT_BYTES] for start in range(0, len(whole), SLOT_BYTES)]
        self._metrics = metrics
        self.worker: Final = worker
        self._lock = Lock()

    def write(self) -> None:
        """Write the current metrics of this worker into its slot. Any thread of it may call this."""
        with self._lock:
            text = _PROCESS_SAMPLE.sub(rb'\1{worker="%d"} ' % self.worker, self._metrics.text())
            slot = self._slots[self.worker]
            slot[_HEADER.size : _HEADER.size + len(text)] = text
            _HEADER.pack_into(slot, 0, len(text), crc32(text))

    def text(self) -> bytes:
        """Return the metrics of all workers."""
        self.write()
        families: dict[bytes, dict[bytes, None]] = {}
        for slot in self._slots:
            for head, samples in _FAMILY.findall(_text_of(slot)):
                # The same line of several workers is there once.
                families.setdefault(head, {}).update(dict.fromkeys(samples.splitlines(keepends=True)))
        return b"".join(head + b"".join(samples) for head, samples in families.items())


def clear_slot(slots: Any, worker: int) -> bool:
    """Clear the slot of a worker that has ended. Return whether any slot had a text."""
    whole = memoryview(slots).cast("B")
    had_text = any(_HEADER.unpack_from(whole, start)[0] for start in range(0, len(whole), SLOT_BYTES))
    _HEADER.pack_into(whole, worker * SLOT_BYTES, 0, 0)
    return had_text


def _text_of(slot: memoryview) -> bytes:
    """Return the text of a slot; empty if its worker was killed while it wrote the text."""
    for _ in range(_READS):
        length, checksum = _HEADER.unpack_from(slot)
        text = bytes(slot[_HEADER.size : _HEADER.size + length])
        if crc32(text) == checksum:
            return text
        sleep(0.001)
    return b""
