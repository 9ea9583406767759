"""Seeded runs of a whole cluster in one process, held against a plain recount at every answer.

One scheduler owns all order: it produces, consumes, closes, uploads, builds, realigns, crashes, loses disks,
moves leadership, breaks commits, and asks. `python -m rtolap.testing.harness --seed 7` replays a seed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from rtolap.metadata.records import CubeControl
from rtolap.metadata.store import Operation
from rtolap.model.segment_states import SegmentState
from rtolap.receiver.settings import ReceiverSettings
from rtolap.testing.builders import START_MS, WINDOW_MS, random_event, small_schema
from rtolap.testing.cluster import PASSING, Cluster, Receiver, chooser
from rtolap.testing.recount import Answer, merge_into

STEPS = 900
DRAIN_ROUNDS_MAX = 400


class Run:
    def __init__(self, seed: int, folder: Path, steps: int = STEPS) -> None:
        self.random = random.Random(seed)
        self.seed, self.steps = seed, steps
        settings = ReceiverSettings(
            batch_records_max=self.random.choice((5, 20, 80, 500)),
            flush_rows=self.random.choice((10, 60, 400)),
            checkpoint_interval_s=self.random.choice((5.0, 60.0)),
            fragments_max=2,
            disk_free_bytes_min=0,
            idle_after_s=3.0,
        )
        self.cluster = Cluster(small_schema(), folder, settings, start_ms=START_MS)
        self.cluster.ensemble.fault = self._fault
        self.fault_rate = self.random.choice((0.0, 0.1, 0.3))
        self.counts: Counter[str] = Counter()
        self.choose = chooser(self.cluster, self.random)

    def _fault(self, operations: Sequence[Operation]) -> Literal["before", "after"] | None:
        if self.random.random() >= self.fault_rate:
            return None
        self.counts["broken commits"] += 1
        return self.random.choice(("before", "after"))

    def _any(self) -> Receiver:
        return self.random.choice(self.cluster.receivers)

    # -- what may happen --------------------------------------------------------------------------------

    def produce(self) -> None:
        now_ms = self.cluster.clock.now_ms()
        for _ in range(self.random.randrange(1, 40)):
            value, event = random_event(self.random, now_ms)
            self.cluster.produce(self.random.randrange(len(self.cluster.log)), value, event)

    def consume(self) -> None:
        for receiver in self.random.sample(self.cluster.receivers, self.random.randrange(1, 5)):
            for _ in range(self.random.randrange(1, 4)):
                receiver.consume()

    def advance(self) -> None:
        self.cluster.clock.advance_ms(self.random.randrange(1, WINDOW_MS // 4))

    def look(self) -> None:
        for receiver in self.random.sample(self.cluster.receivers, self.random.randrange(1, 5)):
            receiver.look()

    def close(self) -> None:
        self._any().close_due()

    def realign(self) -> None:
        self.counts["realigned"] += self._any().realign()

    def upload(self) -> None:
        self.counts["uploads"] += self._any().upload(times=self.random.choice((1, 1, 2)))

    def merge(self) -> None:
        self._any().merge()

    def checkpoint(self) -> None:
        self._any().checkpoint()

    def crash(self) -> None:
        self.counts["crashes"] += 1
        self._any().crash()

    def lose_disk(self) -> None:
        self.counts["lost disks"] += 1
        self._any().lose_disk()

    def elect(self) -> None:
        """Anybody, nobody or both: correctness does not depend on there being one leader."""
        receiver = self._any()
        receiver.leading = not receiver.leading

    def build(self) -> None:
        self.counts["builds"] += self.cluster.build_next()

    def requeue(self) -> None:
        ready = [name for name, r in self.cluster.records().items() if r.state is SegmentState.READY]
        if ready:
            self.cluster.requeue(self.random.choice(ready))

    def force(self) -> None:
        receiver = self._any()
        receiver.core.force.update(receiver.core.state.segments)

    def ask(self) -> None:
        span = None
        if self.random.random() < 0.4:
            first = START_MS + self.random.randrange(-5, 10) * WINDOW_MS
            span = (first, first + self.random.randrange(1, 4 * WINDOW_MS))
        before = dict(self.cluster.seen)
        found = self.cluster.ask(self.choose, span)
        if found is None:
            self.counts["not ready"] += 1
            return
        self.counts["answers"] += 1
        answer, positions = found
        assert all(positions[p] >= at for p, at in before.items()), f"seed {self.seed}: went backwards"
        self._equal(answer, self.cluster.expected(positions, span), f"answer at {positions}, {span}")

    def _equal(self, found: Answer, expected: Answer, what: str) -> None:
        if found != expected:
            keys = sorted({*found, *expected}, key=str)
            lines = [
                f"{k}: {found.get(k)} for {expected.get(k)}" for k in keys if found.get(k) != expected.get(k)
            ]
            raise AssertionError(f"seed {self.seed}: {what} differs from the recount\n" + "\n".join(lines))

    ACTIONS: tuple[tuple[Callable[[Run], None], float], ...] = (
        (produce, 10),
        (consume, 30),
        (advance, 8),
        (look, 20),
        (close, 10),
        (realign, 15),
        (upload, 15),
        (merge, 3),
        (checkpoint, 4),
        (crash, 1),
        (lose_disk, 0.4),
        (elect, 1),
        (build, 8),
        (requeue, 0.5),
        (force, 0.3),
        (ask, 20),
    )

    # -- the run ----------------------------------------------------------------------------------------

    def run(self) -> Counter[str]:
        actions = [action for action, _ in self.ACTIONS]
        weights = [weight for _, weight in self.ACTIONS]
        for action in self.random.choices(actions, weights, k=self.steps):
            try:
                action(self)
            except PASSING as error:
                self.counts[f"passing {type(error).__name__}"] += 1
        self.drain()
        return self.counts

    def drain(self) -> None:
        """No more events: everything becomes history, and history equals the recount."""
        cluster = self.cluster
        self.fault_rate = 0.0
        for receiver in cluster.receivers:
            receiver.leading = receiver.name.endswith("-0")
        ends = {part: len(events) for part, events in cluster.log.items()}
        for _ in range(DRAIN_ROUNDS_MAX):
            cluster.clock.advance_ms(2_000)
            for receiver in cluster.receivers:
                receiver.look()
                while receiver.consume():
                    pass
                receiver.core.force.update(receiver.core.state.segments)
                for act in (receiver.close_due, receiver.look, receiver.realign, receiver.upload):
                    try:
                        act()
                    except PASSING as error:
                        self.counts[f"passing {type(error).__name__}"] += 1
            self._close_rest()
            cluster.build_next()
            self.ask()
            if self._drained(ends):
                break
        else:
            raise AssertionError(f"seed {self.seed}: not drained: {self._state()}")
        history: Answer = {}
        for name, record in cluster.records().items():
            merge_into(history, cluster.history[name][record.version])
        self._equal(history, cluster.expected(ends), "final history")
        for receiver in cluster.receivers:
            receiver.checkpoint()
        missing = cluster.malformed() ^ cluster.dead_letters()
        assert not missing, f"seed {self.seed}: dead letters differ: {sorted(missing)[:5]}"

    def _close_rest(self) -> None:
        """Replica sets without data of a segment close it by the coordinator's forced closing."""
        before_ms = self.cluster.clock.now_ms() + WINDOW_MS
        self.cluster.metadata.update_control(
            self.cluster.cube, lambda control: _closing_before(control, before_ms)
        )

    def _drained(self, ends: dict[int, int]) -> bool:
        cluster = self.cluster
        return all(r.state is SegmentState.READY for r in cluster.records().values()) and all(
            not receiver.core.state.segments
            and all(receiver.core.state.positions[p] == ends[p] for p in receiver.core.owned)
            for receiver in cluster.receivers
        )

    def _state(self) -> str:
        records = {n: (r.state.value, r.version, r.target) for n, r in self.cluster.records().items()}
        local = {
            r.name: (
                r.core.consumer_state.value,
                r.core.reason,
                r.core.state.positions,
                list(r.core.state.segments),
            )
            for r in self.cluster.receivers
        }
        return f"{records}\n{local}"


def _closing_before(control: CubeControl, before_ms: int) -> CubeControl:
    return msgspec.structs.replace(
        control, close_before_ms=max(before_ms, control.close_before_ms or before_ms)
    )


def run_seed(seed: int, steps: int = STEPS) -> Counter[str]:
    """One run in a folder of its own. Raises AssertionError, naming the seed, where an answer is wrong."""
    with tempfile.TemporaryDirectory(prefix="rtolap-harness-") as folder:
        run = Run(seed, Path(folder), steps)
        try:
            return run.run()
        finally:
            run.cluster.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="so many, from --seed on")
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        print(seed, dict(run_seed(seed, arguments.steps)), flush=True)


if __name__ == "__main__":
    main()
