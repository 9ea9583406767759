"""Seeded runs of loaders that are units of an application: its watermark is never ahead of what is readable.

    python -m tests.support.loader.loader_application_runs --seed N

As `loader_runs`, with the same faults; beside them a real application, whose source says how far events are
in the topic, and whose leaders change. Reports and answers are lost and repeated. Events come in any order at
or after what the source has said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
from rtolap.coordinator.applications.registry import Applications
from rtolap.model.application import (
    Application,
    ApplicationSource,
    HostList,
    HostPrecise,
    Registry,
    Rule,
    Sink,
)
from rtolap.model.loader import LoaderApplication
from rtolap.protocols.stream_load.messages import LoadState
from rtolap.protocols.watermark import messages as wire
from rtolap.stored.loader.operator import Operator

from tests.support.loader.loader_runs import STEPS, Process, Run, World
from tests.support.seeds import replay
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore
from tests.support.watermarks.application_client import SteppedClient

NAME, SOURCE, LEVEL, HOST = "logs", "web", "store", "log"
UNIT = LoaderApplication(NAME, LEVEL, 3)
LEASE_MS = 86_400_000  # the longest; no loader of a run is away for so long
ROUNDS_MAX = 100
_SPREAD_MS = 5_000


def application() -> Application:
    hosts = HostList(registry=Registry(lease_ms=LEASE_MS))
    source = ApplicationSource(name=SOURCE, rule=Rule(host_precise=HostPrecise(0)), hosts=hosts)
    sink = Sink(name=LEVEL, unit_lease_ms=LEASE_MS)
    return Application(name=NAME, sources=(source,), sinks=(sink,), edges=((SOURCE, LEVEL),))


class OperatorProcess(Process):
    def __init__(self, process: Process, client: SteppedClient) -> None:
        super().__init__(process.work)
        work = process.work
        epoch = work.ownership.lease.epoch
        self.client = client
        self.operator = Operator(client, UNIT, work.loader.name, epoch, work.visible, work.log_ends)


class ApplicationRun(Run):
    def __init__(self, world: World, seed: int, steps: int = STEPS) -> None:
        super().__init__(world, seed, steps, application=UNIT)
        self.event_ms: dict[str, int] = {}
        self.said_ms = self.heard_ms = world.clock.now_ms()
        self.store = MemoryStore(MemoryEnsemble())
        self.leaders = 0
        self._lead()
        self.applications.create(msgspec.to_builtins(application()))
        self._renew()
        self.reader = SteppedClient("reader", self.random, self._deliver)

    def acts(self) -> tuple[tuple[Callable[[], object], int], ...]:
        """Return the acts. Little comes in between, so that loaders catch up between faults and not only
        after them."""
        often: dict[Callable[[], object], int] = dict(super().acts())
        often |= {self.produce: 2, self.settle: 20}
        return (
            *often.items(),
            (self.bring_back, 2),
            (self.report, 25),
            (self.say_progress, 8),
            (self.tick, 12),
            (self.fail_over, 1),
        )

    def produce(self) -> None:
        before = len(self.produced)
        super().produce()
        for row in self.produced[before:]:
            self.event_ms[row["src"]] = self.said_ms + self.random.randrange(_SPREAD_MS)

    def started(self) -> Process:
        process = super().started()
        return OperatorProcess(process, SteppedClient(f"p{self.starts}", self.random, self._deliver))

    def pass_time(self) -> None:
        """Pass time. No loader is away for longer than its unit's lease: that is what the lease says."""
        longest_ms = 2 * self.loader.sink.label_kept_ms
        if self.world.clock.now_ms() + longest_ms < self.heard_ms + LEASE_MS:
            super().pass_time()

    def bring_back(self) -> None:
        self.sink.down = False

    def report(self) -> None:
        def one(process: Process) -> None:
            assert isinstance(process, OperatorProcess)
            try:
                process.operator.run_once()
            finally:
                process.client.send()

        self.of_any(one)

    def say_progress(self) -> None:
        """Report progress: what lies before is in the topic. The source begins once the loader is known as a
        unit.
        """
        if self.applications.info(NAME).units:
            self.said_ms = self.random.randrange(self.said_ms, self.world.clock.now_ms() + 1)
            self._renew()
            self.reader.report_progress(SOURCE, 0, 1, [HOST], [self.said_ms])
            self.reader.send()

    def tick(self) -> None:
        self.applications.tick()
        output_ms = self._marks().output_ms
        if output_ms is None:
            return
        missing = sorted(
            src for src, at_ms in self.event_ms.items() if at_ms < output_ms and src not in self._readable()
        )
        assert not missing, f"seed {self.seed}: {missing} cannot be read, the watermark is at {output_ms}"
        self.counts["with events behind it"] += any(at_ms < output_ms for at_ms in self.event_ms.values())

    def fail_over(self) -> None:
        self.applications.close()
        self._lead()
        self.counts["coordinators"] += 1

    def judge(self) -> None:
        """Judge that all that is loaded counts in the end: the loader holds nothing back for ever."""
        process = self.processes[0]
        assert isinstance(process, OperatorProcess)
        self.said_ms = self.world.clock.now_ms()
        self.reader.report_progress(SOURCE, 0, 1, [HOST], [self.said_ms])
        for _ in range(ROUNDS_MAX):
            process.operator.run_once()
            process.client.send()
            self.reader.send()
            self.tick()
            if self._marks().output_ms == self.said_ms:
                break
        else:
            raise AssertionError(f"seed {self.seed}: held at {self._marks()} for ever")
        super().judge()

    def close(self) -> None:
        self.applications.close()
        self.store.close()

    def _renew(self) -> None:
        change = wire.HostsChange(level=SOURCE, action="register", hosts=(HOST,))
        self.applications.running(NAME).change_hosts(change)

    def _readable(self) -> set[str]:
        committed = (one for one in self.sink.committed if one.state is LoadState.VISIBLE)
        return {row["src"] for one in committed for row in one.rows}

    def _marks(self) -> wire.LevelWatermark:
        return self.applications.watermarks(NAME).levels[LEVEL]

    def _lead(self) -> None:
        self.leaders += 1
        term = f"term-{self.leaders}"
        self.applications = Applications(self.store, self.world.clock, lambda: term)

    def _deliver(self, batch: wire.ReportBatch) -> wire.ReportAnswer:
        answer = self.applications.running(NAME).report(batch)
        if batch.units and not answer.resend:
            self.heard_ms = self.world.clock.now_ms()
        return answer


def run_seed(seed: int, steps: int = STEPS * 4, world: World | None = None) -> Counter[str]:
    run = ApplicationRun(world or World(), seed, steps)
    try:
        return run.run()
    finally:
        run.close()


if __name__ == "__main__":
    replay(__doc__, run_seed, STEPS * 4)
