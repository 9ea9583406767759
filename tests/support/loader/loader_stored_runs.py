"""Seeded runs of a loader over the real front end: endpoints, a ledger and storage nodes, composed in
process.

    python -m tests.support.loader.loader_stored_runs --seed N

As `loader_runs`, whose sink is a twin; here the loader's requests go through the routes of an endpoint, its
transactions through a ledger, its rows into tablets on three nodes. Beside what goes wrong there: endpoints
die at any commit or call and start again, the mastership moves, a node is away, rows of nodes are lost, a
load stands still in an endpoint and goes on later, tablets are compacted, the topic is deleted and
recreated. The rows that are read back from every replica must equal a recount of what was produced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Thread
from typing import Any

import msgspec
from rtolap.base.closeable import Closeable
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.model.stored.table import Buckets, StoredColumn
from rtolap.protocols.stored_tables.messages import AddColumn
from rtolap.protocols.stream_load.messages import LoadAnswer, SendOptions
from rtolap.stored.frontend.election import LEASE_MS as MASTER_LEASE_MS
from rtolap.stored.loader.job import JobConfig, write_config
from rtolap.stored.loader.reset import left_labels_of_all
from rtolap.stored.loader.sink import Sink
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.metastore.load_jobs import LoadJobEvent, Series

from tests.support.loader.loader_runs import LATE_MS_MAX, FaultySink, Process, Run, World, answer_of
from tests.support.loader.loader_world import stored_table
from tests.support.seeds import replay
from tests.support.stored.stored_in_process import NODES, Gate, InProcessCluster

_REAL_S_MAX = 60.0  # for a thread that has nothing to wait for
_ROUND_MS = 4_000  # of nodes and endpoints; well within their leases
STEPS = 40
_STOP_ROUNDS_MAX = 30  # of a second each: partitions are looked at every ten
_DRAWN_OUT = (StopCause.SINK_REFUSES, StopCause.SINK_UNAVAILABLE)


class StoredRun(Run, Closeable):
    """`close` it."""

    cluster: InProcessCluster

    def __init__(self, world: World, seed: int, steps: int = STEPS) -> None:
        self.rounded_ms = 0
        super().__init__(world, seed, steps)

    def close(self) -> None:
        for _, request in self.late:
            if isinstance(request, _Held):
                request.release()
        self.cluster.close()

    # --- the sink -------------------------------------------------------------------------------------

    def create_table(self, *, keeps_labels: bool) -> None:
        self.cluster = InProcessCluster(self.world.ledger, self.world.clock, self.chance)
        table = msgspec.structs.replace(
            stored_table(self.job, self.model), database="d", buckets=Buckets(count=2)
        )
        self.cluster.create_table(table)

    def open_sink(self) -> Sink:
        return FaultySink(self, self.cluster.client)

    def failed_load(
        self, db: str, table: str, label: str, body: bytes, options: SendOptions, *, two_phase: bool
    ) -> LoadAnswer:
        """Fail a load: no tablet has a majority that takes rows."""
        self.cluster.refusing = frozenset(NODES[:2])
        try:
            return self.cluster.client.load(db, table, label, body, options, two_phase=two_phase)
        finally:
            self.cluster.refusing = frozenset()

    def load_under_way(
        self, db: str, table: str, label: str, body: bytes, options: SendOptions, *, two_phase: bool
    ) -> None:
        client = self.cluster.client
        held = _Held(self.cluster, lambda: client.load(db, table, label, body, options, two_phase=two_phase))
        if held.is_held:
            self.later(held)

    def late_ms_max(self) -> int:
        return LATE_MS_MAX

    def deliver(self, request: Callable[[], object]) -> None:
        self.cluster.beat()
        try:
            request()
        except RtolapError:  # nobody is there to be told
            self.counts["late, in vain"] += 1
        self.counts["came late"] += 1

    def advance_ms(self, by_ms: int) -> None:
        """Advance the time: nodes and endpoints do what they do every few seconds."""
        super().advance_ms(by_ms)
        now_ms = self.world.clock.now_ms()
        if now_ms - self.rounded_ms >= _ROUND_MS:
            self.rounded_ms = now_ms
            self.cluster.beat()
            self.cluster.run_once()

    def heal(self) -> None:
        self.cluster.heal()

    def found(self) -> list[tuple[Any, ...]]:
        self.cluster.heal()
        self.cluster.check_settled()
        rows = self.cluster.rows("d", self.job)
        if self.model != "duplicate":
            keys = [row["k"] for row in rows]
            assert len(keys) == len(set(keys)), f"seed {self.seed}: keys are there twice: {sorted(keys)}"
        return answer_of("duplicate", rows)

    def labels(self) -> set[str]:
        self.cluster.run_once()
        return set(self.cluster.labels("d"))

    def forget_labels(self) -> None:
        """Forget labels, as the endpoints' upkeep does."""

    # --- steps ----------------------------------------------------------------------------------------

    def acts(self) -> tuple[tuple[Callable[[], object], int], ...]:
        return (
            *super().acts(),
            (self.upkeep, 3),
            (self.change_master, 1),
            (self.stop_or_start_node, 2),
            (self.compact, 1),
            (self.recreate_topic, 1),
        )

    def restart_sink(self) -> None:
        """Start an endpoint that is down or has died, or else kill one."""
        dead = [
            at
            for at, endpoint in enumerate(self.cluster.endpoints)
            if endpoint is None or endpoint.ledger.dead
        ]
        if dead and self.random.random() < 0.7:
            self.cluster.start_endpoint(self.random.choice(dead))
        else:
            self.cluster.kill_endpoint(self.random.randrange(2))
            self.counts["endpoint killed"] += 1

    def publish(self) -> None:
        self.upkeep()

    def upkeep(self) -> None:
        self.faults_on = True
        try:
            self.cluster.run_once()
        finally:
            self.faults_on = False

    def change_master(self) -> None:
        """Change the master; the one before goes on in the belief that it is master."""
        others = [endpoint for endpoint in self.cluster.living() if endpoint is not self.cluster.master()]
        if others:
            self.world.clock.advance_ms(MASTER_LEASE_MS + 1)
            self.cluster.beat()
            self.counts["other master"] += others[0].assembly.election.run_once()

    def stop_or_start_node(self) -> None:
        """Stop or start a node. At most one is away: a majority of each tablet can take rows."""
        away = [name for name in NODES if name not in self.cluster.nodes.nodes]
        if away:
            self.cluster.nodes.start(away[0])
            self.cluster.beat()
        else:
            self.cluster.nodes.stop(self.random.choice(NODES))
            self.counts["node away"] += 1

    def compact(self) -> None:
        node = self.random.choice(sorted(self.cluster.nodes.nodes))
        self.counts["compactions"] += self.cluster.compact(self.cluster.nodes.nodes[node])

    def add_column(self) -> None:
        if self.columns == 0 and self.random.random() < 0.5:
            merged = "MAX" if self.model in ("aggregate", "replace") else None
            column = StoredColumn("x0", "bigint", aggregate=merged)  # type: ignore[arg-type]
            try:
                self.cluster.change_columns("d", self.job, AddColumn(column))
            except Unavailable:
                return  # no front end is master now
            self.columns = 1

    def recreate_topic(self) -> None:
        """Recreate the topic, once in a run, when all of it is loaded, so that it is known what of the old
        one is in the table. The loader must stop by itself; a person has it load the new one."""
        if self.topic_number:
            return
        faulty, self.faulty = self.faulty, 0.0
        self.heal()
        self.drain()
        process = self.processes[0]
        assert process is not None
        partitions = len(self.broker.logs(self.topic))
        self.broker.delete(self.topic)
        self.broker.create(self.topic, partitions)
        self.topic_number += 1
        self.produce()
        stopped = self._stopped(process)
        if stopped is None or stopped.cause is not StopCause.TOPIC_RECREATED:
            raise AssertionError(f"seed {self.seed}: another topic is no reason to stop: {stopped}")
        process.work.fail(stopped)
        process.work.ownership.release()
        self.processes = [None, None]
        job = self.jobs.get(self.job)

        def config(series: tuple[Series, ...]) -> str:
            left = left_labels_of_all(series, job)
            return write_config(JobConfig(self.loader).leaving(left))

        self.jobs.define_again(self.job, config)
        self.jobs.change_state(self.job, LoadJobEvent.START, "")
        self.faulty = faulty
        self.counts["topic recreated"] += 1

    def _stopped(self, process: Process) -> Stopped | None:
        """Return why the process stops by itself, if it does."""
        try:
            for _ in range(_STOP_ROUNDS_MAX):
                process.work.source.step(0.0)
                process.work.settle_once(process.settlers[0])
                self.advance_ms(1_000)
                process.work.ownership.renew()
        except Stopped as stopped:
            return stopped
        return None

    def _report(self, place: int, stopped: Stopped) -> None:
        """Report where a run stopped. A sink that fails for very long wants a person, who starts the loader
        again."""
        if self.faulty and stopped.cause in _DRAWN_OUT:
            self.processes[place] = None
            self.counts["started by a person"] += 1
            return
        super()._report(place, stopped)


class _Held:
    """A request that has got as far as an endpoint, and stands there until it is called."""

    def __init__(self, cluster: InProcessCluster, request: Callable[[], object]) -> None:
        self._gate, self._request = Gate(), request
        cluster.gate = self._gate
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        while self._thread.is_alive() and not self._gate.reached.wait(0.001):
            pass
        cluster.gate = None
        self.is_held = self._gate.reached.is_set()

    def __call__(self) -> None:
        self.release()

    def release(self) -> None:
        self._gate.released.set()
        self._thread.join(_REAL_S_MAX)
        assert not self._thread.is_alive(), "a load goes on for ever"

    def _run(self) -> None:
        try:
            self._request()
        except Unavailable:
            """Its endpoint has died."""


def run_seed(seed: int, steps: int = STEPS) -> Counter[str]:
    with StoredRun(World(), seed, steps) as run:
        return run.run()


if __name__ == "__main__":
    replay(__doc__, run_seed, STEPS)
