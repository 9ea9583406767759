"""Seeded runs of a cube that closes by an application, held against the whole log.

The scheduler owns all order. Whatever happens: of a segment that was closed by the watermark, with no host
allowed to be late, every event of the whole log lies below the vector.
`python -m tests.support.watermarks.application_run --seed 7` replays a seed.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.support.cubes.builders import WINDOW_MS
from tests.support.in_memory import IN_MEMORY
from tests.support.seeds import replay
from tests.support.watermarks.application_world import HOSTS, NAME, ApplicationWorld

STEPS = 400
DRAIN_ROUNDS_MAX = 300


class Run(ApplicationWorld):
    """A world, and what holds in it."""

    def run(self, steps: int = STEPS) -> Counter[str]:
        choices: tuple[tuple[Callable[[], object], float], ...] = (
            (self.produce, 20),
            (self.advance, 10),
            (self.stall, 6),
            (self.work, 60),
            (lambda: self.any().checkpoint(), 1),
            (self.tick, 15),
            (self.elect, 2),
            (self.cut_off, 1.5),
            (self.crash, 1),
            (self.fail_over, 0.7),
            (self.reassign, 0.7),
        )
        for _ in range(steps):
            (action,) = self.random.choices([one for one, _ in choices], [weight for _, weight in choices])
            self.attempt(action)
            self.check()
        self.counts["closed_under_faults"] = self.counts["closed"]
        self._drain()
        self.check()
        self.counts["events"] = sum(map(len, self.log.values()))
        return self.counts

    def check(self) -> None:
        """Check that no event, now or later, lies behind a vector: hosts log in order."""
        records = self.metadata.segments(self.cube).values()
        for record in records:
            known = record.completeness
            assert known is not None, f"seed {self.seed}: {record.name} does not say by what it was closed"
            assert known.closed_by == "watermark"
            for partition, end in record.target.items():
                last = self.last.get((record.start_ms, partition), -1)
                assert last < end, f"seed {self.seed}: {record.name} is closed at {end}, {last} comes later"
        self.counts["closed"] = len(records)

    def _drain(self) -> None:
        """Drain while everything works and everybody logs on: what has ended closes."""
        self.stalled = set()
        ended_ms = self.clock.now_ms() // WINDOW_MS * WINDOW_MS
        for _ in range(DRAIN_ROUNDS_MAX):
            self.clock.advance_ms(WINDOW_MS // 8)
            for host in HOSTS:
                self.hand_on(host)
            for receiver in self.receivers:
                for action in receiver.everything:
                    self.attempt(action)
            self.attempt(self.tick)
            if self._closed_until(ended_ms):
                return
        raise AssertionError(f"seed {self.seed}: what has ended does not close: {self._state()}")

    def _closed_until(self, ended_ms: int) -> bool:
        records = {record.start_ms: record for record in self.metadata.segments(self.cube).values()}
        starts = {start_ms for start_ms, _ in self.last}
        return all(
            start in records and records[start].target.keys() == self.log.keys()
            for start in starts
            if start + WINDOW_MS <= ended_ms
        )

    def _state(self) -> str:
        explained = self.applications.explain(NAME, self.clock.now_ms())
        mine = [f"{one.describe()} {one.belief} {one.takeover}" for one in self.receivers]
        return "\n".join([str(explained.reasons), str(self.leads), *mine])


def run_seed(seed: int, steps: int = STEPS) -> Counter[str]:
    """Run once in a folder of its own. Raises AssertionError, naming the seed."""
    with tempfile.TemporaryDirectory(prefix="rtolap-application-", dir=IN_MEMORY) as folder:
        run = Run(seed, Path(folder))
        try:
            return run.run(steps)
        finally:
            run.close()


if __name__ == "__main__":
    replay(__doc__, run_seed, STEPS)
