"""Seeded runs of a loader into stand-ins for Doris and StarRocks, over real sockets.

    python -m tests.support.loader.loader_foreign_runs --seed N

As `loader_runs`, whose sink is a twin; here the loader's own clients speak HTTP with two front ends and a
backend. Beside what goes wrong there: front ends and the backend break off before or behind each request, the
backend forgets its open transactions, labels are dropped by age and by number whatever anybody needs,
transactions run out of time, and a `load` of the past joins a later transaction of its label. The table must
equal a recount of the topic. Only a person may decide what nobody can know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec
from rtolap.base.closeable import Closeable
from rtolap.base.errors import Unavailable
from rtolap.model.loader import LoaderTarget
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions, TwoPhaseAnswer
from rtolap.protocols.stream_load.starrocks import StarRocksClient
from rtolap.stored.loader.job import JobConfig, write_config
from rtolap.stored.loader.sink import Sink

from tests.support.foreign.cluster import ForeignCluster
from tests.support.foreign.servers import PASSWORD, USER, Cut, ForeignServers, Kind, foreign_servers
from tests.support.loader.loader_runs import FaultySink, Run, World, table_schema
from tests.support.seeds import replay
from tests.support.stored.transaction_runs import Crash
from tests.support.twins.loader_sink import Row

STEPS = 80


class ForeignRun(Run, Closeable):
    """`close` it."""

    servers: ForeignServers
    cluster: ForeignCluster
    kinds: tuple[Kind, ...] = ("doris", "starrocks")
    two_phase_share = 0.6

    def __init__(self, world: World, seed: int, steps: int = STEPS) -> None:
        self._closing = ExitStack()
        super().__init__(world, seed, steps)
        target: LoaderTarget = self.kind
        self.faulty = self.random.choice((0.0, 0.2, 0.35))
        sink = msgspec.structs.replace(
            self.loader.sink,
            target=target,
            format="json",
            urls=self.servers.urls,
            user=USER,
            two_phase=self.random.random() < self.two_phase_share,
        )
        self.loader = msgspec.structs.replace(self.loader, sink=sink)
        world.ledger.fault = lambda: None
        self.jobs.reconfigure(self.job, write_config(JobConfig(self.loader)))
        world.ledger.fault = self._ledger_fault

    def close(self) -> None:
        self._closing.close()

    def create_table(self, *, keeps_labels: bool) -> None:
        self.kind = self.random.choice(self.kinds)
        self.labels_max = self.random.choice((3, 8, 40))
        # longer than a request is under way: else no loader could help
        kept_ms = 12 * 3_600_000
        self.cluster = ForeignCluster(
            self.world.clock.now_ms, labels_max=self.labels_max, label_kept_ms=kept_ms
        )
        self.sink = self.cluster
        self.sink.tables["d", self.job] = table_schema(self.model)
        self.servers = self._closing.enter_context(foreign_servers(self.kind, self.cluster, front_ends=2))
        self.servers.cut = self._cut
        self.sent: dict[str, tuple[int, list[Row]]] = {}
        self.cluster.stray = self._stray
        client = StarRocksClient if self.kind == "starrocks" else StreamLoadClient
        self.client = self._closing.enter_context(client(self.servers.urls, USER, PASSWORD))

    def open_sink(self) -> Sink:
        return FaultySink(self, self.client)

    def _cut(self, server: str, path: str) -> Cut | None:
        often = 1.5 if server == "be" else 0.3
        kind = self.chance(f"{server} cut before", f"{server} cut after", often=often)
        return None if kind is None else "before" if kind.endswith("before") else "after"

    def load_under_way(
        self, db: str, table: str, label: str, body: bytes, options: SendOptions, *, two_phase: bool
    ) -> None:
        """A transaction of StarRocks stays open in the backend, without rows yet."""
        if self.kind != "starrocks" or not two_phase:
            super().load_under_way(db, table, label, body, options, two_phase=two_phase)
        else:
            self.cluster.begin_transaction(db, table, label, options.timeout_s)

    def _stray(self, label: str, txn_id: int, rows: list[Row]) -> list[Row]:
        """Return rows of the earlier attempt, which come behind those of a `load` of this transaction."""
        earlier, self.sent[label] = self.sent.get(label), (txn_id, list(rows))
        if earlier is None or earlier[0] == txn_id or self.random.random() < 0.3:
            return []
        self.counts["late rows in a transaction"] += 1
        return earlier[1]

    def failed_load(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        self.cluster.backend.contexts.clear()
        return super().failed_load(*args, **kwargs)  # type: ignore[arg-type]

    def acts(self) -> tuple[tuple[Callable[[], object], int], ...]:
        return (*super().acts(), (self.settle, 20), (self.kill_backend, 1))

    def restart_sink(self) -> None:
        """It is away for a quarter of the time, so that batches meet other faults too."""
        super().restart_sink()
        self.sink.down = self.random.random() < 0.25

    def kill_backend(self) -> None:
        self.cluster.kill_backend()
        self.counts["backend killed"] += 1

    def forget_labels(self) -> None:
        self.cluster.pass_time()

    def heal(self) -> None:
        super().heal()
        self.counts[f"runs of {self.kind}"] += 1


class JoiningRun(ForeignRun):
    """Two phases into StarRocks: answers of `prepare` are lost, rollbacks do not come, rows come late."""

    kinds = ("starrocks",)
    two_phase_share = 1.0

    def _cut(self, server: str, path: str) -> Cut | None:
        if self.faults_on and self.random.random() < 0.5:
            if path.endswith("/rollback"):
                return "before"
            if server == "be" and path.endswith("/prepare"):
                self.counts["prepared, and nobody knows"] += 1
                return "after"
        return super()._cut(server, path)


@dataclass(frozen=True)
class LateCommit:
    """A second phase that is under way."""

    cluster: ForeignCluster
    db: str
    label: str

    def __call__(self) -> object:
        return self.cluster.commit_label(self.db, self.label)


class LateCommitRun(ForeignRun):
    """Two phases into StarRocks: what earlier attempts have sent comes behind their rollback.

    A load joins a later transaction of its label, and a commit comes while that transaction is open, or when
    it is prepared.
    Nobody else uses labels up: a sink that has dropped a label takes a late request for a new one, and no
    loader can help that.
    """

    kinds = ("starrocks",)
    two_phase_share = 1.0

    def __init__(self, world: World, seed: int, steps: int = STEPS) -> None:
        super().__init__(world, seed, steps)
        self.faulty = self.random.choice((0.04, 0.08))  # of all else: batches are to get as far as a commit

    def restart_sink(self) -> None:
        super().restart_sink()
        self.sink.down = self.sink.down and self.random.random() < 0.3

    def acts(self) -> tuple[tuple[Callable[[], object], int], ...]:
        return tuple((act, weight) for act, weight in super().acts() if act != self.others_load)

    def open_sink(self) -> Sink:
        return LateCommitSink(self, self.client)

    def _stray(self, label: str, txn_id: int, rows: list[Row]) -> list[Row]:
        stray = super()._stray(label, txn_id, rows) if self.random.random() < 0.6 else []
        self.joined = label if stray else ""
        return stray

    def _cut(self, server: str, path: str) -> Cut | None:
        if server == "be" and path.endswith(("/prepare", "/rollback")):
            self._commits_come(self.servers.seen[-1].headers["label"])
        return super()._cut(server, path)

    def _commits_come(self, label: str) -> None:
        for entry in [each for each in self.late if isinstance(each[1], LateCommit)]:
            if entry[1] == LateCommit(self.cluster, self.db, label) and self.random.random() < 0.7:
                self.late.remove(entry)
                self.deliver(entry[1])
                self.counts["late commit"] += 1
                self.counts["late load and late commit"] += label == self.joined


class LateCommitSink(FaultySink):
    """Its second phases are often sent by a process that dies, or that gets no answer."""

    def __init__(self, run: LateCommitRun, server: Sink) -> None:
        super().__init__(run, server)
        self._late_run = run

    def commit_label(self, db: str, label: str) -> TwoPhaseAnswer:
        run = self._late_run
        match run.chance("commit of a dead process", "commit without an answer", often=8.0):
            case "commit of a dead process":
                run.later(LateCommit(run.cluster, db, label))
                raise Crash
            case "commit without an answer":
                run.later(LateCommit(run.cluster, db, label))
                raise Unavailable("no answer")
        return super().commit_label(db, label)


def run_late_commit_seed(seed: int) -> Counter[str]:
    with LateCommitRun(World(), seed) as run:
        return run.run()


def run_joining_seed(seed: int) -> Counter[str]:
    with JoiningRun(World(), seed) as run:
        return run.run()


def run_seed(seed: int, steps: int = STEPS) -> Counter[str]:
    with ForeignRun(World(), seed, steps) as run:
        return run.run()


if __name__ == "__main__":
    replay(__doc__, run_seed, STEPS)
