"""The metrics of all worker processes, from a buffer that they share.

Theory of operation
    Each worker has a slot, into which it writes the compressed text of its metrics about once per second. Any worker
    answers a scrape with the texts of all slots, its own up to date. There is no lock, because a worker that is killed
    could hold it. Instead, a compressed text ends with a checksum: a reader that sees a text while it is written reads
    it again. The supervisor clears the slot of a worker that has ended.
"""

from __future__ import annotations

import re
import zlib
from contextlib import suppress
from time import sleep
from typing import Any, Final, final

from market_index_http.operating.metrics import Metrics

SLOT_BYTES: Final = 64 * 1024
"""The longest compressed text of a worker; it has about 3 KiB."""

_FAMILY: Final = re.compile(rb"(# HELP \S+ .*\n# TYPE .*\n)((?:[^#].*\n)*)")
_PROCESS_SAMPLE: Final = re.compile(rb"^(process_\w+) ", re.MULTILINE)
_READS: Final = 10


@final
class Exposition:
    """The metrics of the workers that share a buffer. Those of the processes get the label `worker`, too.

    Args:
        slots: A buffer of `SLOT_BYTES` for each worker, with zeros at first.
        worker: The number of this worker, from 0.
    """

    def __init__(self, slots: Any, worker: int) -> None:
        self.metrics: Final = Metrics(label="worker")
        self._slots = slots_of(slots)
        self.worker: Final = worker

    def write(self) -> None:
        """Write the current metrics of this worker into its slot."""
        packed = zlib.compress(self._own_text(), 1)
        self._slots[self.worker][: len(packed)] = packed

    def text(self) -> bytes:
        """Return the metrics of all workers. Any thread may call it."""
        families: dict[bytes, dict[bytes, None]] = {}
        others = self._slots[: self.worker] + self._slots[self.worker + 1 :]
        for text in (self._own_text(), *map(_text_of, others)):
            for head, samples in _FAMILY.findall(text):
                # The same line of several workers is there once.
                families.setdefault(head, {}).update(dict.fromkeys(samples.splitlines(keepends=True)))
        return b"".join(head + b"".join(samples) for head, samples in families.items())

    def _own_text(self) -> bytes:
        return _PROCESS_SAMPLE.sub(rb'\1{worker="%d"} ' % self.worker, self.metrics.text())


def slots_of(buffer: Any) -> list[memoryview]:
    """Return the slots of a buffer. The first byte of one without a text is 0."""
    whole = memoryview(buffer).cast("B")
    return [whole[start : start + SLOT_BYTES] for start in range(0, len(whole), SLOT_BYTES)]


def clear_slot(buffer: Any, worker: int) -> bool:
    """Clear the slot of a worker that has ended. Return whether any slot had a text."""
    slots = slots_of(buffer)
    had_text = any(slot[0] for slot in slots)
    slots[worker][0] = 0
    return had_text


def _text_of(slot: memoryview) -> bytes:
    """Return the text of a slot; empty if its worker was killed while it wrote the text."""
    for _ in range(_READS if slot[0] else 0):
        with suppress(zlib.error):
            return zlib.decompress(slot)
        sleep(0.001)
    return b""
