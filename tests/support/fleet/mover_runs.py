"""Lives of a mover on a cluster in memory, killed at whatever call it makes, followed by another."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from rtolap.fleet.moves.mover import Mover
from rtolap.fleet.moves.planned import PlannedMove, digest_of_moves, encode_moves
from rtolap.fleet.moves.produce_latency import ProduceReader
from rtolap.fleet.moves.records import Hours, PlanRecord
from rtolap.fleet.moves.requests import MoveRequest, RequestKind, signed
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import PlanState
from rtolap.fleet.moves.store import FleetStore
from rtolap.kafka.administration.values import Partition, Replica
from rtolap.metadata.store import Create

from tests.support.twins.administered_cluster import MemoryCluster
from tests.support.twins.administration import MemoryAdministration
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

TOKEN = "the token"
FENCE = "/fence"
MEGABYTE = 1_000_000


class Killed(BaseException):
    """The process is gone: nothing of it catches this."""


class Mortal:
    """Passes calls on until its owner dies: `kill` says, by the call's number, whether it dies "before" or
    "after" it."""

    def __init__(self, inner: object, kill: Callable[[str], str | None]) -> None:
        self._inner = inner
        self._kill = kill

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)

        def passed(*arguments: Any, **named: Any) -> Any:
            fate = self._kill(name)
            if fate == "before":
                raise Killed(name)
            result = call(*arguments, **named)
            if fate == "after":
                raise Killed(name)
            return result

        return passed


class MoverWorld:
    """A cluster of brokers in racks of two, with what a mover needs. One step of the world is a second."""

    def __init__(
        self,
        brokers: int = 4,
        settings: MoverSettings | None = None,
        produce: ProduceReader | None = None,
    ) -> None:
        self.cluster = MemoryCluster("fleet")
        for broker in range(1, brokers + 1):
            self.cluster.add_broker(broker, f"rack{(broker + 1) // 2}")
        self.clock = ManualClock(1_700_000_000_000)
        self.store = MemoryStore(MemoryEnsemble())
        self.store.commit([Create(FENCE, b"")])
        self.administration = MemoryAdministration(self.cluster)
        self.fleet_store = FleetStore(self.store, "fleet")
        self.settings = settings or MoverSettings()
        self.produce = produce
        self.requests = 0
        self.mover = self.new_mover()

    def new_mover(self, kill: Callable[[str], str | None] | None = None) -> Mover:
        administration: Any = self.administration
        fleet_store = self.fleet_store
        if kill is not None:
            administration = Mortal(administration, kill)
            fleet_store = FleetStore(Mortal(self.store, kill), "fleet")
        return Mover(
            *(administration, fleet_store, lambda: FENCE, self.clock, TOKEN),
            settings=self.settings,
            produce=self.produce,
        )

    def add(
        self, topic: str, number: int, replicas: list[int], size_bytes: int = 10 * MEGABYTE, path: str = "/d0"
    ) -> Partition:
        partition = Partition(topic, number)
        self.cluster.add_partition(partition, replicas, size_bytes, path)
        return partition

    def planned(self, partition: Partition, after: list[int], paths: list[str] | None = None) -> PlannedMove:
        known = self.cluster.partitions[partition]
        return PlannedMove(
            partition.topic,
            partition.number,
            tuple(known.replicas),
            tuple(after),
            tuple(self.cluster.replicas[Replica(partition, broker)].path for broker in known.replicas),
            tuple(paths or [""] * len(after)),
            known.size_bytes,
        )

    def submit(
        self,
        moves: list[PlannedMove],
        *,
        plan_id: str = "plan",
        rate: int | None = 5 * MEGABYTE,
        hours: Hours | None = None,
        token: str = TOKEN,
    ) -> str:
        data = encode_moves(moves)
        self.fleet_store.write_moves(plan_id, data)
        return self.ask(
            RequestKind.SUBMIT,
            token,
            plan_id=plan_id,
            moves_digest=digest_of_moves(data),
            plan_digest="of the file",
            rate_bytes_per_s=rate,
            hours=hours,
        )

    def ask(self, kind: RequestKind, token: str = TOKEN, **values: Any) -> str:
        self.requests += 1
        name = f"request{self.requests:06d}"
        request = MoveRequest(name, kind, "fleet", self.clock.now_ms(), "ada", **values)
        self.fleet_store.ask(signed(request, token))
        return name

    def answer(self, request_id: str) -> str:
        """Return the code of its answer, "" where it was taken."""
        request = self.fleet_store.request(request_id)
        assert request is not None
        assert request.answer is not None
        return request.answer.code

    def record(self, plan_id: str = "plan") -> PlanRecord:
        stored = self.fleet_store.plan(plan_id)
        assert stored is not None
        return stored.record

    def pass_time(self, seconds: float = 1.0) -> None:
        self.cluster.advance(seconds)
        self.clock.advance_ms(int(seconds * 1000))

    def run(self, looks: int = 1, every_s: float = 1.0) -> None:
        for _ in range(looks):
            while self.mover.step():
                pass
            self.pass_time(every_s)

    def run_until_ended(self, plan_id: str = "plan", seconds_max: int = 10_000) -> PlanRecord:
        for _ in range(seconds_max):
            self.run()
            stored = self.fleet_store.plan(plan_id)
            if stored is not None and stored.record.state is PlanState.ENDED:
                return stored.record
        raise AssertionError(f"not ended: {self.record(plan_id)}")

    def leftovers(self) -> list[str]:
        """Return the throttles, reassignments and moves between disks that are there."""
        found = [f"{resource}: {values}" for resource, values in self.cluster.configs.items() if values]
        found += [f"{known}: reassigned" for known, at in self.cluster.partitions.items() if at.target]
        found += [f"{known}: moved" for known, held in self.cluster.replicas.items() if held.future_path]
        return found


def random_world(seed: int, partitions: int = 30) -> tuple[MoverWorld, list[PlannedMove], random.Random]:
    """Return partitions of two replicas in two racks. Most are to move; some between disks, some just in
    another order."""
    source = random.Random(seed)
    world = MoverWorld(6, MoverSettings(give_up_ms=600_000))
    moves = []
    for number in range(partitions):
        before = _two_racks(source)
        partition = world.add(f"topic{number % 5}", number // 5, before, source.randrange(1, 60) * MEGABYTE)
        kind = source.randrange(5)
        if kind == 0:
            after, paths = before, ["/d1", "/d0"]
        elif kind == 1:
            after, paths = before[::-1], ["", ""]
        else:
            after = _two_racks(source)
            paths = [source.choice(["", "/d0", "/d1"]) for _ in after]
        move = world.planned(partition, after, paths)
        if move.before != move.after or any(paths):
            moves.append(move)
    return world, moves, source


def _two_racks(source: random.Random) -> list[int]:
    racks = source.sample([1, 2, 3], 2)
    return [2 * rack - source.randrange(2) for rack in racks]
