"""The query log: what is noted is answered in SQL, to those who may see it, and is bounded on the disk."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.base.errors import QueryError
from rtolap.base.settings import Settings
from rtolap.query.plan import ReadStats
from rtolap.query.query_log.entries import SCHEMA, Asked, Ended, Entry
from rtolap.query.query_log.folder import FILES, SUFFIX, LogFolder
from rtolap.query.query_log.log import WAITING_MAX, WRITE_ENTRIES, QueryLog
from rtolap.query.query_log.texts import TEXT_CHARACTERS_MAX, cut, without_values
from rtolap.query.run import open_log
from rtolap.query.statement_service import QueryService

from tests.support.hostile.lost_sectors import small_disk
from tests.support.query.query_world import QueryWorld
from tests.support.twins.clock import ManualClock
from tests.support.waiting import until

DAY_MS = 86_400_000


def entry(text: str, user: str = "u", outcome: str = "ok", error: str = "") -> Entry:
    return Entry(Asked(text, user, "http", "rtolap"), 1_000, Ended(outcome, error, 0.0025))


def texts_of(log: QueryLog, user: str = "") -> list[str]:
    return [str(text) for text in log.table(user)["STATEMENT"].to_pylist()]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def folder_at(path: Path, clock: ManualClock, bytes_max: int = 1 << 20) -> LogFolder:
    return LogFolder(path, clock, bytes_max=bytes_max, keep_ms=10 * DAY_MS)


# --- what a statement leaves behind ------------------------------------------------------------------------


@pytest.fixture
def asked(world: QueryWorld) -> Iterator[QueryService]:
    with contextlib.closing(world.service()) as service:
        yield service


def logged(service: QueryService, columns: str) -> list[dict[str, object]]:
    """Return rows of the log, without those about the log itself."""
    sql = f"""
        select {columns} from information_schema.query_log
        where statement not like '%query_log%' order by started_at
    """
    return [
        {name.lower(): value for name, value in row.items()}
        for row in service.execute(sql).table().to_pylist()
    ]


def test_a_read_of_a_cube_is_logged_with_what_it_has_read(asked: QueryService) -> None:
    text = "select carrier, count(*) from flights where origin = 'JFK' group by carrier"
    ending = asked.cancellation(user="ann", door="mysql")
    rows = asked.execute(text, cancellation=ending).table()
    of_caller, of_work = "user_name, door, statement, outcome, error", "rows_returned, bytes_returned, cubes"
    (row,) = logged(asked, f"{of_caller}, {of_work}, `reads`, rows_read")
    assert row["statement"] == text
    assert (row["user_name"], row["door"], row["outcome"], row["error"]) == ("ann", "mysql", "ok", "")
    assert (row["rows_returned"], row["cubes"]) == (rows.num_rows, "flights")
    assert row["bytes_returned"] == rows.nbytes
    (read,) = json.loads(row["reads"])
    assert (read["cube"], read["dimensions"]) == ("flights", ["carrier", "origin"])
    assert read["cuboids"]
    assert row["rows_read"] == read["rows_read"] > 0


def test_an_error_and_an_abandoned_statement_are_logged_as_such(asked: QueryService) -> None:
    with pytest.raises(QueryError):
        asked.execute("select nothing from flights")
    asked.execute("select carrier, gate, count(*) from flights group by 1, 2").close()
    found = logged(asked, "outcome, error, elapsed_ms > 0 as took")
    assert [row["outcome"] for row in found] == ["unknown_column", "abandoned"]
    assert "nothing" in found[0]["error"]
    assert all(row["took"] for row in found)


def test_a_user_sees_own_statements_and_the_cluster_all(asked: QueryService) -> None:
    for user in ("ann", "bob", ""):
        asked.execute(f"select '{user}'", cancellation=asked.cancellation(user=user)).table()
    seen = {}
    for user in ("ann", "bob", "eve", ""):
        sql = "select statement from information_schema.query_log where statement like 'select ''%'"
        answer = asked.execute(sql, cancellation=asked.cancellation(user=user)).table()
        seen[user] = sorted(answer.column(0).to_pylist())
    assert seen == {
        "ann": ["select 'ann'"],
        "bob": ["select 'bob'"],
        "eve": [],
        "": ["select ''", "select 'ann'", "select 'bob'"],
    }


def test_bound_values_are_not_in_the_log(asked: QueryService) -> None:
    marks = ", ".join("?" * 40)
    asked.execute(f"select count(*) from flights where carrier in ({marks})", ["secret"] * 40).table()
    (row,) = logged(asked, "statement")
    assert "secret" not in str(row["statement"])
    assert str(row["statement"]).endswith(f"({marks})")


def test_the_log_is_a_table_like_others(asked: QueryService) -> None:
    asked.execute("select 1").table()
    sql = """
        select l.user_name as user_name, count(*) as n, max(l.elapsed_ms) > 0 as took,
            min(l.started_at) > '2000-01-01' as at
        from information_schema.query_log as l where l.finished_at >= l.started_at group by 1
    """
    assert asked.execute(sql).table().to_pylist() == [{"user_name": "", "n": 1, "took": True, "at": True}]
    described = asked.describe("select * from information_schema.query_log")[0]
    assert described.names == SCHEMA.names


# --- the log -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_rows_of_two_machines_are_told_apart_where_services_listen_at_all_addresses(
    host: str, clock: ManualClock
) -> None:
    names = set()
    for machine in ("m1", "m2"):
        log = open_log(Settings(host=host, machine=machine, query_log_bytes_max=0), clock)
        log.note(entry("select 1"))
        names |= set(log.table("u")["SERVICE"].to_pylist())
        log.close()
    assert names == {"m1:7090", "m2:7090"}


def test_entries_outlive_the_service(tmp_path: Path, clock: ManualClock) -> None:
    with contextlib.closing(QueryLog(folder_at(tmp_path, clock))) as log:
        log.note(entry("a"))
        log.write()
        log.note(entry("b"))
        assert texts_of(log) == ["a", "b"]  # written and not
    with contextlib.closing(QueryLog(folder_at(tmp_path, clock))) as again:
        again.note(entry("c"))
        assert texts_of(again) == ["a", "b", "c"]
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600] * len(
        list(tmp_path.iterdir())
    )


def test_a_file_that_a_kill_has_cut_anywhere_gives_its_whole_batches(
    tmp_path: Path, clock: ManualClock
) -> None:
    folder, sizes = folder_at(tmp_path, clock), []
    log = QueryLog(folder)
    for number in range(4):
        log.note(entry(f"statement {number}"))
        log.write()
        (path,) = tmp_path.iterdir()
        sizes.append(path.stat().st_size)
    whole = path.read_bytes()
    dice = random.Random(3)
    for size in (*sizes, *(dice.randrange(len(whole)) for _ in range(200))):
        path.write_bytes(whole[:size])
        found = pa.Table.from_batches(folder_at(tmp_path, clock).batches(), SCHEMA)["STATEMENT"].to_pylist()
        assert found == [f"statement {number}" for number in range(sum(size >= each for each in sizes))]
    log.close()


def test_a_file_that_its_disk_cannot_read_leaves_the_others_to_be_read(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        with contextlib.closing(QueryLog(folder_at(tmp_path / "log", clock))) as log:
            log.note(entry(f"statement {number}"))
            log.write()
        clock.advance_ms(10)
    file = sorted((tmp_path / "log").iterdir())[1]
    with small_disk(tmp_path / "mounted") as disk:
        disk.lose(file)
        with contextlib.closing(QueryLog(folder_at(tmp_path / "log", clock))) as log:
            assert texts_of(log) == ["statement 0", "statement 2"]
    assert f"the query log in {file} is not read: " in caplog.text


def test_many_entries_are_written_at_once_and_not_lost(tmp_path: Path, clock: ManualClock) -> None:
    with contextlib.closing(QueryLog(folder_at(tmp_path, clock))) as log:
        for number in range(WRITE_ENTRIES):
            log.note(entry(str(number)))
        until(lambda: any(path.stat().st_size > 0 for path in tmp_path.iterdir()), "a batch to be written")
        assert texts_of(log) == [str(number) for number in range(WRITE_ENTRIES)]


def test_notes_of_many_threads_are_each_there_once_while_it_is_written_and_read(
    tmp_path: Path, clock: ManualClock
) -> None:
    with contextlib.closing(QueryLog(folder_at(tmp_path, clock))) as log:

        def note(thread: int) -> None:
            for number in range(200):
                log.note(entry(f"{thread}:{number}"))

        threads = [threading.Thread(target=note, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            log.write()
            seen = texts_of(log)
            assert len(seen) == len(set(seen))
        assert sorted(texts_of(log)) == sorted(
            f"{thread}:{number}" for thread in range(4) for number in range(200)
        )


def test_the_folder_is_bounded_in_bytes_and_in_age(tmp_path: Path, clock: ManualClock) -> None:
    bytes_max = 64 << 10
    with contextlib.closing(QueryLog(folder_at(tmp_path, clock, bytes_max))) as log:
        for number in range(400):
            log.note(entry(f"{number} {'x' * 1_000}"))
            log.write()
            clock.advance_ms(1)
        assert (
            sum(path.stat().st_size for path in tmp_path.iterdir()) <= bytes_max + bytes_max // FILES + 2_048
        )
        kept = [int(text.split()[0]) for text in texts_of(log)]
        assert kept == list(range(kept[0], 400))
        assert len(kept) > 10
    clock.advance_ms(100_000 * DAY_MS)
    with contextlib.closing(QueryLog(folder_at(tmp_path, clock, bytes_max))) as late:
        late.write()
        assert not list(tmp_path.glob(f"*{SUFFIX}"))


def test_a_disk_that_refuses_costs_the_oldest_entries_and_is_counted(
    tmp_path: Path, clock: ManualClock
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    log = QueryLog(folder_at(blocked / "log", clock))
    for number in range(WAITING_MAX + 5):
        log.note(entry(str(number)))
    log.write()
    assert texts_of(log) == [str(number) for number in range(5, WAITING_MAX + 5)]
    assert log.dropped == 5
    blocked.unlink()
    log.write()
    assert len(texts_of(log)) == WAITING_MAX
    log.close()
    with contextlib.closing(QueryLog(folder_at(blocked / "log", clock))) as again:
        assert len(texts_of(again)) == WAITING_MAX


def test_a_file_of_other_columns_is_passed_over(tmp_path: Path, clock: ManualClock) -> None:
    other = pa.table({"STATEMENT": ["of another version"]})
    with pa.ipc.new_stream(str(tmp_path / f"0000{SUFFIX}"), other.schema) as writer:
        writer.write_table(other)
    with contextlib.closing(QueryLog(folder_at(tmp_path, clock))) as log:
        log.note(entry("a"))
        assert texts_of(log) == ["a"]


def test_texts_are_kept_as_it_is_declared() -> None:
    noted = entry("select 'secret', 17 from t", error="no column near 'secret'")
    for texts, expected in {
        "full": ("select 'secret', 17 from t", "no column near 'secret'"),
        "without_values": ("select ?, … from t", ""),
        "none": ("", ""),
    }.items():
        log = QueryLog(texts=texts)  # type: ignore[arg-type]
        log.note(noted)
        (row,) = log.table("").to_pylist()
        assert (row["STATEMENT"], row["ERROR"]) == expected


def test_no_text_of_a_client_keeps_the_log_from_being_written_or_read(
    tmp_path: Path, clock: ManualClock
) -> None:
    dice = random.Random(11)
    letters = [*"ab'?", "\0", "\n", "é", "日", "😀", "\ud800", "\udfff", "\u2028"]
    with contextlib.closing(QueryLog(folder_at(tmp_path, clock))) as log:
        for _ in range(200):
            text, user, error = ("".join(dice.choices(letters, k=dice.randrange(6))) for _ in range(3))
            log.note(entry(text, user, "query", error))
        log.note(entry("the last"))
        log.write()
        assert len(texts_of(log)) == 201
        assert texts_of(log)[-1] == "the last"


def test_a_waiting_entry_holds_no_names_of_segments() -> None:
    stats = ReadStats("flights", history_segments=tuple(f"segment {number}" for number in range(10_000)))
    held = weakref.ref(stats)
    log = QueryLog()
    log.note(Entry(Asked("select 1", "u", "http", "rtolap"), 1, Ended(took_s=0.002, reads=[stats])))
    del stats
    assert held() is None
    (row,) = log.table("").to_pylist()
    assert row["HISTORY_SEGMENTS"] == 10_000


# --- texts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select a1, `1b`, 'x''y', \"z\" from t2 limit 5", "select a1, `1b`, ?, … from t2 limit ?"),
        ("select x'ff', 0xff, 1e5, -1.5, .5 from t", "select ?, …, -?, … from t"),
        ("select 'it\\'s' /* 'gone' */ , -- gone\n 1", "select ?, …"),
        ("select a from t where b in (1, 2, 3) and c = '", "select a from t where b in (?, …) and c = ?"),
        ("select a /* no end", "select a ?"),
    ],
)
def test_values_are_left_out_of_a_text(text: str, expected: str) -> None:
    found = without_values(text)
    assert " ".join(found.split()) == " ".join(expected.split())


def test_no_part_of_a_drawn_value_is_left() -> None:
    dice = random.Random(7)
    for _ in range(500):
        value = "".join(dice.choices("ΩΩΩ'\\\"-#/*` ", k=dice.randrange(1, 12)))
        quoted = "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
        text = f"select a from t where b = {quoted} and c = 1"
        assert without_values(text) == "select a from t where b = ? and c = ?"
        assert "Ω" not in without_values(text[: dice.randrange(26, len(text))])  # as a long text is cut


def test_a_long_text_is_cut() -> None:
    assert len(cut("x" * 10_000)) == TEXT_CHARACTERS_MAX
