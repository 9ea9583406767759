"""While a move warms up, those who will answer next read what statements read, and no more than that."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from rtolap.base.errors import Unavailable
from rtolap.metadata.records import CubeControl, NextAssignment, ReceiverRecord, ReplicaSetRecord
from rtolap.model.predicate import Compare, Predicate
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery
from rtolap.query.cluster.topology import ReceiverTopology
from rtolap.query.cubes.queries_ahead import AGAIN_AFTER_S, KINDS_MAX, WAITING_MAX, QueriesAhead
from rtolap.query.plan import CubeRead, TimeRange

from tests.support.cubes.builders import small_schema
from tests.support.cubes.later_executor import AtOnceExecutor, LaterExecutor
from tests.support.twins.clock import ManualClock

SCHEMA = small_schema()
AGAIN_AFTER_MS = round(AGAIN_AFTER_S * 1000)
SETS = ("gets", "gives", "keeps_some", "stays")
BEFORE = {"gives": (0, 1), "keeps_some": (2, 3), "stays": (4,)}
AFTER = {"gets": (0, 1, 3), "keeps_some": (2,), "stays": (4,)}
PLANNED = NextAssignment(8, {name: tuple(partitions) for name, partitions in AFTER.items()})
CONTROL = CubeControl(enabled=True, assignment=BEFORE, assignment_epoch=7, next=PLANNED)
SNAPSHOT = HistorySnapshot(versions={"a": 2}, horizon_ms=5, assignment_epoch=7)


def topology() -> ReceiverTopology:
    receivers = {
        f"{name}-{n}": ReceiverRecord(f"{name}-{n}", "here", n + 1, name) for name in SETS for n in range(2)
    }
    sets = {name: ReplicaSetRecord(name, tuple(f"{name}-{n}" for n in range(2))) for name in SETS}
    return ReceiverTopology(receivers, sets, frozenset(receivers))


def read_of(dimensions: tuple[str, ...] = ("kind",), condition: Predicate | None = None) -> CubeRead:
    return CubeRead(SCHEMA, SCHEMA.cube.name, dimensions, ("__rows",), condition, TimeRange())


@dataclass
class Source:
    asked: list[tuple[str, PartialQuery]] = field(default_factory=list)
    error: Exception | None = None

    def ask_ahead(self, receiver_id: str, address: str, query: PartialQuery) -> None:
        self.asked.append((receiver_id.rsplit("-", 1)[0], query))
        if self.error is not None:
            raise self.error

    def sets(self) -> list[str]:
        return [name for name, _ in self.asked]


def test_it_is_asked_of_those_who_warm_up_twice_and_under_their_assignment() -> None:
    source, clock = Source(), ManualClock(0)
    ahead = QueriesAhead(source, topology, clock, AtOnceExecutor())
    ahead.offer(read_of(), SNAPSHOT, CONTROL)
    twice = ["gets", "gets", "keeps_some", "keeps_some"]
    assert source.sets() == twice, "results are kept from the second run on"
    query = source.asked[0][1]
    assert query.ahead
    assert query.at_least == {}, "nobody waits for what is not read yet"
    assert query.snapshot == HistorySnapshot(versions={"a": 2}, horizon_ms=5, assignment_epoch=8)
    ahead.offer(read_of(), SNAPSHOT, CONTROL)
    assert len(source.asked) == 4, "the same, a moment later"
    clock.advance_ms(AGAIN_AFTER_MS)
    ahead.offer(read_of(), SNAPSHOT, CONTROL)
    assert source.sets()[4:] == ["gets", "keeps_some"]


@pytest.mark.parametrize(
    ("snapshot", "control"),
    [
        (SNAPSHOT, CubeControl(enabled=True, assignment=BEFORE, assignment_epoch=7)),
        (SNAPSHOT, CubeControl(enabled=True, assignment=AFTER, assignment_epoch=8)),
        (HistorySnapshot(assignment_epoch=6), CONTROL),
    ],
    ids=["no move", "it stands", "of an assignment before"],
)
def test_nothing_is_asked_otherwise(snapshot: HistorySnapshot, control: CubeControl) -> None:
    source = Source()
    QueriesAhead(source, topology, ManualClock(0), AtOnceExecutor()).offer(read_of(), snapshot, control)
    assert source.asked == []


@pytest.mark.parametrize("error", [Unavailable("not warm"), RuntimeError("a fault")])
def test_what_fails_is_left_until_it_is_due_again(error: Exception) -> None:
    source, clock = Source(error=error), ManualClock(0)
    ahead = QueriesAhead(source, topology, clock, AtOnceExecutor())
    ahead.offer(read_of(), SNAPSHOT, CONTROL)
    asked = len(source.asked)
    ahead.offer(read_of(), SNAPSHOT, CONTROL)
    assert asked == len(source.asked) > 0
    clock.advance_ms(AGAIN_AFTER_MS)
    ahead.offer(read_of(), SNAPSHOT, CONTROL)
    assert len(source.asked) > asked


def test_no_topology_is_an_error_of_the_query_ahead_alone() -> None:
    """ZooKeeper may be away while the statement itself has been answered."""

    def away() -> ReceiverTopology:
        raise Unavailable("ZooKeeper does not answer")

    source = Source()
    beside = LaterExecutor()
    ahead = QueriesAhead(source, away, ManualClock(0), beside)
    ahead.offer(read_of(), SNAPSHOT, CONTROL)
    beside.run_all()
    assert source.asked == []


@pytest.mark.parametrize("seed", range(20))
def test_what_waits_and_what_is_remembered_is_bounded_whatever_is_asked(seed: int) -> None:
    dice, source, clock, beside = random.Random(seed), Source(), ManualClock(0), LaterExecutor()
    ahead = QueriesAhead(source, topology, clock, beside)
    for _ in range(600):
        step = dice.random()
        if step < 0.9:
            condition = Compare("place", "eq", dice.randrange(dice.choice((5, 400))))
            waiting = len(beside._waiting)
            ahead.offer(read_of(condition=condition), SNAPSHOT, CONTROL)
            assert len(beside._waiting) <= max(waiting, WAITING_MAX)
        elif step < 0.95:
            beside.run_all()
        else:
            clock.advance_ms(dice.randrange(2 * AGAIN_AFTER_MS))
        assert len(ahead._asked_s) <= KINDS_MAX
    beside.run_all()
    before = len(source.asked)
    clock.advance_ms(AGAIN_AFTER_MS)
    ahead.offer(read_of(), SNAPSHOT, CONTROL)
    beside.run_all()
    assert len(source.asked) > before, "it goes on"


def test_nothing_begins_once_it_is_closed() -> None:
    source, beside = Source(), LaterExecutor()
    ahead = QueriesAhead(source, topology, ManualClock(0), beside)
    ahead.offer(read_of(), SNAPSHOT, CONTROL)
    ahead.close()
    ahead.offer(read_of(("place",)), SNAPSHOT, CONTROL)
    beside.run_all()
    assert source.asked == []


def test_a_thread_of_its_own_goes_on_after_errors() -> None:
    source = Source(error=Unavailable("no"))
    ahead = QueriesAhead(source, topology, ManualClock(0))
    ahead.offer(read_of(), SNAPSHOT, CONTROL)
    ahead._beside.shutdown(wait=True)
    assert source.sets() == ["gets", "keeps_some"], "the second run would fail like the first"
    ahead.close()
