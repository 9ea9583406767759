"""Seeded runs of transactions over a ledger and nodes in memory, held against an obvious slow model.

    python -m tests.support.stored.transaction_runs --seed N

The model is what clients know: who got COMMITTED or VISIBLE finds each of his rows once, on every node,
in the order of versions; who got ABORTED finds none; who got no response finds all or none; under a label
that is closed nothing is loaded any more. Two masters take turns. A master dies at a write of the ledger,
before or after it is durable, or at a call to a node; an acknowledgement of a commit is lost; a request comes
twice, or late; nodes stop and start. Partitions are dropped and made again under their names, also in the
middle of a call to a node: nothing of the one before is found in the one after.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import sqlalchemy as sa
from rtolap.base.errors import NotYet, RtolapError, Unauthorized, Unavailable
from rtolap.stored.frontend.election import LEASE_MS, Mastership
from rtolap.stored.frontend.transactions.labels import LabelPolicy
from rtolap.stored.frontend.transactions.publishing import Publisher
from rtolap.stored.frontend.transactions.requests import TransactionManager
from rtolap.stored.frontend.upkeep import Upkeep
from rtolap.stored.metastore import partitions
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.leases import Leases
from rtolap.stored.metastore.records import BeginRequest, Partition, Tablet, Transaction, TransactionState

from tests.support.twins.clock import ManualClock
from tests.support.twins.storage_nodes import MemoryNodes

NODES = ("n1", "n2", "n3")
BUCKETS = (0, 1)
TIMEOUT_MS = 5_000
STEPS = 30
_CALLS_FAIL_TIMES = 3  # as often as commits do, of which there are many more
_REMADE_AT_A_CALL = 0.05
_LATE_CALLS = 0.1
_DONE = (TransactionState.COMMITTED, TransactionState.VISIBLE)


class Crash(BaseException):
    """The master's process ends here."""


class FaultyLedger(Ledger):
    """`fault` is called at each commit: crash before or after it, lose its acknowledgement, or nothing."""

    fault: Callable[[], str | None] = staticmethod(lambda: None)

    def _commit(self, transaction: sa.RootTransaction) -> None:
        fault = self.fault()
        if fault == "crash before":
            transaction.rollback()
            raise Crash
        transaction.commit()
        if fault == "crash after":
            raise Crash
        if fault == "unacknowledged":
            lost = sa.exc.OperationalError("COMMIT", None, Exception("connection lost"))
            lost.connection_invalidated = True
            raise self._in_doubt(lost) from lost


@dataclass
class Master:
    mastership: Mastership
    manager: TransactionManager
    upkeep: Upkeep


@dataclass
class Load:
    """A transaction as its client knows it. `lives` says of which life of each name its partitions were."""

    transaction: Transaction
    parts: tuple[Partition, ...]
    lives: frozenset[tuple[str, int]]
    told: set[TransactionState] = field(default_factory=set)


class World:
    """A ledger and its clock; runs use databases of their own in it."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.ledger = FaultyLedger.open("sqlite://", clock=self.clock, sleep=lambda _: None)


class Run:
    def __init__(self, world: World, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = world
        self.db = f"d{seed}"
        self.nodes = self.make_nodes()
        self.counts: Counter[str] = Counter()
        self.loads: list[Load] = []
        self.late: list[Callable[[Master], object]] = []
        self.closed: dict[str, set[TransactionState]] = {}
        self.faults_on = False
        self.faulty = self.random.choice((0.0, 0.05, 0.15))
        world.ledger.fault = lambda: None
        self.lives: Counter[str] = Counter()  # of each name, counted beside the ledger
        self.missing: tuple[str, ...] = ()  # dropped, and not made again yet
        self.pending_drops: list[tuple[str, Tablet]] = []
        self.late_calls: list[Callable[[], object]] = []
        self.parts = tuple(self._create(name) for name in ("p", "q"))
        self.nodes.around = self._around
        world.ledger.fault = self._fault
        self.masters = [self._master("one"), self._master("two")]
        # whoever was master of the run before is gone
        world.clock.advance_ms(LEASE_MS)
        self.masters[0].mastership.acquire()

    def make_nodes(self) -> MemoryNodes:
        return MemoryNodes(NODES)

    def holders(self, tablet: Tablet) -> tuple[str, ...]:
        """Return the nodes that are to have a tablet."""
        return NODES

    def _create(self, name: str) -> Partition:
        """Create a partition, under a name that may have been another's."""
        self.lives[name] += 1
        part = Partition(self.db, "t", name, self.next_incarnation())
        placed = dict.fromkeys(BUCKETS, NODES)
        self.world.ledger.write("w", type(None), lambda it: partitions.create(it, part, placed))
        return part

    def _drop(self, part: Partition) -> bool:
        """Drop a partition with what nodes that are up have of it. Return False where a load still writes to
        it."""
        try:
            self.world.ledger.write("w", type(None), lambda it: partitions.delete(it, part))
        except NotYet:
            return False
        self.pending_drops += [
            (node, Tablet(part, bucket)) for node in self.nodes.nodes for bucket in BUCKETS
        ]
        return True

    def _send_drops(self, *, some: bool = False) -> None:
        """Send nodes their pending drops, which come before anything that is made later. `some`: those to
        other nodes take longer."""
        later = [
            node for node in self.nodes.nodes.values() if some and node.up and self.random.random() < 0.5
        ]
        for node in later:
            node.up = False
        self._tell_drops()
        for node in later:
            node.up = True

    def _tell_drops(self) -> None:
        for node, tablet in self.pending_drops:
            if self.nodes.nodes[node].up:
                self.nodes.drop_tablets(node, (tablet,))
        self.pending_drops = [each for each in self.pending_drops if not self.nodes.nodes[each[0]].up]

    def next_incarnation(self) -> int:
        return self.lives.total()

    def _may_create(self, name: str) -> bool:
        """Return True unless a node has still to drop what had the name before."""
        return name not in {tablet.partition.name for _, tablet in self.pending_drops}

    def drop_and_remake(self) -> None:
        """Drop a partition and make it again, as a request of its own does, whatever else goes on."""
        faults, self.faults_on = self.faults_on, False
        try:
            self._send_drops()
            part = self.random.choice((*self.parts, None))
            if part is not None and self._drop(part):
                self._send_drops(some=True)
                self.parts = tuple(each for each in self.parts if each != part)
                self.missing += (part.name,)
                self.counts["dropped at a call" if faults else "dropped"] += 1
            for name in [name for name in self.missing if self._may_create(name)]:
                self.parts += (self._create(name),)
                self.missing = tuple(each for each in self.missing if each != name)
                self.counts["remade at a call" if faults else "remade"] += 1
        finally:
            self.faults_on = faults

    def some_parts(self) -> tuple[Partition, ...]:
        return tuple(self.random.sample(self.parts, min(self.random.choice((1, 2)), len(self.parts))))

    def begun(self, transaction: Transaction, parts: tuple[Partition, ...]) -> Load:
        load = Load(transaction, parts, frozenset((part.name, self.lives[part.name]) for part in parts))
        self.loads.append(load)
        return load

    def _master(self, owner: str) -> Master:
        ledger = self.world.ledger
        mastership = Mastership(Leases(ledger), f"{self.db}-{owner}")
        manager = TransactionManager(ledger, mastership, self.nodes, precommitted_timeout_ms=4 * TIMEOUT_MS)
        publisher = Publisher(ledger, mastership, self.nodes)
        return Master(mastership, manager, Upkeep(ledger, mastership, manager, publisher, LabelPolicy(None)))

    def _fault(self) -> str | None:
        if self.faults_on and self.random.random() < self.faulty:
            kind = self.random.choice(("crash before", "crash after", "unacknowledged"))
            self.counts[kind] += 1
            return kind
        return None

    def _around(self, call: Callable[[], object]) -> object:
        often = _CALLS_FAIL_TIMES * self.faulty
        kind = self.random.random() / often if self.faults_on and often else 9.0
        if kind < 0.3:
            kind_of = self.random.choice((Unavailable, Unavailable, Unauthorized, RtolapError))
            self.counts["call lost"] += 1
            raise kind_of("lost")
        if self.faults_on and self.random.random() < _REMADE_AT_A_CALL:
            self.drop_and_remake()
        if self.faults_on and self.random.random() < _LATE_CALLS:
            self.late_calls.append(call)
        call()
        if kind < 0.6:
            self.counts["answer lost"] += 1
            raise Unavailable("no answer")
        if kind < 0.8:
            self.counts["crash at a call"] += 1
            raise Crash
        if kind < 1.0:
            self.counts["call twice"] += 1
            call()
        return None

    # --- steps ----------------------------------------------------------------------------------------

    def step(self) -> None:
        steps = (self.load, self.load, self.load, self.precommit, self.commit, self.commit, self.commit,
                 self.abort, self.close_label, self.upkeep, self.stop_or_start, self.pass_time,
                 self.other_master, self.come_late, self.call_comes_late, self.drop_and_remake)  # fmt: skip
        self.random.choice(steps)()

    def ask(self, request: Callable[[Master], object]) -> object:
        """Ask perhaps twice, perhaps again much later, and either master; None where there was no answer."""
        if self.random.random() < 0.15:
            self.late.append(request)
        answer = None
        for _ in range(self.random.choice((1, 1, 1, 2))):
            answer = self._ask(self.random.randrange(2) if self.random.random() < 0.2 else 0, request)
        return answer

    def _ask(self, number: int, request: Callable[[Master], object]) -> object:
        self.faults_on = True
        try:
            return request(self.masters[number])
        except RtolapError as error:
            self.counts[type(error).__name__] += 1
            return None
        except Crash:
            self.counts["crash"] += 1
            self.masters[number] = self._master(f"again{self.counts['crash']}")
            return None
        finally:
            self.faults_on = False

    def load(self) -> None:
        label = f"label{self.random.randrange(4)}"
        two_phase = self.random.random() < 0.4
        request_id = f"r{len(self.loads)}"
        wanted = BeginRequest(self.db, ("t",), label, request_id, TIMEOUT_MS, two_phase)
        begun = self.ask(lambda master: master.manager.begin(wanted))
        if not isinstance(begun, Transaction):
            return
        parts = self.some_parts()
        if not parts or any(load.transaction.txn_id == begun.txn_id for load in self.loads):
            return
        load = self.begun(begun, parts)
        self.receive(load, self.random.choice((None, None, *self.nodes.nodes)))

    def receive(self, load: Load, lost: str | None) -> None:
        """Have the nodes that are up receive the rows of a load, but for one."""
        txn_id = load.transaction.txn_id
        for part in load.parts:
            for bucket in BUCKETS:
                tablet = Tablet(part, bucket)
                for node in self.holders(tablet):
                    if self.nodes.nodes[node].up and node != lost:
                        self.nodes.receive(node, txn_id, tablet, [(txn_id, part, bucket)])

    def precommit(self) -> None:
        if self.loads:
            load = self.random.choice(self.loads)
            self._told(
                load, self.ask(lambda it: it.manager.precommit(self.db, load.transaction.txn_id, load.parts))
            )

    def commit(self) -> None:
        if self.loads:
            load = self.random.choice(self.loads)
            txn_id = load.transaction.txn_id
            if load.transaction.two_phase:
                self._told(load, self.ask(lambda it: it.manager.commit_precommitted(self.db, txn_id)))
            else:
                self._told(load, self.ask(lambda it: it.manager.commit(self.db, txn_id, load.parts)))

    def abort(self) -> None:
        if self.loads:
            load = self.random.choice(self.loads)
            self._told(
                load, self.ask(lambda it: it.manager.abort(self.db, load.transaction.txn_id, "asked to"))
            )

    def close_label(self) -> None:
        label = self.random.choice(self.loads).transaction.label if self.loads else "label4"
        answer = self.ask(lambda it: it.manager.close_label(self.db, label, "user", lambda _: None))
        if isinstance(answer, Transaction):
            self.counts[f"closed: {answer.state}"] += 1
            self.closed.setdefault(label, set()).add(answer.state)

    def upkeep(self) -> None:
        self.ask(lambda master: master.upkeep.run_once())
        self.check_prefixes()

    def call_comes_late(self) -> None:
        """Have a call reach its node once more, whatever has become of what it was for."""
        if self.late_calls:
            call = self.late_calls.pop(self.random.randrange(len(self.late_calls)))
            try:
                call()
                self.counts["call comes late"] += 1
            except RtolapError:
                self.counts["late call refused"] += 1

    def come_late(self) -> None:
        if self.late:
            self._ask(0, self.late.pop(self.random.randrange(len(self.late))))

    def stop_or_start(self) -> None:
        node = self.random.choice(tuple(self.nodes.nodes))
        (self.nodes.stop if self.nodes.nodes[node].up else self.nodes.start)(node)
        self._send_drops()

    def pass_time(self) -> None:
        self.world.clock.advance_ms(self.random.choice((100, TIMEOUT_MS)))

    def other_master(self) -> None:
        """Elect another master. It believes to be master until it writes, and so may the one before."""
        self.world.clock.advance_ms(LEASE_MS)
        self.masters.reverse()
        self._ask(0, lambda master: master.mastership.acquire())
        self.counts["other master"] += 1

    def _told(self, load: Load, answer: object) -> None:
        if isinstance(answer, Transaction):
            load.told.add(answer.state)

    # --- judgement ------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Finish when all is well again: a new master needs no more than its rounds."""
        for node in self.nodes.nodes:
            self.nodes.start(node)
        self._send_drops()
        self.world.clock.advance_ms(LEASE_MS + 5 * TIMEOUT_MS)
        last = self._master("last")
        self.settle(last)
        ledger = self.world.ledger
        visible: set[int] = set()
        for load in self.loads:
            state = last.manager.get(self.db, load.transaction.txn_id).state
            assert state in (TransactionState.VISIBLE, TransactionState.ABORTED), state
            if state is TransactionState.VISIBLE:
                visible.add(load.transaction.txn_id)
            if load.told.intersection(_DONE):
                assert state is TransactionState.VISIBLE, (load, state)
            if TransactionState.ABORTED in load.told:
                assert state is TransactionState.ABORTED, (load, state)
        self.counts["visible"] += len(visible)
        labels = Counter(x.transaction.label for x in self.loads if x.transaction.txn_id in visible)
        assert max(labels.values(), default=1) == 1, labels
        for label, states in self.closed.items():
            assert states == {TransactionState.ABORTED} or states <= set(_DONE), (label, states)
            assert labels[label] == (states != {TransactionState.ABORTED}), (label, states)
        for part in self.parts:
            life = (part.name, self.lives[part.name])
            wanted = {load.transaction.txn_id for load in self.loads if life in load.lives} & visible
            known = ledger.read("r", lambda it, part=part: partitions.versions(it, part))  # type: ignore[misc]
            assert known is not None
            assert known.committed == known.visible == len(wanted), (part, known, wanted)
            histories = [
                self.history(node, Tablet(part, bucket))
                for bucket in BUCKETS
                for node in self.holders(Tablet(part, bucket))
            ]
            assert all(history == histories[0] for history in histories), (part, histories)
            assert set(histories[0]) == wanted, (part, histories[0], wanted)
        for name, at in self.nodes.nodes.items():
            left = {txn for txn, rows in (*at.prepared.items(), *at.received.items()) if rows}
            assert not left & {load.transaction.txn_id for load in self.loads}, (name, left)
        assert not [r for r, _ in ledger.read("r", partitions.lagging) if r.tablet.partition.db == self.db]

    def settle(self, last: Master) -> None:
        for _ in range(3):
            assert last.upkeep.run_once(), "the last master is master"

    def check_prefixes(self) -> None:
        """Check that nothing is read that was not committed, and that a longer history begins as a shorter
        one."""
        committed: set[int] = set()
        for load in self.loads:
            found = self.masters[0].manager.get(self.db, load.transaction.txn_id)
            if found.state in _DONE:
                committed.add(found.txn_id)
        for part in self.parts:
            for bucket in BUCKETS:
                tablet = Tablet(part, bucket)
                histories = [self.history(node, tablet) for node in self.holders(tablet)]
                longest = max(histories, key=len)
                assert all(longest[: len(history)] == history for history in histories), histories
                assert set(longest) <= committed, (longest, committed)

    def history(self, node: str, tablet: Tablet) -> list[int]:
        versions = self.nodes.nodes[node].versions.get(tablet, [])
        for txn_id, rows in versions:
            assert rows == [(txn_id, tablet.partition, tablet.bucket)], rows
        return [txn_id for txn_id, _ in versions]


def run_seed(seed: int, steps: int = STEPS, world: World | None = None) -> Counter[str]:
    """Run one seed and count what happened. Raises AssertionError where the model is contradicted."""
    run = Run(world or World(), seed)
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
