"""What a client may send costs no more than its length, and every kind of statement can be ended."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from rtolap.base.errors import QueryError, QueryTimeout, RtolapError, Unavailable
from rtolap.query.approval import bounds
from rtolap.query.cancel import Cancellation
from rtolap.query.http import answers
from rtolap.query.memory_budget import MemoryBudget
from rtolap.query.sql.parser import parse
from rtolap.query.statement_outcome import StatementOutcome
from rtolap.query.statement_service import QueryLimits, QueryService
from rtolap.query.statements.classify import Kill, Query, UseDatabase, classify, is_diagnostic, kill_of, plain
from rtolap.query.statements.show_answers import Shows
from rtolap.query.statements.shows import Show, show_of
from rtolap.query.statements.sql_session import SqlSession

from tests.support.hostile.hostile_texts import STATEMENT_BEGINNINGS
from tests.support.query.query_world import QueryWorld
from tests.support.query.workers import is_alive, is_asked, wait_until, worker_pids
from tests.support.waiting import patience_s

WAIT_S = 60.0
LOOK_S = 30.0  # for what takes a second at most on an idle machine, and minutes if it is quadratic
LENGTH = bounds.STATEMENT_BYTES_MAX
SLOW = (
    *("use a" + " " * 60_000 + "b", "use a" + " " * (LENGTH - 6) + "b", "kill 1" + " " * (LENGTH - 7) + "x"),
    *("/*!" * 100_000, "/*! ' " * 90_000, "/*" * 400_000, "/**" * 300_000, "kill query " + "9" * 900_000),
    *("set a" + " " * 900_000, "explain" + " " * 900_000 + "x", "show count" + " " * 900_000 + "x"),
    *("show tables" + " " * 900_000 + "x", "describe " + "a" * 900_000, "describe a." + " " * 900_000),
    *("show columns from `" + "a" * 900_000, "#" * 900_000, "-- " * 300_000, "'" * 900_000, "\\" * 900_000),
    *("select " + "(" * 50_000, "select " + "(" * 900_000, "select " + "not " * 200_000 + "1"),
    *("select 1 where " + " or ".join(["a = 1"] * 70_000), "select " + "- " * 9_000 + "1"),
    *(
        "select " + "case when " * 9_000,
        "select " + "1," * 500_000 + "1",
        "select '" + "a b, " * 180_000 + "'",
    ),
    *("select " + "a." * 400_000, "with " + "a as (" * 5_000, "select 1 " + "union select 1 " * 4_000),
    *("create table " + "a" * 900_000, "create table t (" * 60_000, "{{" * 400_000, "@" * 900_000),
)
ALPHABET = (
    *STATEMENT_BEGINNINGS,
    *("(", ")", "'", '"', "`", "\\", "/*", "/*!", "*/", "--", "-- ", "#", ";", ",", ".", "@@", "?", ":", "="),
    *(
        " ",
        "\n",
        "\t",
        "a",
        "1",
        "1e",
        "0x",
        "case ",
        "when ",
        " or ",
        " and ",
        " like ",
        "é",
        "\0",
        "interval ",
    ),
)


def look_at(sql: str, shows: Shows) -> None:
    """What every server does with a text before it is run."""
    try:
        text = plain(sql)
        is_diagnostic(text)
        request = classify(text, "shop")
        if isinstance(request, Show):
            shows.answer(request, SqlSession(0, "", ""))
        if isinstance(request, Query):
            parse(text)
    except RtolapError:
        return


@pytest.fixture(scope="module")
def shows(service: QueryService) -> Shows:
    return Shows(service, tuple)


@pytest.mark.parametrize("sql", SLOW, ids=range(len(SLOW)))
def test_no_text_takes_longer_than_its_length_allows(sql: str, shows: Shows) -> None:
    began_s = time.process_time()
    look_at(sql, shows)
    assert time.process_time() - began_s < LOOK_S


@pytest.mark.parametrize("seed", range(12))
def test_random_texts_are_looked_at_in_time_and_raise_nothing_unexpected(seed: int, shows: Shows) -> None:
    rng = random.Random(seed)
    began_s = time.process_time()
    for _ in range(15):
        pieces = rng.sample(ALPHABET, rng.randint(1, 4))
        text = "".join(rng.choice(pieces) * rng.choice((1, 3, 1_000)) for _ in range(rng.randint(1, 12)))
        look_at(text, shows)
    assert time.process_time() - began_s < LOOK_S


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("/*!40101 set names utf8 */", "set names utf8 "),
        ("-- c\n# d\n/* e */ select 1", "select 1"),
        ("select '/*! a */' /*! , 2 */ /* /*! */", "select '/*! a */' , 2  /* /*! */"),
        ("select 1 /*!40001 SQL_NO_CACHE */ + 2", "select 1 SQL_NO_CACHE  + 2"),
        ("/*! nothing closes it", "/*! nothing closes it"),
    ],
)
def test_conditional_comments_count_where_they_are_comments(sql: str, expected: str) -> None:
    assert plain(sql) == expected


def test_control_statements_are_read() -> None:
    assert classify("use `shop` ;", None) == UseDatabase("`shop`")
    assert classify("use a b", None) == Query("use a b")
    assert kill_of("KILL QUERY 12;") == Kill("query", 12)
    assert kill_of("kill 12 ;") == kill_of("kill connection 12") == Kill("connection", 12)
    assert kill_of("kill query") is kill_of("kill 1 2") is None
    assert kill_of("kill " + "9" * 5_000) is None


def test_lists_of_values_are_answered(service: QueryService) -> None:
    values = ", ".join(f"'{number}'" for number in range(500))
    table = service.execute(f"select count(*) n from flights where carrier in ({values})").table()
    assert table.column("n").to_pylist() == [0]


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from flights where " + " or ".join(f"gate = {n}" for n in range(3_000)),
        "select count(*) from flights where " + " or ".join(f"gate = {n}" for n in range(50_000)),
        "select " + "(" * 65 + "1" + ")" * 65,
        "select " + "case when 1 then " * 65 + "1" + " end" * 65,
    ],
)
def test_what_is_too_large_is_refused_before_it_is_parsed(sql: str, service: QueryService) -> None:
    with pytest.raises(QueryError, match=r"too many parts|too deeply nested"):
        service.execute(sql)


@pytest.mark.parametrize("repeated", ["gate = 1 + ", "gate - ", "not ", "gate * ", "gate = ", "- "])
def test_what_is_too_deep_for_the_rules_is_an_error_of_the_statement(
    repeated: str, service: QueryService
) -> None:
    with pytest.raises(QueryError, match="too deeply nested"):
        service.execute("select count(*) n from flights where " + repeated * 500 + "1")


@pytest.mark.parametrize("joined", [" or ", " and "])
def test_chains_of_conditions_are_answered(joined: str, service: QueryService) -> None:
    condition = joined.join(f"gate = {number}" for number in range(150))
    assert service.execute(f"select count(*) n from flights where {condition}").table().num_rows == 1


ASKED: dict[str, Callable[[QueryService, Cancellation], object]] = {
    "a query": lambda service, ending: service.execute("select 1 as x", (), ending),
    "a folded constant": lambda service, ending: service.execute(
        "select count(*) n from flights where gate = 1 + length('a')", (), ending
    ),
    "PREPARE": lambda service, ending: service.describe("select 1 as x", ending),
    "a SHOW with a condition": lambda service, ending: service.filtered(
        pa.table({"a": [1]}), "where a = 1", ending
    ),
}


@pytest.fixture(scope="module")
def one_turn(world: QueryWorld) -> Iterator[QueryService]:
    """One turn, and so one worker."""
    made = world.service(QueryLimits(queries_max=1, queue_wait_s=0.05), in_workers=True)
    yield made
    made.close()


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize("how", ["killed", "timed out"])
def test_every_kind_of_statement_is_ended_takes_a_turn_and_gives_it_back(
    kind: str, how: str, one_turn: QueryService
) -> None:
    """Also while the engine hears nothing: its process stands still."""
    turn_comes_back(one_turn)
    (pid,) = worker_pids(one_turn)
    os.kill(pid, signal.SIGSTOP)
    ending = one_turn.cancellation(60_000 if how == "killed" else 300)
    with ThreadPoolExecutor(1) as client:
        waiting = client.submit(ASKED[kind], one_turn, ending)
        if how == "killed":
            wait_until(lambda: is_asked(one_turn))
            with pytest.raises(Unavailable, match="too many queries"):
                one_turn.describe("select 1 as x")
            ending.cancel("KILL QUERY")
        with pytest.raises(QueryError, match=r"KILL QUERY|took longer than 300 ms"):
            waiting.result(WAIT_S)
    if how == "timed out" and pid in worker_pids(one_turn):  # it came before the worker was asked
        os.kill(pid, signal.SIGKILL)
    turn_comes_back(one_turn)
    assert pid not in worker_pids(one_turn)
    wait_until(lambda: not is_alive(pid))
    with pytest.raises(ValueError, match="too many times"):  # there is one turn, and it is back
        one_turn._turns._admission.release("")


def turn_comes_back(service: QueryService) -> None:
    """When the worker of the statement before was replaced."""
    deadline_s = time.monotonic() + patience_s(WAIT_S)
    while True:
        try:
            service.describe("select 1 as x")
            return
        except Unavailable:
            assert time.monotonic() < deadline_s


def shown(text: str) -> Show:
    found = show_of(text)
    assert found is not None
    return found


def test_a_condition_of_show_is_bounded_as_a_query_is(shows: Shows) -> None:
    session = SqlSession(0, "", "")
    for condition in ("exists(select 1 from shown)", "read_text('/etc/passwd') = 1", "a = 1 union select 1"):
        with pytest.raises(QueryError):
            shows.answer(shown(f"show variables where {condition}"), session)
    answer = shows.answer(shown("show variables where variable_name = 'autocommit'"), session)
    assert answer.column("Value").to_pylist() == ["1"]


def test_json_of_endless_rows_is_made_piece_by_piece() -> None:
    batch = pa.record_batch([pa.array(["x" * (1 << 20)])], ["t"])
    endless_rows = StatementOutcome(batch.schema, itertools.repeat(batch))
    account = MemoryBudget().account("ann")
    pieces = itertools.islice(answers.json_pieces(endless_rows, account), 500)
    assert max(map(len, pieces)) < 2 * batch.nbytes
    assert account.reserved_bytes < 10 * batch.nbytes


@pytest.mark.parametrize("asked_ms", [None, 1_000_000, 86_400_000])
def test_no_client_has_a_statement_run_longer_than_the_service_lets_it(
    world: QueryWorld, asked_ms: int | None
) -> None:
    service = world.service(QueryLimits(statement_ms_max=50))
    ending = service.cancellation(asked_ms)

    def has_ended() -> bool:
        try:
            ending.check()
        except QueryTimeout:
            return True
        return False

    wait_until(has_ended)
    ending.close()
    service.close()
