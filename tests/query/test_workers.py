"""Statements run in worker processes: one that takes too much, or ends its process, costs only itself."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import (
    Corrupted,
    QueryError,
    RtolapError,
    TooLittleDisk,
    Unavailable,
    UnknownFunction,
    UnreadableValue,
)
from rtolap.base.metrics import Metrics
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.engine_session import EngineSession
from rtolap.query.statement_service import QueryLimits, QueryService
from rtolap.query.workers import messages, packing, pool
from rtolap.query.workers.pool import WorkerPool
from rtolap.query.workers.session import SUM

from tests.support.hostile.hostile_texts import GREEDY
from tests.support.query.query_world import QueryWorld
from tests.support.query.workers import (
    is_alive,
    pool_of,
    private_bytes,
    wait_until,
    worker_pids,
)

MEMORY_BYTES = 128 << 20
LITTLE_BYTES = 32 << 20  # soon reached, where a statement wants more than there is
SUM_ENDED = 'workers_ended_total{reason="sum"}'
WAIT_S = 120.0
PAUSE_S = 0.005  # of a client who asks one after the other, so that it does not take a processor of its own
_DIGITS = "(select 0 d union all select 1 union all select 2 union all select 3 union all select 4) "
MANY_ROWS = "select a.d x from " + ", ".join(_DIGITS + name for name in "abcdefgh")
MANY_ROWS_COUNT = 5**8


@pytest.fixture(scope="module")
def working(world: QueryWorld) -> Iterator[QueryService]:
    made = world.service(QueryLimits(memory_bytes=MEMORY_BYTES), in_workers=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def with_little(world: QueryWorld) -> Iterator[QueryService]:
    made = world.service(QueryLimits(memory_bytes=LITTLE_BYTES), in_workers=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def timeouts() -> Iterator[Timeouts]:
    made = Timeouts(SystemClock())
    yield made
    made.close()


@pytest.fixture
def session(working: QueryService, timeouts: Timeouts) -> Iterator[EngineSession]:
    ending = Cancellation(timeouts, 120_000)
    with pool_of(working).session(ending) as made:
        yield made
    ending.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with EmbeddedEngine(memory_limit_bytes=MEMORY_BYTES, threads=1) as made:
        yield made


def one(service: QueryService) -> int:
    (value,) = service.execute("select 1 as x").table().column("x").to_pylist()
    return int(value)


@pytest.mark.parametrize("kind", GREEDY)
def test_a_statement_that_wants_gigabytes_costs_only_itself(kind: str, with_little: QueryService) -> None:
    own_pid, is_over, most = os.getpid(), threading.Event(), [0]
    before = private_bytes()

    def others() -> int:
        asked = 0
        while not is_over.is_set() or not asked:
            assert one(with_little) == 1
            most[0] = max(most[0], private_bytes())
            asked += 1
            is_over.wait(PAUSE_S)
        return asked

    with ThreadPoolExecutor(1) as client:
        asking = client.submit(others)
        try:
            with pytest.raises(Unavailable, match=r"needs more memory than it may have.*group by less"):
                with_little.execute(GREEDY[kind]).table()
        finally:
            is_over.set()
        assert asking.result(WAIT_S) >= 1
    assert os.getpid() == own_pid
    assert most[0] - before < 200 << 20
    assert one(with_little) == 1


def test_four_greedy_statements_at_once_fail_and_the_service_goes_on(with_little: QueryService) -> None:
    with ThreadPoolExecutor(4) as clients:
        asked = [clients.submit(lambda sql: with_little.execute(sql).table(), sql) for sql in GREEDY.values()]
        for answer in asked:
            with pytest.raises(Unavailable, match="more memory"):
                answer.result(WAIT_S)
    assert one(with_little) == 1


def test_what_all_take_together_is_bounded_and_the_largest_is_ended(
    tmp_path: Path, timeouts: Timeouts
) -> None:
    """Each of them keeps 25 MB of a result that is not read, and what making them took."""
    metrics = Metrics("query")
    texts = pa.table({"a": [f"{number:050000}" for number in range(250)]})
    ending = Cancellation(timeouts, 120_000)
    with WorkerPool(MEMORY_BYTES, 1, 4, metrics, spill_folder=str(tmp_path / "spill"), warm=0) as workers:
        workers.bound_bytes = 160 << 20  # of all; what each may have is more
        sessions = [workers.session(ending) for _ in range(4)]
        results = []
        for each in sessions:
            each.register("texts", texts)
            try:
                result = each.run("SELECT a || a AS t FROM texts", {})
                assert result.next_batch() is not None
                results.append(result)
            except Unavailable as error:
                assert "for all queries together" in str(error)  # noqa: PT017 - one of them, whichever
        wait_until(lambda: any(worker.killed for worker in workers._working) or SUM_ENDED in told(metrics))
        failed = 0
        for result in results:
            try:
                while result.next_batch() is not None:
                    """Until its end, or that of its worker."""
            except Unavailable as error:
                assert "for all queries together" in str(error)  # noqa: PT017
                failed += 1
        assert 1 <= failed + len(sessions) - len(results) < len(sessions)
        for each in sessions:
            each.close()
        assert SUM_ENDED in told(metrics)
        with workers.session(ending) as after:
            assert after.value("SELECT 1", {}) == 1
    ending.close()


def told(metrics: Metrics) -> str:
    return metrics.render()[0].decode()


def test_a_worker_that_is_killed_amid_a_result_fails_its_statement_alone(working: QueryService) -> None:
    other = working.execute(MANY_ROWS)
    read = next(other.batches).num_rows
    assert read
    (pid,) = worker_pids(working, "working")
    outcome = working.execute(MANY_ROWS)
    assert next(outcome.batches).num_rows
    (killed,) = set(worker_pids(working, "working")) - {pid}
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(Unavailable, match=r"the worker of the query ended.*SIGKILL.*ask again"):
        outcome.table()
    assert read + other.table().num_rows == MANY_ROWS_COUNT
    assert one(working) == 1
    assert killed not in worker_pids(working)


def test_workers_that_die_while_nobody_asks_them_are_replaced(working: QueryService) -> None:
    assert one(working) == 1
    pids = worker_pids(working, "idle")
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids)))
    assert [one(working) for _ in range(3)] == [1, 1, 1]


def test_workers_outlive_their_fork_server_and_there_is_another_one(
    tmp_path: Path, timeouts: Timeouts
) -> None:
    ending = Cancellation(timeouts, 120_000)
    with (
        WorkerPool(MEMORY_BYTES, 1, 4, Metrics("query"), spill_folder=str(tmp_path / "s"), warm=0) as workers,
        workers.session(ending) as session,
    ):
        result = session.run(MANY_ROWS, {})
        first = result.next_batch()
        assert first is not None
        before = workers.fork_server_pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        assert first.num_rows + result.drain() == MANY_ROWS_COUNT
        with workers.session(ending) as another:  # no other worker is idle: it has to be made
            assert another.value("SELECT 1", {}) == 1
            assert len(workers.workers()["working"]) == 2
        assert workers.fork_server_pid not in (before, None)
        assert session.value("SELECT 2", {}) == 2
    ending.close()


def test_while_all_workers_are_at_work_another_is_started_for_the_next_statement(
    tmp_path: Path, timeouts: Timeouts
) -> None:
    ending = Cancellation(timeouts, 120_000)
    options: dict[str, Any] = {"spill_folder": str(tmp_path / "spill"), "warm": 1}
    with WorkerPool(MEMORY_BYTES, 1, 3, Metrics("query"), **options) as workers, ExitStack() as sessions:
        for working in (1, 2):
            sessions.enter_context(workers.session(ending))
            assert len(workers.workers()["working"]) == working
            assert len(workers._idle) == 1
        sessions.enter_context(workers.session(ending))
        assert workers._idle == [], "there are no more than statements may run at a time"
    ending.close()


def test_a_spare_worker_is_not_started_again_and_again_while_all_take_too_much(
    tmp_path: Path, timeouts: Timeouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement that takes the most is ended then."""
    monkeypatch.setattr(pool, "_WORTH_BYTES", 0)  # every idle worker is ended first
    ending = Cancellation(timeouts, 120_000)
    options: dict[str, Any] = {"spill_folder": str(tmp_path / "spill"), "warm": 1}
    with WorkerPool(MEMORY_BYTES, 1, 3, Metrics("query"), **options) as workers:
        session = workers.session(ending)
        worker = next(iter(workers._working))
        workers.bound_bytes = 1
        wait_until(lambda: worker.killed == SUM)
        assert workers._started == 2
        session.close()
    ending.close()


def test_a_fork_server_that_ended_is_none(tmp_path: Path, timeouts: Timeouts) -> None:
    ending = Cancellation(timeouts, 120_000)
    with (
        WorkerPool(MEMORY_BYTES, 1, 1, Metrics("query"), spill_folder=str(tmp_path / "s"), warm=0) as workers,
        workers.session(ending) as session,
    ):
        before = workers.fork_server_pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: workers.fork_server_pid is None)
        assert session.value("SELECT 1", {}) == 1
    ending.close()


@pytest.mark.parametrize("warm", [1, 6])
def test_workers_that_a_fork_server_owes_as_it_ends_are_made_by_the_next_one(
    warm: int, tmp_path: Path, timeouts: Timeouts
) -> None:
    """It is stopped, so that it has made none of them, and then killed with all of its requests unread."""
    ending = Cancellation(timeouts, 120_000)
    folder = str(tmp_path / "spill")
    with WorkerPool(MEMORY_BYTES, 1, 6, Metrics("query"), spill_folder=folder, warm=warm) as workers:
        before = workers.fork_server_pid
        assert before is not None
        os.kill(before, signal.SIGSTOP)
        os.kill(before, signal.SIGKILL)
        with workers.session(ending) as session:
            assert session.value("SELECT 1", {}) == 1
        assert workers.fork_server_pid not in (before, None)
    ending.close()


def test_signals_of_a_terminal_or_a_group_end_no_worker(tmp_path: Path, timeouts: Timeouts) -> None:
    ending = Cancellation(timeouts, 120_000)
    with (
        WorkerPool(MEMORY_BYTES, 1, 2, Metrics("query"), spill_folder=str(tmp_path / "spill")) as workers,
        workers.session(ending) as session,
    ):
        server = workers.fork_server_pid
        assert server is not None
        for pid in (server, *workers.workers()["working"]):
            assert os.getpgid(pid) != os.getpgid(0)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(pid, number)
        assert session.value("SELECT 1", {}) == 1
        with workers.session(ending) as another:
            assert another.value("SELECT 1", {}) == 1
        assert workers.fork_server_pid == server
    ending.close()


SERVICE = """
import sys, time
from rtolap.base.hidden_pandas import hide_pandas
hide_pandas()
from rtolap.base.clock import SystemClock
from rtolap.base.metrics import Metrics
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.workers.pool import WorkerPool
from rtolap.query.workers.session import SUM
pool = WorkerPool(128 << 20, 1, 4, Metrics("query"), spill_folder=sys.argv[1], warm=2)
endings = [Cancellation(Timeouts(SystemClock()), 600_000) for _ in range(2)]
sessions = [pool.session(ending) for ending in endings]
assert sessions[0].value("SELECT 1", {}) == 1
print(pool.fork_server_pid, *pool.workers()["working"], flush=True)
time.sleep(600)
"""


def test_nothing_is_left_of_a_service_that_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RTOLAP_TOKEN": "x"}
    with subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(tmp_path / "spill")],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as service:
        assert service.stdout is not None
        pids = [int(word) for word in service.stdout.readline().split()]
        assert len(pids) == 3
        assert all(map(is_alive, pids))
        for pid in pids:
            assert "RTOLAP" not in Path(f"/proc/{pid}/environ").read_text()
        service.kill()
        wait_until(lambda: not any(map(is_alive, pids)))


def test_a_worker_is_bounded_by_the_system_and_holds_nothing_of_the_service(working: QueryService) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        os.set_inheritable(listening.fileno(), True)  # also one that a child would get
        outcome = working.execute(MANY_ROWS)
        for pid in worker_pids(working, "working"):
            limits = Path(f"/proc/{pid}/limits").read_text()
            bounds = {line[:25].strip(): line[25:].split() for line in limits.splitlines()}
            assert bounds["Max core file size"][:2] == ["0", "0"]
            assert int(bounds["Max data size"][1]) < (1 << 30) + pool.bound_bytes(MEMORY_BYTES)
            sockets = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
            assert len([name for name in sockets if name.startswith("socket:")]) == 2
        outcome.close()


def test_a_result_comes_as_it_is_read(working: QueryService) -> None:
    """Hundreds of MB, of which neither side holds more than a few batches."""
    before = private_bytes()
    outcome = working.execute(
        "select concat(repeat('x', 1000), a.d, b.d, c.d, d.d, e.d, f.d) t from "
        + ", ".join(_DIGITS + name for name in "abcdefg")
    )
    rows = 0
    for batch in outcome.batches:
        rows += batch.num_rows
        assert batch.nbytes <= messages.BATCH_BYTES_MAX
        (pid,) = worker_pids(working, "working") or [None]
        assert pid is None or private_bytes(pid) < 400 << 20
    assert rows == 5**7
    assert private_bytes() - before < 200 << 20


def test_a_row_and_a_constant_are_bounded(tmp_path: Path, timeouts: Timeouts) -> None:
    ending = Cancellation(timeouts, 120_000)
    with (
        WorkerPool(1 << 30, 1, 1, Metrics("query"), spill_folder=str(tmp_path / "spill")) as workers,
        workers.session(ending) as session,
    ):
        bounded(session)
    ending.close()


def bounded(session: EngineSession) -> None:
    texts = {"a": "x" * 1000, "b": "y" * 70_000, "c": "y" * 20_000}
    with pytest.raises(QueryError, match=r"a row of the result is too large; expected at most 64 MiB"):
        session.read("SELECT replace($a, 'x', $b) AS t", {"a": texts["a"], "b": texts["b"]})
    with pytest.raises(QueryError, match="a constant is too large; expected at most 16 MiB"):
        session.value("SELECT replace($a, 'x', $c)", {"a": texts["a"], "c": texts["c"]})
    assert session.value("SELECT 1", {}) == 1


EVERY_TYPE = pa.table(
    {
        "flag": [True, None, False],
        "tiny": pa.array([1, None, -128], pa.int8()),
        "unsigned": pa.array([1, None, 2**64 - 1], pa.uint64()),
        "whole": pa.array([1, None, -(2**63)], pa.int64()),
        "single": pa.array([1.5, None, float("inf")], pa.float32()),
        "real": pa.array([0.1, None, -0.0], pa.float64()),
        "price": pa.array([Decimal("1.25"), None, Decimal("-99.99")], pa.decimal128(20, 2)),
        "small_price": pa.array([Decimal("1.2"), None, Decimal("-9.9")], pa.decimal128(4, 1)),
        "text": ["é", None, "x" * 100],
        "large_text": pa.array(["é", None, ""], pa.large_string()),
        "words": pa.array(["a", None, "a"]).dictionary_encode(),
        "image": pa.array([b"\0\xff", None, b""], pa.binary()),
        "day": pa.array([date(2026, 1, 2), None, date(1, 1, 1)], pa.date32()),
        "moment": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6), None, datetime(1, 1, 1)], pa.timestamp("us")),
        "instant": pa.array([datetime(2026, 1, 2, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
        "clock": pa.array([time(1, 2, 3, 4), None, time(0)], pa.time64("us")),
        "sketches": pa.array([[b"a", None], None, []], pa.list_(pa.binary())),
        "nested": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}]),
        "nothing": pa.nulls(3),
    }
)


@pytest.mark.parametrize("times", [0, 1, 3_000])
def test_answers_are_those_of_the_engine_itself(
    times: int, session: EngineSession, engine: EmbeddedEngine
) -> None:
    table = pa.concat_tables([EVERY_TYPE] * times or [EVERY_TYPE.schema.empty_table()]).combine_chunks()
    table = pa.concat_tables([table, table.slice(1)])  # in chunks, and with offsets
    with engine.session() as beside:
        for each in (session, beside):
            each.register("r", table)
        for name in EVERY_TYPE.column_names:
            sql = f'SELECT "{name}" FROM "r"'
            answer = session.read(sql, {})
            assert answer.equals(beside.read(sql, {})), name
            answer.validate(full=True)
        for sql in (
            'SELECT count(*) AS n, sum("price") AS p, max("text") AS t, min("image") AS i FROM "r"',
            'SELECT "text", sum("whole" + 1.5) AS s FROM "r" GROUP BY "text" ORDER BY "text"',
            'SELECT * FROM "r" LIMIT 0',
        ):
            assert session.read(sql, {}).equals(beside.read(sql, {}))


VALUES = (
    *(None, True, False, 0, -(2**63), 2**63, 2**70, -(2**100), 0.1, -0.0, float("inf"), float("-inf")),
    *("", "é\0'\"", "x" * 100_000, b"", b"\0\xff", Decimal("1.50"), Decimal("-1E+5"), Decimal(10) ** 30),
    *(date(1, 1, 1), date(9999, 12, 31), datetime(2026, 1, 2, 3, 4, 5, 6), datetime(2026, 1, 2, tzinfo=UTC)),
    *(time(1, 2, 3, 4), timedelta(days=-1, seconds=5, microseconds=7), [1, None, 3], ["a"], {"a": 1}),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30])
def test_bound_values_of_every_kind_are_those_of_the_engine_itself(
    value: object, session: EngineSession, engine: EmbeddedEngine
) -> None:
    with engine.session() as beside:
        sql = "SELECT $p AS x"
        assert session.read(sql, {"p": value}).equals(beside.read(sql, {"p": value}))
        found, expected = session.value(sql, {"p": value}), beside.value(sql, {"p": value})
        assert (type(found), found) == (type(expected), expected)


def test_text_that_is_not_unicode_is_an_error_of_the_statement(session: EngineSession) -> None:
    with pytest.raises(QueryError, match="not Unicode"):
        session.value("SELECT $p AS x", {"p": "\ud800"})
    assert session.value("SELECT 1", {}) == 1


def test_errors_keep_their_types(session: EngineSession) -> None:
    session.register("r", pa.table({"a": [1]}))
    for sql, kind, words in (
        ("SELECT nothing_of_that_name(1)", UnknownFunction, "nothing_of_that_name"),
        (
            "SELECT CAST('x' AS INTEGER)",
            UnreadableValue,
            "cannot be read as the type that it is used as; .* found 'x'",
        ),
        ("CREATE TABLE t (a INT)", QueryError, "bad SQL"),
        ("SELECT * FROM somebody_elses", QueryError, "unknown table"),
        ("SELECT current_setting('temp_directory')", QueryError, "current_setting"),
        ("SELECT 1; SELECT 2", QueryError, "one statement"),
    ):
        with pytest.raises(kind, match=words):
            session.read(sql, {})
        with pytest.raises(kind, match=words):
            session.value(sql, {})
    assert session.read("SELECT a FROM r", {}).to_pylist() == [{"a": 1}]


def test_nothing_of_a_statement_is_left_for_the_next_one(working: QueryService, timeouts: Timeouts) -> None:
    ending = Cancellation(timeouts, 120_000)
    workers = pool_of(working)
    for _ in range(3):
        with workers.session(ending) as made:
            with pytest.raises(QueryError, match="unknown table"):
                made.read("SELECT * FROM mine", {})
            made.register("mine", pa.table({"a": [1]}))
            assert made.run("SELECT a FROM mine", {}).schema.names == ["a"]  # and its rows are not read
    ending.close()


def test_what_a_worker_may_not_say_is_damage() -> None:
    batch = pa.record_batch({"a": ["x", "yy", None], "b": [1, 2, 3]})
    whole = messages.table_bytes(batch).to_pybytes()
    assert messages.read_batch(pa.py_buffer(whole), batch.schema).equals(batch)
    with pytest.raises(Corrupted):
        messages.read_batch(pa.py_buffer(whole), pa.schema([("a", pa.string())]))
    rng = random.Random(5)
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            read = messages.read_batch(pa.py_buffer(bytes(damaged)), batch.schema)
        except Corrupted:
            continue
        read.validate(full=True)
        read.to_pylist()
    for value in (["int", "x"], ["no kind"], [], ["decimal", []], ["datetime", "then"], ["timedelta", "x"]):
        with pytest.raises(Corrupted):
            packing.unpacked(value)
    for said in (
        (1 << 31).to_bytes(4, "little") + bytes(16),
        bytes(4) + (1 << 40).to_bytes(8, "little") + bytes(8),
        (3).to_bytes(4, "little") + bytes(16) + b"\x93ab",
    ):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(said)
            with pytest.raises(Corrupted):
                messages.receive_answer(ours)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"\x05")
        theirs.close()
        assert messages.receive_answer(ours) is None


def test_workers_are_counted_with_the_reasons_of_their_ends(with_little: QueryService) -> None:
    with pytest.raises(RtolapError):
        with_little.execute(GREEDY["nested REPLACE"]).table()
    assert one(with_little) == 1
    page = told(with_little.metrics.registry)
    assert 'rtolap_query_workers{state="idle"}' in page
    assert "rtolap_query_workers_started_total" in page
    assert 'rtolap_query_workers_ended_total{reason="memory"}' in page


def test_workers_that_nobody_needs_any_more_are_ended(
    tmp_path: Path, timeouts: Timeouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE_S", 0.0)
    ending = Cancellation(timeouts, 120_000)
    with WorkerPool(
        MEMORY_BYTES, 1, 4, Metrics("query"), spill_folder=str(tmp_path / "spill"), warm=1
    ) as workers:
        sessions = [workers.session(ending) for _ in range(3)]
        assert len(workers.workers()["working"]) == 3
        for each in sessions:
            each.close()
        wait_until(lambda: workers.workers() == {"working": [], "idle": workers.workers()["idle"][:1]})
    ending.close()


def test_what_does_not_fit_the_engines_own_limit_is_spilled_beside_that_of_other_workers(
    tmp_path: Path, timeouts: Timeouts
) -> None:
    texts = [f"{number * 7919 % 2_000_000:020}" for number in range(0, 2_000_000, 4)]
    rows = pa.table({"a": texts, "b": [text[::-1] for text in texts], "c": range(len(texts))})
    ending = Cancellation(timeouts, 600_000)
    folder = tmp_path / "spill"
    with WorkerPool(64 << 20, 1, 2, Metrics("query"), spill_folder=str(folder)) as workers:
        WorkerPool(64 << 20, 1, 1, Metrics("query"), spill_folder=str(folder), warm=0).close()  # another's
        workers.bound_bytes = 1 << 30  # of all; both sort at a time
        sessions = [workers.session(ending) for _ in range(2)]
        for each in sessions:
            each.register("r", rows)
        results = [each.run("SELECT a, b, c FROM r ORDER BY a", {}) for each in sessions]
        assert all(result.next_batch() is not None for result in results)
        assert {path.name for path in folder.iterdir()} == {
            f"worker-{pid}" for pid in workers.workers()["working"]
        }
        assert [result.drain() for result in results] == [len(texts) - 8192] * 2
        for each in sessions:
            each.close()
    ending.close()


def test_a_statement_that_cannot_spill_says_where_the_engine_wanted_to(
    tmp_path: Path, timeouts: Timeouts
) -> None:
    ending = Cancellation(timeouts, 120_000)
    folder = tmp_path / "spill"
    with WorkerPool(LITTLE_BYTES, 1, 1, Metrics("query"), spill_folder=str(folder)) as workers:
        folder.rmdir()
        session = workers.session(ending)
        numbers = pa.table({"a": [f"{number:0200}" for number in range(150_000, 0, -1)]})
        session.register("r", numbers)
        with pytest.raises(Unavailable, match="could not spill") as caught:
            session.run("SELECT a FROM r ORDER BY a", {}).drain()
        assert str(folder) in str(caught.value.to_dict())
        session.close()
    ending.close()


def test_a_statement_that_leaves_too_little_of_the_disk_free_ends_by_name_and_its_files_go(
    tmp_path: Path, timeouts: Timeouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is as large as the test says: free is what workers have not spilled."""
    texts = [f"{number * 7919 % 2_000_000:020}" for number in range(0, 2_000_000, 4)]
    rows = pa.table({"a": texts, "b": [text[::-1] for text in texts]})
    ending = Cancellation(timeouts, 600_000)
    folder = tmp_path / "spill"
    disk_bytes, free_bytes_min = 24 << 20, 16 << 20

    class Disk(NamedTuple):
        f_frsize: int
        f_bavail: int

    def statvfs(path: Path) -> Disk:
        used = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
        return Disk(1, max(0, disk_bytes - used))

    options: dict[str, Any] = {"spill_folder": str(folder), "spill_free_bytes_min": free_bytes_min}
    with WorkerPool(64 << 20, 1, 2, Metrics("query"), **options) as workers:
        workers.bound_bytes = 1 << 30
        monkeypatch.setattr("rtolap.query.spills.folder.os.statvfs", statvfs)
        small, large = (workers.session(ending) for _ in range(2))
        large.register("r", rows)
        assert small.value("SELECT 1", {}) == 1
        with pytest.raises(TooLittleDisk, match="more of the disk than it may have") as caught:
            large.run("SELECT a, b FROM r ORDER BY a", {}).drain()
        assert caught.value.code == "too_little_disk"
        large.close()
        wait_until(lambda: not [each for each in folder.rglob("*") if each.is_file()])
        assert small.value("SELECT 2", {}) == 2  # it has spilled nothing, so it goes on
        small.close()
    ending.close()


def test_a_disk_that_others_have_filled_ends_no_statement_that_spills_nothing(
    tmp_path: Path, timeouts: Timeouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = Cancellation(timeouts, 120_000)
    looks: list[Path] = []

    def statvfs(path: Path, real: Any = os.statvfs) -> Any:
        looks.append(path)
        return real(path)

    monkeypatch.setattr("rtolap.query.spills.folder.os.statvfs", statvfs)
    options: dict[str, Any] = {"spill_folder": str(tmp_path / "spill"), "spill_free_bytes_min": 1 << 60}
    with WorkerPool(MEMORY_BYTES, 1, 1, Metrics("query"), **options) as workers:
        session = workers.session(ending)
        session.register("r", pa.table({"a": list(range(1_000))}))
        wait_until(lambda: len(looks) > 3)
        assert session.value("SELECT count(*) FROM r AS x, r AS y", {}) == 1_000_000
        session.close()
    ending.close()


def test_a_pool_that_is_closed_leaves_no_process_and_no_spill(tmp_path: Path, timeouts: Timeouts) -> None:
    gone = tmp_path / "spill" / "worker-999999999"
    gone.mkdir(parents=True)
    ending = Cancellation(timeouts, 120_000)
    workers = WorkerPool(MEMORY_BYTES, 1, 2, Metrics("query"), spill_folder=str(tmp_path / "spill"))
    assert not gone.exists()
    running = workers.session(ending)
    assert running.value("SELECT 1", {}) == 1
    server = workers.fork_server_pid
    pids = [*workers.workers()["working"], *workers.workers()["idle"]]
    assert server is not None
    workers.close()
    with pytest.raises(Unavailable):
        running.value("SELECT 1", {})
    running.close()
    with pytest.raises(Unavailable, match="is being stopped"):
        workers.session(ending)
    wait_until(lambda: not any(map(is_alive, (server, *pids))))
    assert not list((tmp_path / "spill").iterdir())
    ending.close()


def test_the_bound_leaves_room_beside_the_engines_own_limit() -> None:
    assert pool.bound_bytes(1 << 30) == (2 << 30) + (64 << 20)
