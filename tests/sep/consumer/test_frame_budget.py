"""The memory of frames: counted as it is filled, kept for who has sent before, left by who stands still."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from rtolap.sep.consumer.frame_budget import FIRST_CHUNK_BYTES, FrameBudget, FrameMemory

from tests.support.seeds import so_many

KIB, MIB = 1 << 10, 1 << 20


@dataclass
class Frames:
    """Frames of a budget, as connections would read them."""

    budget: FrameBudget
    resumed: list[FrameMemory] = field(default_factory=list)
    dropped: list[FrameMemory] = field(default_factory=list)

    def begin(
        self, size_bytes: int, *, address: str = "a", proven: bool = False, at_work: bool = False
    ) -> FrameMemory:
        made: list[FrameMemory] = []
        frame = self.budget.begin(
            address,
            size_bytes,
            proven=proven,
            at_work=at_work,
            resume=lambda: self.resumed.append(made[0]),
            drop=lambda: self.drop(made[0]),
        )
        made.append(frame)
        return frame

    def drop(self, frame: FrameMemory) -> None:
        self.dropped.append(frame)
        self.budget.end(frame)

    def fill(self, frame: FrameMemory) -> bool:
        """Fill as much as is granted; return True once the frame is whole."""
        while frame.granted_bytes < frame.size_bytes:
            if not self.budget.grow(frame):
                return False
        self.budget.complete(frame)
        return True


def run(body: object) -> None:
    async def act() -> None:
        assert callable(body)
        await body()

    asyncio.run(act())


def test_a_claim_takes_no_more_than_a_first_chunk() -> None:
    async def body() -> None:
        frames = Frames(FrameBudget(512 * MIB, 256 * MIB))
        for _ in range(100):
            frames.begin(256 * MIB)
        assert frames.budget.taken_bytes == 100 * FIRST_CHUNK_BYTES

    run(body)


def test_what_others_have_begun_keeps_no_part_from_the_proven() -> None:
    async def body() -> None:
        frames = Frames(FrameBudget(4 * MIB, MIB, address_share=1.0))
        unproven = [frames.begin(MIB) for _ in range(8)]
        while any(frames.fill(frame) for frame in unproven if not frame.whole):
            pass
        assert frames.budget.waiting
        proven = frames.begin(MIB, proven=True)
        assert frames.fill(proven)

    run(body)


def test_one_address_does_not_take_all() -> None:
    async def body() -> None:
        frames = Frames(FrameBudget(5 * MIB, MIB, unproven_share=1.0, address_share=0.5))
        crowd = [frames.begin(MIB, address="crowd") for _ in range(8)]
        for frame in crowd:
            frames.fill(frame)
        assert frames.fill(frames.begin(MIB, address="other"))

    run(body)


def test_frames_that_wait_for_each_other_end_one_after_the_other() -> None:
    async def body() -> None:
        frames = Frames(FrameBudget(2 * MIB, MIB))
        waiting = [frames.begin(MIB) for _ in range(6)]
        done: list[FrameMemory] = []
        while len(done) < 6:
            before = len(done)
            for frame in waiting:
                if not frame.whole and frame not in frames.budget._waiting and frames.fill(frame):
                    done.append(frame)
                    frames.budget.end(frame)
            assert len(done) > before, "no frame gets on"
        assert frames.budget.taken_bytes == 0
        assert not frames.dropped

    run(body)


def test_a_frame_that_stands_still_gives_way_where_others_wait() -> None:
    async def body() -> None:
        frames = Frames(FrameBudget(2 * MIB, MIB, contended_grace_s=0.05))
        still = frames.begin(MIB)
        while not still.finishing:
            frames.budget.grow(still)
        for frame in [frames.begin(MIB) for _ in range(4)]:
            frames.fill(frame)
        while still not in frames.dropped:
            await asyncio.sleep(0.01)

    run(body)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(20)))
def test_whatever_comes_the_budget_holds_and_every_frame_that_is_filled_ends(seed: int) -> None:
    async def body() -> None:
        rng = random.Random(seed)
        size = rng.choice((1, 2, 3, 8)) * MIB
        frames = Frames(FrameBudget(size, MIB, contended_grace_s=1e9))
        begun = [
            frames.begin(
                rng.randrange(1, MIB + 1),
                address=rng.choice("abc"),
                proven=rng.random() < 0.5,
                at_work=rng.random() < 0.3,
            )
            for _ in range(rng.randrange(1, 60))
        ]
        left, bound = set(begun), size + len(begun) * FIRST_CHUNK_BYTES
        while left:
            before = len(left)
            for frame in rng.sample(sorted(left, key=lambda each: each.number), len(left)):
                assert frames.budget.taken_bytes <= bound
                if frame in frames.budget._waiting or not frame.granted_bytes:
                    if rng.random() < 0.1:
                        frames.drop(frame)
                        left.discard(frame)
                    continue
                if rng.random() < 0.8 and (frame.whole or frames.fill(frame)):
                    frames.budget.end(frame)
                    left.discard(frame)
            if len(left) == before and all(frame in frames.budget._waiting for frame in left):
                raise AssertionError(f"seed {seed}: {len(left)} frames wait for each other")
        assert frames.budget.taken_bytes == 0
        assert not frames.budget.waiting

    run(body)
