"""A plain user has a bounded part of the service's memory, and the turn comes before the work."""

from __future__ import annotations

import gc
import json
import os
import random
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pymysql
import pytest
from rtolap.base.errors import OverBudget, QueryError, QueryInterrupted, QueryTimeout, TooLarge, TooManyAtOnce
from rtolap.query.http import request_body, running
from rtolap.query.memory_budget import (
    MIB,
    PACKET,
    PREPARED,
    SESSION,
    BudgetLimits,
    MemoryBudget,
)
from rtolap.query.sql import parser, planner
from rtolap.query.statement_outcome import CELLS_MAX, PIECE_BYTES, StatementOutcome, result_pieces
from rtolap.query.statement_service import QueryLimits
from rtolap.query.statements import assignments
from rtolap.query.statements.assignments import USER_BYTES_MAX, assigned, user_value
from sqlglot import exp

from benchmarks.statements import processor_s
from tests.support.hostile.process_memory import watched
from tests.support.query.query_endpoints import (
    OTHER_USER,
    PASSWORD,
    USER,
    Endpoints,
    open_endpoints,
)
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many
from tests.support.waiting import until

DEADLINE_S = 120.0
CAPACITY_EXCEEDED = 3170
ELSEWHERE_BYTES = 96 * MIB  # of the clients and the test, which are in this process too
LIMITS = BudgetLimits(16 * MIB, 24 * MIB, 32 * MIB, 2 * MIB)
_PREPARE, _EXECUTE, _LONG_DATA, _CLOSE = 22, 23, 24, 25
# What a text costs to read and to plan is in its names.
HEAVY = "select " + ", ".join(f"abs(abs(abs({number})))+{number} as c{number}" for number in range(500))


@pytest.fixture(scope="module")
def endpoints(world: QueryWorld) -> Iterator[Endpoints]:
    with open_endpoints(world, query_limits=QueryLimits(budget=LIMITS, queue_wait_s=60.0)) as opened:
        yield opened


def ask(endpoints: Endpoints, body: Any, user: str = USER) -> httpx.Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(
        f"{endpoints.http_url}/api/v1/query",
        content=data,
        headers={"Content-Type": "application/json"},
        auth=(user, PASSWORD),
        timeout=DEADLINE_S,
    )


def prepared(connection: pymysql.connections.Connection, sql: str) -> int:
    connection._execute_command(_PREPARE, sql)
    head = connection._read_packet().get_all_data()
    (identity, columns, parameters) = struct.unpack_from("<IHH", head, 1)
    for count in (parameters, columns):
        for _ in range(count + 1 if count else 0):  # definitions, and the end of them
            connection._read_packet()
    return int(identity)


def send_long(connection: pymysql.connections.Connection, identity: int, data: bytes) -> None:
    connection._execute_command(_LONG_DATA, struct.pack("<IH", identity, 0) + data)
    connection._next_seq_id = 0


def execute(connection: pymysql.connections.Connection, identity: int, parameters: int = 1) -> None:
    """The first parameter is the long data that was sent, or empty; all others are NULL."""
    nulls = bytearray(b"\xff" * ((parameters + 7) // 8))
    nulls[0] &= 0xFE
    bound = bytes(nulls) + b"\1" + b"\xfd\0" * parameters + b"\0"  # an empty text, where nothing was sent
    connection._execute_command(_EXECUTE, struct.pack("<IBI", identity, 0, 1) + bound)
    connection._read_packet()
    ends = 0
    while ends < 2:  # of the definitions, and of the rows
        ends += connection._read_packet().is_eof_packet()


def close(connection: pymysql.connections.Connection, identity: int) -> None:
    connection._execute_command(_CLOSE, struct.pack("<I", identity))
    connection._next_seq_id = 0


# -- the budget itself --------------------------------------------------------------------------------------


def test_a_connection_a_user_and_all_users_have_a_budget_each() -> None:
    budget = MemoryBudget(BudgetLimits(100, 150, 220, 10))
    first, second = budget.account("ann"), budget.account("ann")
    first.reserve(PACKET, 100)
    with pytest.raises(OverBudget, match="at most 100 bytes of one connection"):
        first.reserve(SESSION, 1)
    second.reserve(SESSION, 50)
    with pytest.raises(OverBudget, match="at most 150 bytes of one user"):
        second.reserve(PREPARED, 1)
    other = budget.account("bob")
    other.reserve(PACKET, 70)
    with pytest.raises(OverBudget, match="at most 220 bytes of all users"):
        other.reserve(PACKET, 71)
    late = budget.account("eve")
    late.reserve(PACKET, 10)  # whatever others have
    with pytest.raises(OverBudget):
        late.reserve(PACKET, 11)
    assert (budget.reserved_bytes, budget.refusals) == (230, 4)
    for account in (first, second, other, late):
        account.close()
        account.reserve(PACKET, 5)  # of a connection that is over
    assert budget.reserved_bytes == 0


@pytest.mark.parametrize("seed", range(so_many(20)))
def test_the_budget_counts_as_a_plain_sum_does(seed: int) -> None:
    random_ = random.Random(seed)
    budget, limits = MemoryBudget(BudgetLimits(100, 180, 300, 0)), BudgetLimits(100, 180, 300, 0)
    accounts = [(name, budget.account(name), dict[str, int]()) for name in "aabbc"]
    for _ in range(300):
        user, account, parts = random_.choice(accounts)
        what, size = random_.choice((PACKET, SESSION, PREPARED)), random_.randrange(80)
        wanted = {**parts, what: size}
        of_user = sum(sum(p.values()) for name, _, p in accounts if name == user and p is not parts)
        total = sum(sum(p.values()) for _, _, p in accounts if p is not parts)
        mine = sum(wanted.values())
        fits = (
            mine <= limits.connection_bytes
            and of_user + mine <= limits.user_bytes
            and total + mine <= limits.total_bytes
        )
        try:
            account.reserve(what, size)
        except OverBudget:
            assert not fits
        else:
            assert fits or size <= parts.get(what, 0)
            parts[what] = size
        assert budget.reserved_bytes == sum(sum(p.values()) for _, _, p in accounts)


# -- time: the turn, and the reading of texts ---------------------------------------------------------------


def test_a_statement_has_its_turn_before_its_text_is_read(world: QueryWorld) -> None:
    service = world.service(QueryLimits(queries_max=1, queue_wait_s=0.05))
    try:
        running = service.execute("select carrier from flights")
        with pytest.raises(TooManyAtOnce):
            service.execute("this is no statement")
        with pytest.raises(TooManyAtOnce):
            service.describe("nor is this")
        with pytest.raises(TooManyAtOnce):
            service.check("nor this")
        running.close()
        with pytest.raises(QueryError, match="bad SQL"):
            service.execute("this is no statement")
    finally:
        service.close()


def test_no_text_of_a_statement_is_read_in_the_service(
    endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a text was read in the service's process")

    for module in (parser, planner):
        monkeypatch.setattr(module, "parse", refuse)
    with endpoints.connect() as connection, connection.cursor() as cursor:
        cursor.execute("select 41 + 1 as not_known_before")
        assert cursor.fetchall() == ((42,),)
        cursor.execute("show variables like 'auto%'")
        assert len(cursor.fetchall()) == 2
        cursor.execute("prepare p from 'select 7 as seven'")
        cursor.execute("execute p")
        assert cursor.fetchall() == ((7,),)
        cursor.execute("set @long = greatest(1, 2, 3)")
        cursor.execute("select @long")
        assert cursor.fetchall() == ((3,),)
    assert ask(endpoints, {"sql": "select 5 as other_text"}).json()["rows"] == [[5]]


def test_a_heavy_text_takes_the_processor_of_its_worker_and_not_of_the_service(world: QueryWorld) -> None:
    service = world.service(QueryLimits(queries_max=1), in_workers=True)
    try:
        service.execute("select 1 as x").table()
        in_all, in_service = processor_s(service, in_process=False), time.process_time()
        service.execute(HEAVY).table()
        in_service = time.process_time() - in_service
        in_worker = processor_s(service, in_process=False) - in_all - in_service
        assert in_service < in_worker / 3
    finally:
        service.close()


def test_who_has_fewer_turns_is_next_however_many_wait(world: QueryWorld) -> None:
    service = world.service(QueryLimits(queries_max=4, queue_wait_s=DEADLINE_S))
    try:
        running = [
            service.execute("select carrier from flights", (), service.cancellation(None, USER))
            for _ in range(3)
        ]
        answered: list[str] = []

        def ask_as(user: str) -> None:
            outcome = service.execute("select 1 as x", (), service.cancellation(None, user))
            answered.append(user)
            outcome.close()

        waiting = [threading.Thread(target=ask_as, args=(USER,)) for _ in range(8)]
        for thread in waiting:
            thread.start()
        until(lambda: len(service._turns._admission._waiting) == 8, "the heavy user's statements wait")
        ask_as(OTHER_USER)
        assert answered == [OTHER_USER]  # before the eight that came first
        for outcome in running:
            outcome.close()
        for thread in waiting:
            thread.join()
        assert answered.count(USER) == 8
    finally:
        service.close()


def test_values_make_no_plan_of_any_length(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection, connection.cursor() as cursor:
        cursor.execute("set @a = repeat('x', 60000)")
        with pytest.raises(pymysql.err.MySQLError, match="too long with its values"):
            cursor.execute("select " + ", ".join(f"length(@a) as c{number}" for number in range(100)))
        cursor.execute("select length(@a)")
        assert cursor.fetchall() == ((60_000,),)


def test_reading_a_text_ends_with_its_time(world: QueryWorld) -> None:
    service = world.service(QueryLimits(queries_max=1), in_workers=True)
    try:
        with pytest.raises(QueryTimeout):
            service.execute(HEAVY, (), service.cancellation(1))
        assert service.execute("select 1 as x").table().to_pylist() == [{"x": 1}]
    finally:
        service.close()


def test_the_steps_of_a_statement_end_with_it(world: QueryWorld) -> None:
    service = world.service()
    whole = service.cancellation(60_000, USER)
    first, second = whole.part(), whole.part()
    first.close()
    whole.cancel("a test")
    assert isinstance(second.error(), QueryInterrupted)
    with pytest.raises(QueryInterrupted):
        whole.part()
    assert second.remaining_ms() <= whole.timeout_ms
    whole.close()
    service.close()


def test_a_list_of_assignments_is_weighed_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed = 0
    value_bytes = assignments.value_bytes

    def counted(name: str, value: Any) -> int:
        nonlocal weighed
        weighed += 1
        return value_bytes(name, value)

    monkeypatch.setattr(assignments, "value_bytes", counted)
    count = 150
    text = ", ".join(f"@v{number} = {number}" for number in range(count))
    _, users = assigned(text, {}, {}, {}, assignments.refuse)
    assert users == {f"@v{number}": number for number in range(count)}
    assert weighed <= 3 * count


def test_values_that_are_long_to_read_are_left_to_the_engine() -> None:
    asked: list[str] = []

    def evaluate(expression: str, users: Any) -> str:
        asked.append(expression)
        return "computed"

    nested = "coalesce(" * 300 + "x.y" + ", 1)" * 300
    _, users = assigned(f"@a = 1, @b = {nested}, @c = 'x'", {}, {}, {}, evaluate)
    assert asked == [nested]
    assert users == {"@a": 1, "@b": "computed", "@c": "x"}
    with pytest.raises(QueryError, match="unsupported value of SET"):
        assigned(f"sql_mode = {nested}", {"sql_mode": ""}, {"sql_mode": ""}, {}, evaluate)


# -- memory: sessions, prepared statements, long data, bodies, results --------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "concat(" + ", ".join(["@a"] * 300) + ")",
        "concat(" * 12 + "@a" + ", @a)" * 12,
        "coalesce(replace(replace(@a, 'x', @a), 'x', @a), 1)",
    ],
)
def test_a_text_that_no_variable_may_hold_is_not_made(expression: str) -> None:
    users = {"@a": "x" * (USER_BYTES_MAX // 8)}
    with pytest.raises(QueryError, match="too much in user variables"):
        assigned(f"@b = {expression}", {}, {}, users, assignments.refuse)


def test_a_variable_takes_one_row_and_reads_no_more() -> None:
    batch = pa.record_batch([pa.array(["x"] * 10)], names=["v"])
    read = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal read
        while True:
            read += 1
            yield batch

    with pytest.raises(QueryError, match="more than one row"):
        user_value(StatementOutcome(batch.schema, batches()))
    assert read == 1


def test_prepared_statements_keep_their_texts_and_no_trees(endpoints: Endpoints) -> None:
    texts = [HEAVY.replace("as c", f"as n{number}_") for number in range(6)]
    with endpoints.connect() as connection:
        for text in texts[:1]:
            prepared(connection, text)
        gc.collect()
        trees = sum(isinstance(each, exp.Expr) for each in gc.get_objects())
        before = endpoints.service.budget.reserved_by(USER)
        for text in texts[1:]:
            prepared(connection, text)
        gc.collect()
        assert sum(isinstance(each, exp.Expr) for each in gc.get_objects()) <= trees
        grown = endpoints.service.budget.reserved_by(USER) - before
        assert grown >= sum(map(len, texts[1:]))
    until(lambda: endpoints.service.budget.reserved_by(USER) == 0, "the connection gave it back")


def test_long_data_is_bounded_over_all_statements_of_a_user(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection, endpoints.connect(user=OTHER_USER) as other:
        identities = [prepared(connection, "select length(?) as x") for _ in range(6)]
        for identity in identities:
            send_long(connection, identity, b"x" * MIB)
            send_long(connection, identity, b"x" * MIB)
        refused = []
        for identity in identities:
            try:
                execute(connection, identity)
            except pymysql.err.MySQLError as error:
                refused.append(error.args)
                assert endpoints.service.budget.reserved_by(USER) <= LIMITS.connection_bytes
        assert refused
        assert {number for number, _ in refused} == {CAPACITY_EXCEEDED}
        assert "too much memory" in refused[0][1]
        send_long(connection, identities[-1], b"short")
        execute(connection, identities[-1])
        for identity in identities:
            close(connection, identity)
        with other.cursor() as cursor:
            cursor.execute("select 1")
            assert cursor.fetchall() == ((1,),)


def test_a_packet_is_counted_as_it_comes_and_refused_whole(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection:
        with pytest.raises(pymysql.err.MySQLError) as raised, connection.cursor() as cursor:
            cursor.execute("select '" + "x" * (12 * MIB) + "'")
        assert raised.value.args[0] == CAPACITY_EXCEEDED
        with connection.cursor() as cursor:
            cursor.execute("select 1")
            assert cursor.fetchall() == ((1,),)


def test_values_of_a_body_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    account = MemoryBudget(LIMITS).account(USER)
    text = json.dumps({"sql": "select ?", "parameters": ["," * MIB + '\\"' + "[" * MIB]}).encode()
    assert (
        len(request_body.decoded(text, account).parameters[0]) == 2 * MIB + 2
    )  # marks in a text are no values

    def refuse(data: bytes) -> None:
        raise AssertionError("objects were made")

    monkeypatch.setattr(request_body.json, "loads", refuse)
    for shape in (b"[]", b"{}", b"1", b'"a"', b"[[1]]"):
        body = b'{"sql": "select 1", "parameters": [' + b",".join([shape] * 200_000) + b"]}"
        with pytest.raises(OverBudget, match="the body of a request"):
            request_body.decoded(body, account)
        with pytest.raises(TooLarge, match="too many values"):
            request_body.decoded(
                body.replace(b": [", b": [" + body[-900_000:-2] + b","), MemoryBudget().account(USER)
            )


def test_bodies_are_decoded_beside_the_event_loop(
    endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    decoded = request_body.decoded

    def noted(*arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        return decoded(*arguments)

    monkeypatch.setattr(running, "decoded", noted)
    answer = ask(endpoints, {"sql": "select ? as x", "parameters": [3]})
    assert answer.json()["rows"] == [[3]]
    assert [name.startswith("http-query") for name in threads] == [True]
    large = ask(endpoints, b'{"sql": "select 1", "parameters": [' + b"1," * 500_000 + b"1]}")
    assert (large.status_code, large.json()["code"]) == (413, "over_budget")
    assert "is malformed" in ask(endpoints, b'{"sql": 1}').json()["message"]


def test_rows_become_objects_in_small_parts() -> None:
    columns = 500
    batch = pa.record_batch(
        [pa.array([True, False] * 1_000) for _ in range(columns)], names=[f"c{n}" for n in range(columns)]
    )
    pieces = list(result_pieces(batch, MemoryBudget().account(USER)))
    assert pa.Table.from_batches(pieces) == pa.Table.from_batches([batch])
    assert max(piece.num_rows * columns for piece in pieces) <= CELLS_MAX
    texts = pa.record_batch([pa.array(["x" * 100_000] * 64)], names=["t"])
    assert max(piece.nbytes for piece in result_pieces(texts, None)) <= PIECE_BYTES
    with pytest.raises(OverBudget, match="rows of a result"):
        list(result_pieces(texts, MemoryBudget(BudgetLimits(MIB, MIB, MIB, 0)).account(USER)))


def test_json_is_sent_as_it_is_made(endpoints: Endpoints) -> None:
    columns = 300
    sql = "select " + ", ".join(f"a.name = 'x' as c{n}" for n in range(columns)) + " from airlines a, "
    sql += ", ".join(f"airlines t{number}" for number in range(5))
    expected = ask(endpoints, {"sql": "select power(count(*), 6) as n from airlines"}).json()["rows"][0][0]
    answer = ask(endpoints, {"sql": sql}).json()
    assert len(answer["rows"]) == expected
    assert len(answer["columns"]) == columns
    assert all(row == [False] * columns for row in answer["rows"])
    assert set(answer) == {"columns", "rows", "positions", "stats", "warnings"}
    until(lambda: endpoints.service.budget.reserved_by(USER) == 0, "the request gave it back")


def test_what_statements_of_a_user_read_is_bounded_together_and_given_back(world: QueryWorld) -> None:
    sql = "select carrier, count(*) n from flights group by carrier"
    service = world.service(QueryLimits(queries_max=8))
    try:
        single = service.execute(sql)
        read_bytes = service._reads.reserved_bytes
        assert read_bytes > 0
        single.close()
        assert service._reads.reserved_bytes == 0
        service._reads.limits = BudgetLimits(read_bytes, 2 * read_bytes, 3 * read_bytes, 0)
        open_now = [service.execute(sql, (), service.cancellation(None, USER)) for _ in range(2)]
        with pytest.raises(OverBudget, match="partial rows of history"):
            service.execute(sql, (), service.cancellation(None, USER))
        service.execute(sql, (), service.cancellation(None, OTHER_USER)).close()
        for outcome in open_now:
            outcome.close()
        assert service._reads.reserved_bytes == 0
    finally:
        service.close()


# -- attacks that nobody named ------------------------------------------------------------------------------


class Attacker:
    """One connection that sends what a seed draws."""

    def __init__(self, endpoints: Endpoints, seed: int) -> None:
        self._random = random.Random(seed)
        self._endpoints = endpoints
        self._connection = endpoints.connect()
        self._identities: list[tuple[int, int]] = []  # with the number of parameters
        self.refused = 0

    def attack(self) -> None:
        try:
            self._random.choice(
                (self._set, self._prepare, self._long, self._execute, self._named, self._json)
            )()
        except pymysql.err.OperationalError as error:
            if error.args[0] in (2006, 2013):
                raise
        except pymysql.err.MySQLError as error:
            self.refused += 1 if error.args[0] == CAPACITY_EXCEEDED else 0

    def close(self) -> None:
        self._connection.close()

    def _text(self) -> str:
        return "x" * self._random.choice((10, 1_000, 60_000))

    def _expression(self, depth: int) -> str:
        if depth == 0:
            return self._random.choice(("@a", "@b", f"'{self._text()}'", "1"))
        inside = [self._expression(depth - 1) for _ in range(self._random.randrange(1, 4))]
        name = self._random.choice(("concat", "coalesce", "greatest", "concat", "lower"))
        return f"{name}({', '.join(inside[:1] if name == 'lower' else inside)})"

    def _run(self, sql: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            cursor.fetchall()

    def _set(self) -> None:
        names = self._random.choices(("@a", "@b", f"@{self._random.randrange(100)}"), k=3)
        self._run(
            "set " + ", ".join(f"{name} = {self._expression(self._random.randrange(4))}" for name in names)
        )

    def _prepare(self) -> None:
        count = self._random.choice((1, 20, 300))
        marks = ", ".join(f"length(?) as c{number}" for number in range(count))
        identity = prepared(self._connection, f"select {marks}, '{self._text()}' as t")
        self._identities.append((identity, count))

    def _long(self) -> None:
        if self._identities:
            identity, _ = self._random.choice(self._identities)
            for _ in range(self._random.randrange(4)):
                send_long(self._connection, identity, b"y" * self._random.choice((100, 100_000, 2 * MIB)))

    def _execute(self) -> None:
        if self._identities:
            identity, count = self._random.choice(self._identities)
            execute(self._connection, identity, count)

    def _named(self) -> None:
        name = f"p{self._random.randrange(120)}"
        self._run(f"prepare {name} from 'select {len(name)} as `{self._text()[:200]}`'")

    def _json(self) -> None:
        shape = self._random.choice(("[]", "1", "{}", '"' + self._text() + '"', "[[[1]]]"))
        count = self._random.choice((1, 1_000, 200_000 // len(shape)))
        body = '{"sql": "select 1 as x", "parameters": [' + ",".join([shape] * count) + "]}"
        ask(self._endpoints, body.encode())


@pytest.mark.parametrize("seed", range(so_many(3)))
def test_whatever_a_user_sends_his_memory_is_bounded_and_others_are_answered(
    endpoints: Endpoints, seed: int
) -> None:
    budget = endpoints.service.budget
    with endpoints.connect(user=OTHER_USER) as other, other.cursor() as cursor:
        attackers = [Attacker(endpoints, seed * 10 + number) for number in range(3)]
        memory = watched(os.getpid())
        for number in range(40):
            attackers[number % len(attackers)].attack()
            assert budget.reserved_by(USER) <= LIMITS.user_bytes
            assert budget.reserved_bytes <= LIMITS.total_bytes
            cursor.execute(f"select {number} as n")
            assert cursor.fetchall() == ((number,),)
        assert memory.growth_bytes() <= LIMITS.user_bytes + ELSEWHERE_BYTES, f"seed {seed}"
        for attacker in attackers:
            attacker.close()
    until(lambda: budget.reserved_bytes == 0, "all of it is given back")
