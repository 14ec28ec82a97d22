"""Loaded by Python itself in a worker whose machine "sleeps": its monotonic clock falls behind.

It is how Linux tells the time after a suspension. The process is stopped meanwhile, and afterwards
the clock is behind by as many seconds as the file says that this variable names.
"""

import mmap
import os
import struct
import time
from pathlib import Path

with Path(os.environ["MACHINE_SLEPT"]).open("rb") as file:
    _SLEPT = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
_monotonic = time.monotonic


def _behind() -> float:
    (slept,) = struct.unpack("d", _SLEPT[:8])
    return _monotonic() - float(slept)


time.monotonic = _behind
