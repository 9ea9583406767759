"""Equal statements that wait are read once, over whichever server they come, and each sees what was there."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pymysql
import pytest
from rtolap.protocols.receiver.messages import PartialQuery
from rtolap.query.statement_outcome import StatementOutcome

from tests.support.query.binary_protocol import BinaryProtocol
from tests.support.query.query_endpoints import Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld
from tests.support.scrape import Scrape
from tests.support.waiting import until

CHANGES_WORLD = True
DEADLINE_S = 60.0
COUNT = "select carrier, count(*) n, sum(price) p from flights group by carrier"
ORDERED = f"{COUNT} order by n desc, carrier limit 2"
ER_QUERY_INTERRUPTED = 1317
REPLICA_SETS = 2  # each is asked once for a read


@pytest.fixture(scope="module")
def endpoints(world: QueryWorld) -> Iterator[Endpoints]:
    with open_endpoints(world) as opened:
        yield opened


class Gate:
    """Receivers that were asked answer when it opens."""

    def __init__(self, world: QueryWorld, endpoints: Endpoints) -> None:
        self._world = world
        self._reads = endpoints.service.coalesced_reads
        self._open = threading.Event()
        self._asked_before = len(world.asked)
        self._threads = ThreadPoolExecutor(8)
        world.before_answer = self._wait

    def _wait(self, query: PartialQuery) -> None:
        assert self._open.wait(DEADLINE_S)

    def close(self) -> None:
        self._open.set()
        self._threads.shutdown()
        self._world.before_answer = lambda query: None

    @property
    def reads(self) -> int:
        return (len(self._world.asked) - self._asked_before) // REPLICA_SETS

    def begin(self, ask: Callable[[], object]) -> Future[object]:
        """A statement whose read is under way."""
        asked = self._threads.submit(ask)
        until(lambda: self.reads == 1, "receivers were asked")
        return asked

    def wait(self, ask: Callable[[], object]) -> Future[object]:
        """A statement that waits for that one."""
        before = self._reads.waiting
        asked = self._threads.submit(ask)
        until(lambda: self._reads.waiting > before, "it waits")
        return asked

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate(world: QueryWorld, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setattr(endpoints.service.coalesced_reads, "_wait_s_max", DEADLINE_S)
    made = Gate(world, endpoints)
    yield made
    made.close()


def rows(connection: pymysql.connections.Connection, sql: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def outcome_of(endpoints: Endpoints, sql: str) -> tuple[StatementOutcome, list[dict[str, object]]]:
    outcome = endpoints.service.execute(sql)
    return outcome, outcome.table().to_pylist()


def joined(endpoints: Endpoints) -> float:
    page = Scrape(endpoints.service.metrics.registry.render()[0].decode())
    return page("rtolap_query_reads_joined_total", cube="flights")


def test_those_who_wait_are_answered_as_alone_by_one_read(endpoints: Endpoints, gate: Gate) -> None:
    """As text, as binary rows, with an order of their own, and by the embedded engine."""
    texts = [COUNT, COUNT, ORDERED, f"select sum(n) c, sum(p) q from ({COUNT}) t"]
    with contextlib.ExitStack() as undo:
        clients = [undo.enter_context(endpoints.connect()) for _ in range(6)]
        gate.begin(lambda: rows(clients[0], COUNT))
        before = joined(endpoints)
        waiting = [
            gate.wait(lambda client=client, text=text: rows(client, text))  # type: ignore[misc]
            for client, text in zip(clients[1:], texts, strict=False)
        ]
        binary = gate.wait(lambda: BinaryProtocol(clients[5]).rows(COUNT, ()))
        gate.open()
        together = [each.result(DEADLINE_S) for each in (*waiting, binary)]
        assert gate.reads == 2
        assert joined(endpoints) == before + len(waiting)
        alone = [rows(clients[0], text) for text in texts]
        assert [sorted(map(str, each)) for each in together[:2]] == [sorted(map(str, alone[0]))] * 2
        assert together[2:4] == alone[2:]
        assert sorted(map(str, together[4])) == sorted(map(str, BinaryProtocol(clients[0]).rows(COUNT, ())))


def test_what_was_there_when_a_statement_came_is_in_its_answer(
    world: QueryWorld, endpoints: Endpoints, gate: Gate
) -> None:
    """Though an equal one was being read already."""
    first = gate.begin(lambda: outcome_of(endpoints, COUNT))
    world.positions[0] += 1
    then = world.positions[0]
    later = [gate.wait(lambda: outcome_of(endpoints, COUNT)) for _ in range(3)]
    gate.open()
    assert gate.reads <= 2
    for asked in later:
        outcome, _ = asked.result(DEADLINE_S)  # type: ignore[misc]
        assert outcome.positions["flights"][0] == then
    first.result(DEADLINE_S)


def test_one_that_is_killed_disturbs_no_other(endpoints: Endpoints, gate: Gate) -> None:
    with contextlib.ExitStack() as undo:
        clients = [undo.enter_context(endpoints.connect()) for _ in range(4)]
        others = [gate.begin(lambda: rows(clients[0], COUNT))]
        killed = gate.wait(lambda: rows(clients[1], COUNT))
        others.append(gate.wait(lambda: rows(clients[2], COUNT)))
        rows(clients[3], f"kill query {clients[1].thread_id()}")
        with pytest.raises(pymysql.MySQLError) as caught:
            killed.result(DEADLINE_S)
        assert caught.value.args[0] == ER_QUERY_INTERRUPTED
        gate.open()
        first, second = (each.result(DEADLINE_S) for each in others)
        assert sorted(map(str, first)) == sorted(map(str, second))  # type: ignore[call-overload]


def test_one_that_is_killed_while_it_reads_lets_the_next_begin(endpoints: Endpoints, gate: Gate) -> None:
    with contextlib.ExitStack() as undo:
        clients = [undo.enter_context(endpoints.connect()) for _ in range(3)]
        reading = gate.begin(lambda: rows(clients[0], COUNT))
        waiting = gate.wait(lambda: rows(clients[1], COUNT))
        rows(clients[2], f"kill query {clients[0].thread_id()}")
        with pytest.raises(pymysql.MySQLError) as caught:
            reading.result(DEADLINE_S)
        assert caught.value.args[0] == ER_QUERY_INTERRUPTED
        gate.open()
        assert sorted(map(str, waiting.result(DEADLINE_S))) == sorted(  # type: ignore[call-overload]
            map(str, rows(clients[2], COUNT))
        )


def test_explain_analyze_says_for_how_many_was_read(endpoints: Endpoints, gate: Gate) -> None:
    def read_for() -> str:
        _, said = outcome_of(endpoints, f"explain analyze {COUNT}")
        return next(str(row["value"]) for row in said if row["item"] == "read for")

    first = gate.begin(read_for)
    later = [gate.wait(read_for) for _ in range(2)]
    gate.open()
    assert first.result(DEADLINE_S) == "this statement"
    assert sorted(str(each.result(DEADLINE_S)) for each in later) == [
        "2 equal statements at once, by another one",
        "2 equal statements at once, by this one",
    ]


def test_other_values_are_other_statements(endpoints: Endpoints, gate: Gate) -> None:
    sql = "select count(*) n from flights where gate = ?"
    first = gate.begin(lambda: endpoints.service.execute(sql, (1,)).table())
    other = threading.Thread(target=lambda: endpoints.service.execute(sql, (2,)).table())
    other.start()
    until(lambda: gate.reads == 2, "the other one reads beside it")
    gate.open()
    other.join(DEADLINE_S)
    first.result(DEADLINE_S)
