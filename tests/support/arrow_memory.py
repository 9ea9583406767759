"""Arrow's allocations, counted while a test works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

# Arrow frees a buffer at the pool that it came from. One that a cycle of references holds goes later than the
# test, and a pool that was gone by then would hang or end the process: each stays to its end.
_pools: list[pa.MemoryPool] = []


@contextmanager
def counted_allocations() -> Iterator[pa.MemoryPool]:
    """Yield the pool from which everything is allocated meanwhile."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _pools.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)
