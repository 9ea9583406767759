"""Memory that batches have freed is given back to the system while a receiver is behind.

Arrow's allocator gives back what was freed a second ago, and only when it is asked for much, or told to. A
receiver that is behind allocates and frees some hundred megabytes a second, of which it uses some thirty at a
time. Each thread would keep what its own largest moment was made of, and the sum of them is the peak.

Right after a batch nearly nothing of it is in use, so that nearly all goes back. The next batch takes it
again, which costs about as much as it did anyway. At other moments, or from other threads, it gives back less
and spares nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from rtolap.base.clock import Clock
from rtolap.cubes.receiver.states import ConsumerState

RELEASE_EVERY_S = 0.25  # a full batch takes about as long


def release_arrow() -> None:
    """Give back what Arrow's allocator holds free, of the calling thread and of those that have ended."""
    pa.default_memory_pool().release_unused()


class FreedMemory:
    """Decides after which batches memory is given back; used by the core thread only."""

    def __init__(self, clock: Clock, release: Callable[[], None] = release_arrow) -> None:
        self._clock = clock
        self._release = release
        self._released_s = float("-inf")

    def batch_taken(self, state: ConsumerState) -> None:
        """Note that a batch is in the local state, and nothing else of it is in use any more.

        Small batches come in quick succession, and a receiver that is not behind has none that are large:
        neither gives back so much that it is worth the time.
        """
        if state is not ConsumerState.REPLAYING:
            return
        now_s = self._clock.monotonic_s()
        if now_s - self._released_s >= RELEASE_EVERY_S:
            self._released_s = now_s
            self._release()
