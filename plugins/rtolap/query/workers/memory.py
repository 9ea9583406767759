"""The memory that a process takes, as /proc/PID/statm states it."""

from __future__ import annotations

import os
from collections.abc import Sequence

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_RESIDENT, _SHARED, _DATA = 1, 2, 5
STATM_FIELDS = 7


def memory_of(pages: Sequence[int]) -> tuple[int, int]:
    """Bytes of private memory: what is there, and what was reserved, which is what RLIMIT_DATA bounds."""
    return (pages[_RESIDENT] - pages[_SHARED]) * _PAGE_BYTES, pages[_DATA] * _PAGE_BYTES
