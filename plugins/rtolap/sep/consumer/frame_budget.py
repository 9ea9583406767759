"""The memory of the frames of all connections: bytes count as they come, not as a client claims them.

A frame grows by chunks: the first has 16 KiB at most, each further one doubles it, by 4 MiB at most.

    general pool    most of the budget. Frames of connections that have not proven themselves share a part of
                    it, and those of one address another part
    finishing pool  as large as the largest frame. Where all frames wait for each other, the one that began
                    first grows in this pool up to its end; several do where they fit together

A first chunk is granted at once, so a small call never waits for large ones: one more chunk for each
connection is the most that the budget is exceeded by. Where frames wait, a frame that does not fill what it
was granted within a short time is dropped, for it holds what others need.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FIRST_CHUNK_BYTES: Final = 16 << 10
_CHUNK_BYTES_MAX: Final = 4 << 20
_LOOK_S: Final = 0.25
_CONTENDED_BYTES_PER_S: Final = 4 << 20


@dataclass(eq=False, slots=True)
class FrameMemory:
    """The memory of one frame, of its first chunk until its call is answered.

    Attributes:
        size_bytes: the length that the client has announced.
        proven: the connection has sent edits before that were taken.
        resume: called once a chunk is granted that was waited for.
        drop: called where others wait for what the frame does not fill.
        granted_bytes: may be filled, and are held.
        granted_s: when the last chunk was granted, by the monotonic clock.
    """

    address: str
    size_bytes: int
    proven: bool
    resume: Callable[[], None]
    drop: Callable[[], None]
    number: int
    granted_bytes: int = 0
    granted_s: float = 0.0
    whole: bool = False
    finishing: bool = False

    @property
    def next_chunk_bytes(self) -> int:
        if not self.granted_bytes:
            return min(self.size_bytes, FIRST_CHUNK_BYTES)
        return min(self.size_bytes - self.granted_bytes, self.granted_bytes, _CHUNK_BYTES_MAX)


class FrameBudget:
    """The memory budget for frames, for one event loop.

    Attributes:
        size_bytes: both pools together.
        finishing_bytes: the finishing pool, at least the largest frame.
        unproven_share: of the general pool, for all frames of connections that have not proven themselves.
        address_share: of the general pool, for all frames of one address.
        contended_grace_s: a chunk is filled within this and a second for 4 MiB while other frames wait.
    """

    def __init__(
        self,
        size_bytes: int,
        finishing_bytes: int,
        *,
        unproven_share: float = 0.5,
        address_share: float = 0.75,
        contended_grace_s: float = 2.0,
    ) -> None:
        self.size_bytes = size_bytes
        self._finishing_bytes = finishing_bytes
        self._general_bytes = size_bytes - finishing_bytes
        self._unproven_bytes = int(self._general_bytes * unproven_share)
        self._address_bytes = int(self._general_bytes * address_share)
        self._contended_grace_s = contended_grace_s
        self._numbers = itertools.count()
        self._frames: set[FrameMemory] = set()
        self._waiting: set[FrameMemory] = set()
        self._finishing: set[FrameMemory] = set()
        self._general_taken = 0
        self._unproven_taken = 0
        self._address_taken: Counter[str] = Counter()
        self._look: asyncio.TimerHandle | None = None

    @property
    def taken_bytes(self) -> int:
        return self._general_taken + sum(frame.granted_bytes for frame in self._finishing)

    @property
    def waiting(self) -> int:
        """Frames that wait for a chunk."""
        return len(self._waiting)

    def begin(
        self,
        address: str,
        size_bytes: int,
        *,
        proven: bool,
        at_work: bool,
        resume: Callable[[], None],
        drop: Callable[[], None],
    ) -> FrameMemory:
        """Begin a frame. `at_work`: the connection has calls that are not answered; then the first chunk may
        have to wait: `granted_bytes` is 0 until `resume` is called."""
        frame = FrameMemory(address, size_bytes, proven, resume, drop, next(self._numbers))
        self._frames.add(frame)
        if at_work:
            self.grow(frame)
        else:
            self._grant(frame)
        return frame

    def grow(self, frame: FrameMemory) -> bool:
        """Grant the next chunk and return True; or return False, and call `resume` once it is granted."""
        if frame.finishing or (not self._waiting and self._fits(frame, frame.next_chunk_bytes)):
            self._grant(frame)
            return True
        self._waiting.add(frame)
        self._hand_out(frame)
        self._look_later()
        return frame not in self._waiting

    def complete(self, frame: FrameMemory) -> None:
        """Note that the frame has come whole. Its memory is held until `end`."""
        frame.whole = True
        self._hand_out()

    def end(self, frame: FrameMemory) -> None:
        """Give back all of the frame."""
        if frame not in self._frames:
            return
        self._frames.discard(frame)
        self._waiting.discard(frame)
        if frame.finishing:
            self._finishing.discard(frame)
        else:
            self._charge(frame, -frame.granted_bytes)
        self._hand_out()

    # -- who is next -------------------------------------------------------------------------------------

    def _hand_out(self, asking: FrameMemory | None = None) -> None:
        """Grant what there is to those that wait, the proven first, then the frame that began first.

        `asking` is not resumed: it sees the answer by itself.
        """
        for frame in [each for each in self._finishing if each.whole]:
            if self._fits(frame, frame.granted_bytes):
                self._finishing.discard(frame)
                frame.finishing = False
                self._charge(frame, frame.granted_bytes)
        if not self._waiting:
            return
        may_finish = True  # a large frame is not overtaken by small ones for ever
        for frame in sorted(self._waiting, key=lambda each: (not each.proven, each.number)):
            if frame not in self._waiting:
                continue  # a frame that was resumed has ended it
            granted = self._fits(frame, frame.next_chunk_bytes)
            if not granted and may_finish:
                granted = may_finish = self._finishes(frame)
            if granted:
                self._waiting.discard(frame)
                self._grant(frame)
                if frame is not asking:
                    frame.resume()

    def _fits(self, frame: FrameMemory, count: int) -> bool:
        return (
            self._general_taken + count <= self._general_bytes
            and (frame.proven or self._unproven_taken + count <= self._unproven_bytes)
            and self._address_taken[frame.address] + count <= self._address_bytes
        )

    def _finishes(self, frame: FrameMemory) -> bool:
        """Let the frame end in the finishing pool, where that has room for all of it."""
        claimed = sum(each.size_bytes for each in self._finishing)
        if claimed + frame.size_bytes > self._finishing_bytes:
            return False
        self._charge(frame, -frame.granted_bytes)
        self._finishing.add(frame)
        frame.finishing = True
        return True

    def _grant(self, frame: FrameMemory) -> None:
        chunk = frame.next_chunk_bytes
        frame.granted_bytes += chunk
        frame.granted_s = time.monotonic()
        if not frame.finishing:
            self._charge(frame, chunk)

    def _charge(self, frame: FrameMemory, count: int) -> None:
        self._general_taken += count
        self._unproven_taken += 0 if frame.proven else count
        self._address_taken[frame.address] += count
        if not self._address_taken[frame.address]:
            del self._address_taken[frame.address]

    # -- who holds what others need ----------------------------------------------------------------------

    def _look_later(self) -> None:
        if self._look is None and self._waiting:
            self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._drop_slow)

    def _drop_slow(self) -> None:
        self._look = None
        now_s = time.monotonic()
        for frame in tuple(self._frames):
            if frame.whole or frame in self._waiting:
                continue
            if frame.granted_bytes <= FIRST_CHUNK_BYTES and not frame.finishing:
                continue  # nobody waits for that
            chunk = min(frame.granted_bytes, _CHUNK_BYTES_MAX)
            if now_s - frame.granted_s > self._contended_grace_s + chunk / _CONTENDED_BYTES_PER_S:
                frame.drop()
        self._look_later()
