"""A cluster that carries out a plan partition by partition, slowly and obviously, and checks every rule.

It reads what Kafka's tool would be given, in plain dictionaries, and shares no code with the planners.
Copies of a partition are made before the old ones go; with `hoarding` nothing goes before all copies are
made, which is the worst that a window of moves can do within a stage.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.plan_file import kafka_json
from rtolap.fleet.snapshot.model import UNKNOWN, BrokerState, FleetSnapshot, ReplicaState

Name = tuple[str, int]


@dataclass
class Disk:
    total: int
    used: int
    takes: bool


@dataclass
class Replica:
    broker: int
    path: str | None
    size: int


class SlowCluster:
    def __init__(
        self, snapshot: FleetSnapshot, *, disk_limit: float, may_stand: Mapping[str, set[int]] | None = None
    ) -> None:
        """Take the snapshot. `may_stand` has the brokers that each topic may come to, by default all."""
        self.limit = disk_limit
        self.may_stand = may_stand
        self.racks: dict[int, object] = {}
        self.alive: set[int] = set()
        for row, broker in enumerate(snapshot.brokers.ids.tolist()):
            rack, state = snapshot.brokers.racks[row], snapshot.brokers.states[row]
            self.racks[broker] = rack if rack is not None else None if state == BrokerState.ABSENT else broker
            if state == BrokerState.ALIVE:
                self.alive.add(broker)
        self.disks: dict[tuple[int, str], Disk] = {}
        dirs = snapshot.log_dirs
        for row, path in enumerate(dirs.paths):
            broker = int(snapshot.brokers.ids[dirs.brokers[row]])
            total, usable = int(dirs.total_bytes[row]), int(dirs.usable_bytes[row])
            known = total > 0 and usable != UNKNOWN and not dirs.offline[row]
            takes = known and not dirs.cordoned[row] and broker in self.alive
            self.disks[broker, path] = Disk(total, total - usable if known else 0, bool(takes))
        self.replicas: dict[Name, list[Replica]] = {}
        self.running: set[Name] = set()
        self.led: dict[Name, bool] = {}
        self.sizes: dict[Name, int] = {}
        replicas, partitions = snapshot.replicas, snapshot.partitions
        for row in range(len(replicas)):
            partition = replicas.partitions[row]
            topic = snapshot.topics.names[partitions.topics[partition]]
            name = (topic, int(partitions.numbers[partition]))
            where = int(replicas.log_dirs[row])
            size = int(replicas.size_bytes[row])
            broker = int(snapshot.brokers.ids[replicas.brokers[row]])
            self.replicas.setdefault(name, []).append(
                Replica(broker, None if where == UNKNOWN else dirs.paths[where], size)
            )
            self.led[name] = partitions.leaders[partition] != UNKNOWN
            self.sizes[name] = max(self.sizes.get(name, UNKNOWN), size)
            if replicas.states[row] != ReplicaState.STAYING or replicas.future_log_dirs[row] != UNKNOWN:
                self.running.add(name)
        for name, here in self.replicas.items():
            for replica in here:  # one that nobody tells is taken to be as large as the others
                replica.size = self.sizes[name] if replica.size == UNKNOWN else replica.size
        self._garbage: list[Replica] = []

    def carry_out(self, plan: Plan, seed: int, *, hoarding: bool = False) -> None:
        """Stage by stage, each in an order drawn from the seed. Raises AssertionError at the first rule that
        is broken."""
        source = random.Random(seed)
        for stage in range(plan.stage_count):
            steps = json.loads(kafka_json(plan, stage))
            assert steps["version"] == 1
            order = list(steps["partitions"])
            source.shuffle(order)
            for step in order:
                self._reassign((step["topic"], step["partition"]), step["replicas"], step["log_dirs"])
                if not hoarding:
                    self._sweep()
            self._sweep()

    def _reassign(self, name: Name, brokers: list[int], paths: list[str]) -> None:
        old = self.replicas[name]
        assert name not in self.running, f"{name} is being moved already"
        assert len(brokers) == len(paths) >= len(old), f"{name} loses replicas"
        assert len(set(brokers)) == len(brokers), f"{name} stands twice on a broker"
        known = {replica.broker: replica for replica in old}
        new: list[Replica] = []
        for broker, path in zip(brokers, paths, strict=True):
            here = known.pop(broker, None)
            if here is not None and path in ("any", here.path):
                new.append(here)
                continue
            if here is None and self.may_stand is not None:
                assert broker in self.may_stand[name[0]], f"{name} may not stand on {broker}"
            new.append(self._copy(name, broker, path))
            if here is not None:
                self._garbage.append(here)
        self._garbage += known.values()
        self._compare_racks(name, old, new)
        self.replicas[name] = new

    def _copy(self, name: Name, broker: int, path: str) -> Replica:
        assert self.led[name], f"{name} has no leader to copy from"
        assert self.sizes[name] != UNKNOWN, f"{name} is of unknown size"
        assert path != "any", f"{name} comes to {broker} and nobody says to which disk"
        disk = self.disks[broker, path]
        assert disk.takes, f"{name} comes to {broker}:{path}, which takes nothing"
        disk.used += self.sizes[name]
        assert disk.used <= disk.total * self.limit, f"{name} overfills {broker}:{path}"
        return Replica(broker, path, self.sizes[name])

    def _compare_racks(self, name: Name, old: list[Replica], new: list[Replica]) -> None:
        before, after = self.rack_counts(old), self.rack_counts(new)
        assert len(after) >= len(before), f"{name} stands in fewer racks"
        serving = {self.racks[broker] for broker in self.alive}
        even = -(-len(new) // max(len(serving), 1))
        most = max([*before.values(), even])
        assert max(after.values(), default=0) <= most, f"{name} stands in one rack more often"

    def rack_counts(self, replicas: list[Replica]) -> Counter[object]:
        racks = (self.racks[replica.broker] for replica in replicas)
        return Counter(rack for rack in racks if rack is not None)

    def _sweep(self) -> None:
        for replica in self._garbage:
            if replica.path is not None:
                disk = self.disks[replica.broker, replica.path]
                disk.used -= max(replica.size, 0)
        self._garbage.clear()

    def preferred(self) -> Counter[int]:
        return Counter(replicas[0].broker for replicas in self.replicas.values() if replicas)

    def shares(self) -> dict[tuple[int, str], float]:
        """Return how full the disks are that take replicas."""
        return {where: disk.used / disk.total for where, disk in self.disks.items() if disk.takes}
