"""The lock of an open file, which excludes all other processes and all other descriptors of the file.

It ends with the process. It does not keep programs that do not lock the file from writing it.
"""

from __future__ import annotations

import fcntl


def try_lock(descriptor: int) -> bool:
    """Lock an open file, given by its descriptor. Return whether it was free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
