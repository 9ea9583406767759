"""Seeded runs of transactions while replicas move, held against the model of `transaction_runs`.

    python -m tests.support.stored.move_runs --seed N

Five nodes, of which three keep each tablet at first. Nodes go down for longer than the deadline and come
back; they are drained, and no longer drained; masters die at every write and at every call. In the end each
tablet has three replicas with equal histories, and no node has anything else.
"""

from __future__ import annotations

import argparse
import functools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rtolap.model.stored.partitions import PartitionRange
from rtolap.model.stored.schema import StoredSchema, initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.stored.frontend.catalogue.task_dispatcher import TaskDispatcher
from rtolap.stored.frontend.moves.mover import Mover, MoverSettings
from rtolap.stored.metastore import nodes as node_rows
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import pending_tablet_tasks as tasks
from rtolap.stored.metastore import replica_moves
from rtolap.stored.metastore import tables as table_rows
from rtolap.stored.metastore.database import Connection
from rtolap.stored.metastore.records import Partition, Replica, StorageNode, Tablet, Transaction

from tests.support.stored.transaction_runs import BUCKETS, TIMEOUT_MS, Load, Master, Run, World
from tests.support.twins.storage_nodes import MemoryNode, MemoryNodes

NAMES = ("n1", "n2", "n3", "n4", "n5")
REPLICATION = 3
NODE_LEASE_MS = 4_000
LOST_AFTER_MS = 12_000
STEPS = 60


class MovingNodes(MemoryNodes):
    """A `TabletHosts` too."""

    def create(
        self, node: str, table_id: int, partition: Partition, buckets: Collection[int], schema: StoredSchema
    ) -> None:
        def work(here: MemoryNode) -> None:
            for bucket in buckets:
                here.versions.setdefault(Tablet(partition, bucket), [])

        self._call(node, work)

    def drop(self, node: str, table_id: int, partition: Partition, buckets: Collection[int]) -> None:
        def work(here: MemoryNode) -> None:
            for bucket in buckets:
                tablet = Tablet(partition, bucket)
                here.versions.pop(tablet, None)
                for rows in (*here.prepared.values(), *here.received.values()):
                    rows.pop(tablet, None)

        self._call(node, work)

    def change_schema(self, node: str, table_id: int, db: str, table: str, schema: StoredSchema) -> None:
        self._call(node, lambda here: None)

    def sizes(self, node: str) -> Mapping[Tablet, int]:
        return self._call(node, lambda here: {tablet: len(rows) for tablet, rows in here.versions.items()})


@dataclass
class MovingMaster(Master):
    mover: Mover
    dispatcher: TaskDispatcher


class MoveRun(Run):
    nodes: MovingNodes

    def make_nodes(self) -> MovingNodes:
        nodes = MovingNodes(NAMES)
        self.draining: set[str] = set()

        def forget(it: Connection) -> None:
            for node in NAMES:
                node_rows.set_draining(it, node, False)

        self.world.ledger.write("w", type(None), forget)
        self.definition = StoredTable(
            database=self.db, name="t", columns=(StoredColumn("id", "int"),), keys=("id",), model="unique"
        )
        self.nodes = nodes
        self.beat()
        return nodes

    def holders(self, tablet: Tablet) -> tuple[str, ...]:
        return tuple(each.node for each in self.replicas() if each.tablet == tablet)

    def replicas(self) -> tuple[Replica, ...]:
        return self.world.ledger.read("r", lambda it: partition_rows.replicas_of(it, self.db, "t"))

    def _create(self, part: Partition) -> None:
        placed = dict.fromkeys(BUCKETS, NAMES[:REPLICATION])
        at = self.parts.index(part)

        def work(it: Connection) -> None:
            table = table_rows.find(it, self.db, "t")
            if table is None:
                schema = initial_schema(self.definition)
                table = table_rows.insert(it, self.definition, schema, 0)
            table_rows.add_partition(it, table, PartitionRange(at, at + 1, part.name), placed)

        self.world.ledger.write("w", type(None), work)

    def _master(self, owner: str) -> MovingMaster:
        one = super()._master(owner)
        ledger = self.world.ledger
        mover = Mover(
            ledger,
            one.mastership,
            self.nodes,
            self.nodes,
            self.nodes.sizes,
            replication=REPLICATION,
            settings=MoverSettings(lost_after_ms=LOST_AFTER_MS, grace_ms=NODE_LEASE_MS, replan_ms=1),
        )
        dispatcher = TaskDispatcher(ledger, one.mastership, self.nodes)
        return MovingMaster(one.mastership, one.manager, one.upkeep, mover, dispatcher)

    def step(self) -> None:
        steps = (
            self.whole_load,
            self.whole_load,
            self.move,
            self.move,
            self.move,
            self.dispatch,
            self.drain,
            self.long_away,
            self.beat,
        )
        if self.random.random() < 0.5:
            self.random.choice(steps)()
        else:
            super().step()

    def whole_load(self) -> None:
        """Load under a label of its own, commit, publish: versions go on while replicas move."""
        label = f"whole{len(self.loads)}"
        begun = self.ask(lambda it: it.manager.begin(self.db, ("t",), label, label, timeout_ms=TIMEOUT_MS))
        if not isinstance(begun, Transaction):
            return
        load = Load(begun, tuple(self.random.sample(self.parts, self.random.choice((1, 2)))))
        self.loads.append(load)
        self.receive(load, self.random.choice((None, *self.nodes.nodes)))
        self._told(load, self.ask(lambda it: it.manager.commit(self.db, begun.txn_id, load.parts)))
        self.ask(lambda it: it.upkeep.run_once())

    def move(self) -> None:
        before = self.healthy()
        states = {node: self.nodes.nodes[node].up for node in NAMES}
        self.ask(lambda master: master.mover.run_once())  # type: ignore[attr-defined]
        assert states == {node: self.nodes.nodes[node].up for node in NAMES}
        after = self.healthy()
        for tablet, count in before.items():
            assert after[tablet] >= count, (tablet, count, after[tablet])
        found = self.world.ledger.read("r", replica_moves.all_moves)
        self.counts.update(f"{each.reason} {each.state}" for each in found)

    def healthy(self) -> dict[Tablet, int]:
        """Count the replicas of each tablet that have what is visible, on nodes with a lease: of the set
        before a switch or of the one after it, whichever has more."""

        def work(it: Connection) -> dict[Tablet, int]:
            alive = {each.name for each in node_rows.alive(it, self.world.ledger.now_ms(it))}
            versions = partition_rows.versions_of(it, self.db, "t")
            sets: dict[str, Counter[Tablet]] = {"joining": Counter(), "leaving": Counter()}
            for each in partition_rows.replicas_of(it, self.db, "t"):
                visible = versions[each.tablet.partition.name].visible
                for role, counts in sets.items():
                    counts[each.tablet] += (
                        each.role != role and each.node in alive and each.version >= visible
                    )
            return {tablet: max(each[tablet] for each in sets.values()) for tablet in sets["joining"]}

        return self.world.ledger.read("r", work)

    def dispatch(self) -> None:
        self.ask(lambda master: master.dispatcher.everything())  # type: ignore[attr-defined]

    def drain(self) -> None:
        node = self.random.choice(NAMES)
        draining = node not in self.draining and not self.draining
        (self.draining.add if draining else self.draining.discard)(node)
        self.world.ledger.write("w", bool, lambda it: node_rows.set_draining(it, node, draining))

    def long_away(self) -> None:
        """Let time pass until nodes that are down are lost; those that are up go on to send heartbeats."""
        for _ in range(4):
            self.world.clock.advance_ms(LOST_AFTER_MS // 3)
            self.beat()
            self.move()

    def beat(self) -> None:
        now_ms = self.world.clock.now_ms()

        def work(it: Connection) -> None:
            for name, node in self.nodes.nodes.items():
                if node.up:
                    row = StorageNode(name, f"id-{name}", name, 1, now_ms + NODE_LEASE_MS)
                    node_rows.refresh(it, row, now_ms)

        self.world.ledger.write("w", type(None), work)

    def settle(self, last: Master) -> None:
        assert isinstance(last, MovingMaster)
        for node in NAMES:
            self.world.ledger.write(
                "w", bool, functools.partial(node_rows.set_draining, name=node, draining=False)
            )
        for _ in range(60):
            self.beat()
            assert last.upkeep.run_once()
            last.mover.run_once()
            last.dispatcher.everything()
            self.world.clock.advance_ms(1_000)
            if not self.world.ledger.read(
                "r", lambda it: (*replica_moves.all_moves(it), *tasks.all_tasks(it))
            ):
                break
        else:
            raise AssertionError("moves do not end")
        for _ in range(3):
            assert last.upkeep.run_once()
        kept: Counter[Tablet] = Counter()
        replicas = self.replicas()
        for replica in replicas:
            assert not replica.role, replica
            kept[replica.tablet] += 1
        assert set(kept.values()) == {REPLICATION}, kept
        where = {(each.tablet, each.node) for each in replicas}
        found = {
            (tablet, name)
            for name, node in self.nodes.nodes.items()
            for tablet, had in node.versions.items()
            if had
        }
        assert found <= where, f"left behind: {found - where}"


def run_seed(seed: int, steps: int = STEPS, world: World | None = None) -> Counter[str]:
    """Run one seed and count what happened. Raises AssertionError where the model is contradicted."""
    run = MoveRun(world or World(), seed)
    for _ in range(steps):
        run.step()
    run.finish()
    return run.counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    print(dict(run_seed(arguments.seed, arguments.steps)))


if __name__ == "__main__":
    main()
