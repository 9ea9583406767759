"""Seeded runs of transactions while replicas move, held against the model of `transaction_runs`.

    python -m tests.support.stored.move_runs --seed N

Five nodes, of which one or three keep each tablet at first. Nodes go down for longer than the deadline and
come back; they are drained, and no longer drained; masters die at every write and at every call. Partitions
are dropped and made again at any time. Loads are in flight while replicas move: they have begun before a
switch, and are decided and published after it. In the end each tablet has its replicas with equal histories,
and no node has anything else.
"""

from __future__ import annotations

import argparse
import functools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rtolap.base.errors import NotYet, RtolapError
from rtolap.model.stored.partitions import PartitionRange
from rtolap.model.stored.schema import StoredSchema, initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.storage.messages import TabletId
from rtolap.stored.frontend.catalogue.stray_tablets import StrayTablets
from rtolap.stored.frontend.catalogue.table_writes import end_partition
from rtolap.stored.frontend.catalogue.task_dispatcher import TaskDispatcher
from rtolap.stored.frontend.moves.mover import Mover, MoverSettings
from rtolap.stored.metastore import nodes as node_rows
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import pending_tablet_tasks as tasks
from rtolap.stored.metastore import replica_moves
from rtolap.stored.metastore import tables as table_rows
from rtolap.stored.metastore import transactions as transaction_rows
from rtolap.stored.metastore.database import Connection
from rtolap.stored.metastore.records import (
    BeginRequest,
    MoveState,
    Partition,
    Replica,
    StorageNode,
    Tablet,
    Transaction,
)

from tests.support.stored.transaction_runs import BUCKETS, TIMEOUT_MS, Load, Master, Run, World
from tests.support.twins.storage_nodes import MemoryNodes

NAMES = ("n1", "n2", "n3", "n4", "n5")
NODE_LEASE_MS = 4_000
LOST_AFTER_MS = 12_000
STEPS = 60
_ANY = 1 << 40  # a transaction's id that none has yet


class MovingNodes(MemoryNodes):
    """A `TabletHosts` too."""

    def create(
        self, node: str, table_id: int, partition: Partition, buckets: Collection[int], schema: StoredSchema
    ) -> None:
        self.create_tablets(node, [Tablet(partition, bucket) for bucket in buckets])

    def drop(self, node: str, table_id: int, partition: Partition, buckets: Collection[int]) -> None:
        self.drop_tablets(node, [Tablet(partition, bucket) for bucket in buckets])

    def change_schema(self, node: str, table_id: int, db: str, table: str, schema: StoredSchema) -> None:
        self._call(node, lambda here: None)

    def sizes(self, node: str) -> Mapping[Tablet, int]:
        return self._call(node, lambda here: {tablet: len(rows) for tablet, rows in here.versions.items()})

    def tablets(self, node: str, table_id: int) -> dict[TabletId, int]:
        return {
            TabletId(table_id, part.db, part.table, part.name, bucket, part.incarnation): version
            for tablet, version in self.sizes(node).items()
            for part, bucket in ((tablet.partition, tablet.bucket),)
        }


@dataclass
class MovingMaster(Master):
    mover: Mover
    dispatcher: TaskDispatcher
    strays: StrayTablets


class MoveRun(Run):
    nodes: MovingNodes

    def make_nodes(self) -> MovingNodes:
        nodes = MovingNodes(NAMES)
        self.draining: set[str] = set()
        self.replication = self.random.choice((1, 3))

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

    def _create(self, name: str) -> Partition:
        self.lives[name] += 1
        placed = dict.fromkeys(BUCKETS, NAMES[: self.replication])

        def work(it: Connection) -> Partition:
            table = table_rows.find(it, self.db, "t")
            if table is None:
                schema = initial_schema(self.definition)
                table = table_rows.insert(it, self.definition, schema, 0)
            return table_rows.add_partition(it, table, _range(name), placed)

        return self.world.ledger.write("w", Partition, work)

    def _drop(self, part: Partition) -> bool:
        def work(it: Connection) -> None:
            end_partition(it, table_rows.get(it, self.db, "t"), _range(part.name))

        try:
            self.world.ledger.write("w", type(None), work)
        except NotYet:
            return False
        return True

    def _tell_drops(self) -> None:
        """Send all tasks, unless another is master by now: they stay pending."""
        for master in getattr(self, "masters", ())[:1]:
            try:
                TaskDispatcher(self.world.ledger, master.mastership, self.nodes).everything()
            except RtolapError:
                self.counts["drops wait"] += 1

    def _may_create(self, name: str) -> bool:
        pending = self.world.ledger.read("r", tasks.all_tasks)
        return not [task for task in pending if (task.db, task.part, task.kind) == (self.db, name, "drop")]

    def _master(self, owner: str) -> MovingMaster:
        one = super()._master(owner)
        ledger = self.world.ledger
        mover = Mover(
            ledger,
            one.mastership,
            self.nodes,
            self.nodes,
            self.nodes.sizes,
            replication=self.replication,
            settings=MoverSettings(lost_after_ms=LOST_AFTER_MS, grace_ms=NODE_LEASE_MS, replan_ms=1),
        )
        dispatcher = TaskDispatcher(ledger, one.mastership, self.nodes)
        strays = StrayTablets(ledger, one.mastership, self.nodes, self._tablets, self._living)
        return MovingMaster(one.mastership, one.manager, one.upkeep, mover, dispatcher, strays)

    def _tablets(self, node: str) -> dict[TabletId, int]:
        table = self.world.ledger.read("r", lambda it: table_rows.get(it, self.db, "t"))
        return self.nodes.tablets(node, table.table_id)

    def _living(self, connection: Connection) -> list[str]:
        return [name for name, node in self.nodes.nodes.items() if node.up]

    def step(self) -> None:
        steps = (
            self.whole_load,
            self.load_in_flight,
            self.load_in_flight,
            self.long_away,
            self.move,
            self.move,
            self.move,
            self.dispatch,
            self.sweep,
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
        load = self.received_load()
        if load is not None:
            self.commit_load(load)
            self.ask(lambda it: it.upkeep.run_once())

    def load_in_flight(self) -> None:
        """Begin a load before a switch, decide it when its move has come to some state, and go on moving
        before it is published."""
        if self.random.random() < 0.7:
            for node in NAMES:
                self.nodes.start(node)
        self.beat()
        if not self.world.ledger.read("r", replica_moves.all_moves):
            (self.long_away if self.random.random() < 0.2 else self.drain_a_holder)()
        self.move_until(MoveState.COPYING)
        load = self.received_load()
        if load is None:
            return
        self.move_until(self.random.choice(tuple(MoveState)))
        self.commit_load(load)
        for _ in range(self.random.randrange(5)):
            self.move()
        if self.random.random() < 0.5:
            self.ask(lambda it: it.upkeep.run_once())

    def move_until(self, state: MoveState) -> None:
        """Move until some replica's move is in this state; for four rounds at most."""
        for _ in range(4):
            if any(move.state is state for move in self.world.ledger.read("r", replica_moves.all_moves)):
                return
            self.move()

    def received_load(self) -> Load | None:
        label = f"whole{len(self.loads)}"
        wanted = BeginRequest(self.db, ("t",), label, label, TIMEOUT_MS)
        begun = self.ask(lambda it: it.manager.begin(wanted))
        if not isinstance(begun, Transaction):
            return None
        load = self.begun(begun, self.some_parts())
        self.receive(load, self.random.choice((None, *self.nodes.nodes)))
        return load

    def commit_load(self, load: Load) -> None:
        txn_id = load.transaction.txn_id
        self._told(load, self.ask(lambda it: it.manager.commit(self.db, txn_id, load.parts)))

    def move(self) -> None:
        self.count_fences()
        before = self.healthy()
        states = {node: self.nodes.nodes[node].up for node in NAMES}
        self.ask(lambda master: master.mover.run_once())  # type: ignore[attr-defined]
        assert states == {node: self.nodes.nodes[node].up for node in NAMES}
        after = self.healthy()
        for tablet in before.keys() & after.keys():  # others were dropped meanwhile
            assert after[tablet] >= before[tablet], (tablet, before[tablet], after[tablet])
        found = self.world.ledger.read("r", replica_moves.all_moves)
        self.counts.update(f"{each.reason} {each.state}" for each in found)

    def count_fences(self) -> None:
        """Count moves that have to wait for loads in flight: the old replica may have the only vote."""

        def work(it: Connection) -> list[str]:
            return [
                "fence waits" if move.state is MoveState.RETIRING else "switched over a load"
                for move in replica_moves.all_moves(it)
                if move.state is not MoveState.COPYING
                and transaction_rows.is_running(it, move.tablet.partition, move.fence_txn_id or _ANY)
            ]

        self.counts.update(self.world.ledger.read("r", work))

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

    def sweep(self) -> None:
        self.ask(lambda master: self._count_strays(master.strays.run_once()))  # type: ignore[attr-defined]

    def _count_strays(self, dropped: int) -> None:
        self.counts["stray dropped"] += dropped

    def drain(self) -> None:
        node = self.random.choice(NAMES)
        self.set_draining(node, node not in self.draining and not self.draining)

    def drain_a_holder(self) -> None:
        """Drain a node that has replicas, and no other one."""
        for node in sorted(self.draining):
            self.set_draining(node, False)
        self.set_draining(self.random.choice(sorted({each.node for each in self.replicas()} or NAMES)), True)

    def set_draining(self, node: str, draining: bool) -> None:
        (self.draining.add if draining else self.draining.discard)(node)
        self.world.ledger.write("w", bool, lambda it: node_rows.set_draining(it, node, draining))

    def long_away(self) -> None:
        """Let time pass until nodes that are down are lost, one at least; those that are up go on to send
        heartbeats."""
        if all(node.up for node in self.nodes.nodes.values()):
            self.nodes.stop(self.random.choice(sorted({each.node for each in self.replicas()} or NAMES)))
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
            self._count_strays(last.strays.run_once())
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
        assert len(kept) == len(self.parts) * len(BUCKETS), kept
        assert set(kept.values()) <= {self.replication}, kept
        where = {(each.tablet, each.node) for each in replicas}
        found = {
            (tablet, name)
            for name, node in self.nodes.nodes.items()
            for tablet, had in node.versions.items()
            if had
        }
        assert found <= where, f"left behind: {found - where}"


def _range(name: str) -> PartitionRange:
    at = ("p", "q").index(name)
    return PartitionRange(at, at + 1, name)


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
