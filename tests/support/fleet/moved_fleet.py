"""A topic on real brokers that a mover, a process of its own, moves while records are written and read."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from confluent_kafka.admin import AdminClient
from rtolap.base.clock import SystemClock
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import PlanState
from rtolap.fleet.moves.status import PlanStatus, plan_status
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.moves.submitting import MoverRequests
from rtolap.fleet.moves.throttles import LISTS, RATES
from rtolap.fleet.moves.window import PlanMoves
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.model import UNKNOWN, FleetSnapshot
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.kafka.administration.values import ALL_BROKERS, ConfigKind, ConfigResource, Partition

from tests.support.fleet.administration_contract import World
from tests.support.fleet.brokers import Brokers
from tests.support.fleet.counted_records import recounted
from tests.support.fleet.mover_process import MoverProcess
from tests.support.hostile.cluster_store import store_of
from tests.support.waiting import until

SIZE_BYTES = 2_000_000
SLOW = 150_000
FAST = 20_000_000
SESSION_TIMEOUT_S = 2


@dataclass
class MovedFleet:
    """A fleet whose replicas move. `env` is that of its commands and movers, `folder` has its logs."""

    brokers: Brokers
    world: World
    fleet_store: FleetStore
    mover: MoverProcess
    requests: MoverRequests
    topic: str
    partitions: int
    env: dict[str, str]
    folder: Path

    def snapshot(self) -> FleetSnapshot:
        """Return a snapshot as if each log directory were a small disk of its own: here all of them share
        one."""
        taken = self.whole_snapshot()
        replicas, log_dirs = taken.replicas, taken.log_dirs
        used = np.bincount(replicas.log_dirs, replicas.size_bytes, minlength=len(log_dirs)).astype(np.int64)
        total = np.full(len(log_dirs), 20 * SIZE_BYTES, np.int64)
        disks = replace(log_dirs, total_bytes=total, usable_bytes=total - used)
        return replace(taken, log_dirs=disks)

    def whole_snapshot(self) -> FleetSnapshot:
        """Return a snapshot without gaps. Brokers that have just made a replica may not report it yet."""
        taken: list[FleetSnapshot] = []

        def is_whole() -> bool:
            taken.append(collect_snapshot(self.world.administration, SystemClock()))
            return bool((taken[-1].replicas.log_dirs != UNKNOWN).all())

        until(is_whole, "where all replicas are", poll_s=0.2)
        return taken[-1]

    def submit(self, rate: int | None, plan: Plan | None = None) -> tuple[str, Plan]:
        """Submit a plan, by default the plan that balances."""
        submitted = plan or plan_disks(self.snapshot())
        assert len(submitted) > 2, submitted.why
        return self.requests.submit(submitted, rate_bytes_per_s=rate), submitted

    def another_mover(self, *options: str) -> MoverProcess:
        return MoverProcess(self.env, self.folder / "mover.log", *options)

    def throttle(self, rate: int) -> None:
        self.requests.ask(RequestKind.THROTTLE, rate_bytes_per_s=rate)

    def record(self, plan_id: str) -> PlanRecord:
        stored = self.fleet_store.plan(plan_id)
        assert stored is not None
        return stored.record

    def status(self, plan_id: str) -> PlanStatus:
        record = self.record(plan_id)
        moves = PlanMoves.of(self.fleet_store.read_moves(plan_id, record.moves_digest))
        return plan_status(record, moves, SystemClock().now_ms(), MoverSettings())

    def wait_moving(self) -> None:
        until(self.world.administration.running_reassignments, "a running reassignment", poll_s=0.1)

    def wait_ended(self, plan_id: str) -> PlanRecord:
        try:
            until(lambda: self.record(plan_id).state is PlanState.ENDED, plan_id, timeout_s=150, poll_s=0.1)
        except AssertionError:
            running = self.world.administration.running_reassignments()
            raise AssertionError(f"not ended: {self.record(plan_id)}, {running}") from None
        return self.record(plan_id)

    def throttles(self) -> dict[str, dict[str, str]]:
        return throttles_of(self.world.administration)

    def check_nothing_moves(self) -> None:
        assert self.throttles() == {}
        assert self.world.administration.running_reassignments() == {}

    def check_nothing_left(self) -> None:
        self.check_nothing_moves()
        until(lambda: not self.not_in_sync(), "all replicas in sync", poll_s=0.2)

    def not_in_sync(self) -> list[str]:
        return [
            f"{topic.name}:{partition.number}"
            for topic in self.world.administration.describe_topics().values()
            for partition in topic.partitions
            if set(partition.in_sync) != set(partition.replicas)
        ]

    def replicas(self) -> list[tuple[int, ...]]:
        """Return the brokers of each partition of the topic."""
        described = self.world.administration.describe_topics([self.topic])[self.topic]
        return [tuple(partition.replicas) for partition in described.partitions]

    def used_bytes(self) -> dict[str, int]:
        """Return the topic's used bytes by broker and disk."""
        partitions = [Partition(self.topic, number) for number in range(self.partitions)]
        told = self.world.administration.describe_log_dirs(self.brokers.ids, partitions)
        return {
            f"{broker}:{Path(log_dir.path).name}": sum(r.size_bytes for r in log_dir.replicas if not r.future)
            for broker, of_broker in told.items()
            for log_dir in of_broker.log_dirs
        }

    def recounted(self, work: Callable[[], None], value_bytes: int = 200) -> None:
        """Do the work while records are written and read; each that was acknowledged is there once."""
        with recounted(self.brokers.cluster, self.topic, self.partitions, value_bytes):
            work()


def throttles_of(administration: FleetAdministration) -> dict[str, dict[str, str]]:
    """Return what is set, by topic, and for all brokers."""
    topics = [ConfigResource(ConfigKind.TOPIC, name) for name in administration.describe_topics()]
    found = administration.configs([*topics, ALL_BROKERS], [*RATES, *LISTS])
    return {str(resource): values for resource, values in found.items() if values}


@contextmanager
def moved_fleet(
    brokers: Brokers,
    world: World,
    zookeeper: str,
    folder: Path,
    replicas: list[list[int]],
    sizes_bytes: Sequence[int] | None = None,
) -> Iterator[MovedFleet]:
    """Yield a topic of these replicas, filled, and a mover that works; both are gone at the end."""
    topic = world.create(replicas)
    for number, size_bytes in enumerate(sizes_bytes or [SIZE_BYTES] * len(replicas)):
        world.fill(Partition(topic, number), size_bytes)
    token = folder / "token"
    token.write_text(secrets.token_urlsafe(20))
    env = {
        "RTOLAP_KAFKA": brokers.cluster.servers,
        "RTOLAP_ZOOKEEPER": zookeeper,
        "RTOLAP_ZOOKEEPER_ROOT": f"/{topic}",
        "RTOLAP_TOKEN_FILE": str(token),
        "RTOLAP_SESSION_TIMEOUT_S": str(SESSION_TIMEOUT_S),
    }
    store = store_of(env, session_timeout_s=6.0)
    fleet_store = FleetStore(store, world.administration.describe_cluster().cluster_id)
    requests = MoverRequests(fleet_store, SystemClock(), token.read_text(), "ada")
    log = folder / "mover.log"
    try:
        with MoverProcess(env, log) as mover:
            yield MovedFleet(brokers, world, fleet_store, mover, requests, topic, len(replicas), env, folder)
    finally:
        print(log.read_text()[-3000:])
        store.close()
        # those of a test that has failed fail no other
        world.administration.alter_configs({ALL_BROKERS: dict.fromkeys(RATES)})
        admin = AdminClient({"bootstrap.servers": brokers.cluster.servers})
        admin.delete_topics([topic])[topic].result(30)
        until(lambda: topic not in world.administration.describe_topics(), "the end of the topic")
        world.administration.close()
