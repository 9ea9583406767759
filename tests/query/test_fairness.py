"""One caller keeps nobody out: turns, MySQL connections that are silent or do not read, wrong passwords."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pymysql
import pytest
from rtolap.base.errors import QueryInterrupted, Unavailable
from rtolap.base.users import Users
from rtolap.query.admission import AdmissionControl
from rtolap.query.cancel import Cancellation
from rtolap.query.mysql import server as mysql_server
from rtolap.query.mysql.server import MySqlLimits
from rtolap.query.statement_service import QueryLimits

from tests.support import http_calls
from tests.support.hostile.exhausted_listener import ExhaustedListener
from tests.support.hostile.user_attacks import heavy_text
from tests.support.query.query_endpoints import OTHER_USER, PASSWORD, USER, Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld
from tests.support.query.workers import processor_s_by_worker, processor_s_since, worker_pids
from tests.support.scrape import Scrape
from tests.support.waiting import until

DEADLINE_S = 60.0
# Some 100 MB: 3 rows each.
LARGE = "select lpad(a.name, 5000, 'x') as l from airlines a, " + ", ".join(
    f"airlines t{i}" for i in range(8)
)
COUNT = "select count(*) n from flights"


@contextlib.contextmanager
def opened(
    world: QueryWorld, query_limits: QueryLimits = QueryLimits(), **limits: Any
) -> Iterator[Endpoints]:
    with open_endpoints(world, query_limits=query_limits, limits=MySqlLimits(**limits)) as endpoints:
        yield endpoints


def eventually(holds: Callable[[], object], what: str) -> None:
    until(holds, what, timeout_s=DEADLINE_S)


def counted(endpoints: Endpoints, name: str, **labels: str) -> float:
    return Scrape(endpoints.service.metrics.registry.render()[0].decode())(
        f"rtolap_query_{name}_total", **labels
    )


def visit(endpoints: Endpoints) -> socket.socket:
    return socket.create_connection(("127.0.0.1", endpoints.mysql_port), timeout=DEADLINE_S)


def answer(connection: pymysql.connections.Connection, sql: str = COUNT) -> object:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def test_a_user_has_not_all_turns(world: QueryWorld) -> None:
    service = world.service(QueryLimits(queries_max=3, queries_per_user_max=2, queue_wait_s=0.05))
    running = [service.execute(COUNT, (), service.cancellation(user="ann")) for _ in range(2)]
    with pytest.raises(Unavailable, match="too many queries; expected at most 3 at a time, 2 of one user"):
        service.execute(COUNT, (), service.cancellation(user="ann"))
    running.append(service.execute(COUNT, (), service.cancellation(user="bob")))
    with pytest.raises(Unavailable, match="too many queries"):
        service.execute(COUNT, (), service.cancellation(user="carl"))
    for outcome in running:
        outcome.close()
    service.execute(COUNT, (), service.cancellation(user="ann")).close()
    service.close()


def test_who_has_fewer_turns_is_first_though_he_came_last() -> None:
    turns = AdmissionControl(2, 2)
    assert turns.acquire("ann", 0)
    assert turns.acquire("ann", 0)
    got: list[str] = []

    def wait(user: str) -> None:
        assert turns.acquire(user, DEADLINE_S)
        got.append(user)

    threads = []
    for number, user in enumerate(("ann", "bob"), 1):
        threads.append(threading.Thread(target=wait, args=(user,)))
        threads[-1].start()
        eventually(lambda: len(turns._waiting) == number, "it waits")  # noqa: B023
    turns.release("ann")
    eventually(lambda: got, "one has got the turn")
    assert got == ["bob"]
    turns.release("ann")
    for thread in threads:
        thread.join(DEADLINE_S)
    assert got == ["bob", "ann"]
    assert not turns.acquire("carl", 0.01)


def test_silent_connections_do_not_keep_anybody_from_logging_in(world: QueryWorld) -> None:
    limits: dict[str, float] = {"connections_max": 5, "logins_max": 20, "logins_per_address_max": 10}
    with (
        opened(world, **limits, login_timeout_s=2 * DEADLINE_S) as endpoints,
        contextlib.ExitStack() as silent,
    ):
        for _ in range(60):
            silent.enter_context(visit(endpoints))
        with endpoints.connect() as connection:
            assert answer(connection) == ((800,),)
        eventually(lambda: endpoints.mysql.connections() <= 10, "the others are closed")


def test_a_user_has_not_all_connections(world: QueryWorld) -> None:
    with (
        opened(world, connections_max=3, connections_per_user_max=2) as endpoints,
        contextlib.ExitStack() as inside,
    ):
        for _ in range(2):
            inside.enter_context(endpoints.connect())
        with pytest.raises(pymysql.err.OperationalError, match="2 of one user") as refused:
            endpoints.connect()
        assert refused.value.args[0] == 1040
        with endpoints.connect(user=OTHER_USER) as other:
            assert answer(other) == ((800,),)
        assert counted(endpoints, "mysql_logins", outcome="full") == 1


def test_a_client_that_does_not_read_loses_its_turn(world: QueryWorld) -> None:
    """There is one turn."""
    with (
        opened(world, QueryLimits(queries_max=1, queue_wait_s=DEADLINE_S), write_timeout_s=0.5) as endpoints,
        endpoints.connect() as deaf,
        endpoints.connect(user=OTHER_USER) as other,
    ):
        deaf._execute_command(3, LARGE)  # COM_QUERY, whose answer nobody reads
        eventually(lambda: counted(endpoints, "mysql_slow_readers") == 1, "it is cut off")
        assert answer(other) == ((800,),)
        deaf._force_close()


def test_a_client_that_reads_slowly_gets_all_its_rows(world: QueryWorld) -> None:
    with opened(world, write_timeout_s=1.5) as endpoints:
        connection = endpoints.connect(cursorclass=pymysql.cursors.SSCursor)
        with connection, connection.cursor() as cursor:
            cursor.execute(LARGE)
            rows = 0
            while piece := cursor.fetchmany(3000):
                rows += len(piece)
                time.sleep(0.25)
        assert rows == 3**9


def test_accepting_goes_on_when_there_are_descriptors_again(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def listening_sockets(what: str, host: str, port: int) -> list[socket.socket]:
        listening = ExhaustedListener()
        listening.bind((host, port))
        listening.listen()
        return [listening]

    monkeypatch.setattr(mysql_server, "listening_sockets", listening_sockets)
    with caplog.at_level(logging.WARNING), opened(world) as endpoints, endpoints.connect() as connection:
        assert answer(connection) == ((800,),)
        assert counted(endpoints, "mysql_logins", outcome="no_descriptors") == 3
    assert "Too many open files" in caplog.text


def test_wrong_passwords_are_slowed_for_their_user_only(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rtolap.base.users.FIRST_DELAY_S", 0.2)
    with opened(world) as endpoints:
        for _ in range(3):
            with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
                endpoints.connect(password="wrong")
        began_s = time.monotonic()
        with endpoints.connect(user=OTHER_USER) as other:
            assert answer(other) == ((800,),)
        assert len(endpoints.mysql._users.delays) == 1  # the other has nothing to wait for
        with endpoints.connect(user=USER, password=PASSWORD) as connection:
            assert time.monotonic() - began_s >= 0.2
            assert answer(connection) == ((800,),)
        assert len(endpoints.mysql._users.delays) == 0


def test_wrong_passwords_over_many_connections_of_both_protocols_are_looked_at_one_after_the_other(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot_s = 0.5
    monkeypatch.setattr("rtolap.base.users.FIRST_DELAY_S", slot_s)
    monkeypatch.setattr("rtolap.base.users.DELAY_MAX_S", slot_s)
    looks: list[float] = []
    for name in ("verify_password", "verify_scramble"):

        def counting(users: Users, *given: Any, verify: Any = getattr(Users, name)) -> None:
            if given[0] == USER:
                looks.append(time.monotonic())
            verify(users, *given)

        monkeypatch.setattr(Users, name, counting)
    answers: list[object] = []
    with opened(world) as endpoints:
        url = f"http://127.0.0.1:{endpoints.http_port}/api/v1/query"

        def over_mysql() -> None:
            for _ in range(4):
                try:
                    endpoints.connect(password="wrong")
                except pymysql.err.OperationalError as error:
                    answers.append(error.args[0])

        def over_http() -> None:
            for _ in range(4):
                body = {"sql": COUNT}
                response = http_calls.post(url, json=body, auth=(USER, "wrong"), timeout=DEADLINE_S)
                answers.append(response.status_code)

        began_s = time.monotonic()
        threads = [threading.Thread(target=each) for _ in range(15) for each in (over_mysql, over_http)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            with endpoints.connect(user=OTHER_USER) as other:
                assert answer(other) == ((800,),)
        for thread in threads:
            thread.join(DEADLINE_S)
        lasted_s = time.monotonic() - began_s
        assert len(answers) == 120
        assert {1040, 503} <= set(answers) <= {1045, 1040, 401, 503}
        assert len(looks) == answers.count(1045) + answers.count(401)
        assert len(looks) <= 3 + 1 + lasted_s / slot_s


def test_processor_time_of_a_heavy_user_does_not_come_before_anothers_statement(world: QueryWorld) -> None:
    """Eleven statements of a heavy user run at a time, and as many wait. Between another user's statement and
    its answer their workers spend less than one of them takes, however busy the machine is.
    """
    heavy_at_once, texts = 11, random.Random(3)
    service = world.service(QueryLimits(queue_wait_s=DEADLINE_S), in_workers=True)
    stopping = threading.Event()

    def answered(sql: str, user: str) -> None:
        ending = service.cancellation(None, user)
        with stopped_by(ending, stopping):
            service.execute(sql, (), ending).table()

    def be_heavy() -> None:
        with contextlib.suppress(QueryInterrupted):
            while not stopping.is_set():
                answered(heavy_text(texts), USER)

    def spent_by(work: Callable[[], None]) -> float:
        before = processor_s_by_worker(service)
        work()
        return processor_s_since(service, before)

    with contextlib.closing(service), ThreadPoolExecutor(2 * heavy_at_once) as pool:
        answered("select 1 as warm", USER)
        one_s = min(spent_by(lambda: answered(heavy_text(texts), USER)) for _ in range(2))
        heavy = [pool.submit(be_heavy) for _ in range(2 * heavy_at_once)]
        try:
            eventually(lambda: len(worker_pids(service, "working")) >= heavy_at_once, "they are at work")
            for number in range(4):  # a worker of its own
                answered(f"select {number} as warm", OTHER_USER)
            statements = [partial(answered, f"select {number} as n", OTHER_USER) for number in range(15)]
            spent_s = [spent_by(statement) for statement in statements]
        finally:
            stopping.set()
        for each in heavy:
            each.result()
    print(f"one takes {one_s:.2f} s; before another's answers: {sorted(spent_s)}")
    assert statistics.median(spent_s) < one_s
    assert max(spent_s) < heavy_at_once * one_s


@contextlib.contextmanager
def stopped_by(ending: Cancellation, stopping: threading.Event) -> Iterator[None]:
    """Cancel the statement within as soon as the event is set."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            if stopping.is_set():
                ending.cancel("the test is over")
                return

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
