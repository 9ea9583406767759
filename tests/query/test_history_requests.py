"""What a remote store is asked for, statement by statement: nothing twice, and segments beside each other."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rtolap.metadata.merging.units import HistoryUnit
from rtolap.query.cubes import history_coded, history_partials, history_rows
from rtolap.query.cubes.byte_bounded import ByteBounded
from rtolap.query.cubes.history import MemoryBounds
from rtolap.query.cubes.history_choices import SEGMENTS_AT_ONCE, Choice, Choices
from rtolap.query.cubes.history_files import HistoryFile, ParquetFooters
from rtolap.query.cubes.history_rows import HistoryRows
from rtolap.query.statement_service import QueryService
from rtolap.scan import folds, group_scan

from tests.query.test_merged_answer import rows_of
from tests.support.cubes.flights import flights_world
from tests.support.cubes.watched_store import watched_store
from tests.support.query.query_world import QueryWorld

WAIT_S = 10.0
NO_RESULTS = MemoryBounds(result_bytes=0)
STATEMENTS = (
    "select day_start, count(*) n, sum(price) s from flights group by day_start order by day_start",
    "select gate, count(*) n, min(delay) m from flights where carrier = 'AA' and ts >= '2013-01-02' "
    "group by gate order by gate",
    "select carrier, approx_count_distinct(passenger) n from flights group by carrier order by carrier",
    "select count(*) n from flights where gate > 100",
)
FURTHER = "select day_start, sum(delay) s from flights group by day_start order by day_start"


class Remote:
    """Counts requests by path. `meet`: how many segments' data have to be asked for before one is given."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.meet = 1
        self._changed = threading.Condition()
        self._segments: set[str] = set()

    def __call__(self, path: str) -> None:
        with self._changed:
            self.requests[Path(path).name] += 1
            if path.endswith(".parquet"):
                self._segments.add(path.split("/")[-4])
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: len(self._segments) >= self.meet, WAIT_S), "one by one"

    def taken(self) -> Counter[str]:
        with self._changed:
            taken, self.requests = self.requests, Counter()
            self._segments.clear()
            return taken


@pytest.fixture(scope="module")
def built() -> Iterator[QueryWorld]:
    """All of its segments are in history."""
    with closing(flights_world(7, 800)) as made:
        for segment in made.segments("flights"):
            if segment.name not in made.built["flights"]:
                made.build(segment, random.Random(7), "flights")
        yield made


@pytest.fixture
def remote() -> Remote:
    return Remote()


@pytest.fixture
def far(built: QueryWorld, remote: Remote, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryService]:
    store = watched_store(Path(built.store.root), remote)
    with monkeypatch.context() as patch:
        patch.setattr(built, "store", store)
        made = built.service()
    with closing(made):
        yield made


def files_with_rows(world: QueryWorld, cuboid: str) -> int:
    records = [record for record in world.metadata.segments("flights").values() if record.version > 0]
    folders = [Path(world.store.absolute(f"{record.location}/{cuboid}")) for record in records]
    return sum(pq.read_metadata(file).num_rows > 0 for folder in folders for file in folder.iterdir())


def test_a_statement_asks_for_what_none_before_it_has_read(
    built: QueryWorld, remote: Remote, far: QueryService
) -> None:
    segments, files = len(built.built["flights"]), files_with_rows(built, "day_start")
    first = far.execute(STATEMENTS[0]).table()
    asked = remote.taken()
    assert asked["manifest.json"] == 3 * segments, "opened, read, and read to its end"
    # Of each file: the whole for its checksum, and its footer, three requests each; and the rows.
    assert asked["part-0.parquet"] + asked["part-1.parquet"] <= 2 * 6 * segments + 3 * files
    assert far.execute(STATEMENTS[0]).table().equals(first)
    assert remote.taken().total() == 0, "the columns are in memory"
    far.execute(FURTHER).table()
    asked = remote.taken()
    assert set(asked) <= {"part-0.parquet", "part-1.parquet"}
    assert asked.total() == 2 * files, "opened, and one column read"


def test_an_explain_of_what_was_read_asks_for_nothing(remote: Remote, far: QueryService) -> None:
    far.execute(STATEMENTS[0]).table()
    remote.taken()
    far.execute(f"explain {STATEMENTS[0]}").table()
    assert remote.taken().total() == 0


def test_segments_of_a_remote_store_are_read_beside_each_other(remote: Remote, far: QueryService) -> None:
    far.execute(STATEMENTS[0]).table()
    remote.taken()
    remote.meet = SEGMENTS_AT_ONCE
    far.execute(FURTHER).table()


@pytest.mark.parametrize("sql", STATEMENTS)
def test_files_in_memory_and_files_that_have_no_room_there_give_the_same_answer(
    sql: str, built: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(built.service()) as service:
        expected = rows_of(service.execute(sql).table(), in_order=True)
        assert rows_of(service.execute(sql).table(), in_order=True) == expected, "its result is kept"
    for small_rows in (history_rows.SMALL_ROWS, 0):
        monkeypatch.setattr(history_rows, "SMALL_ROWS", small_rows)
        for bounds in (NO_RESULTS, MemoryBounds(0, 0, 0)):
            with closing(built.service(bounds=bounds)) as service:
                for _ in range(2):
                    assert rows_of(service.execute(sql).table(), in_order=True) == expected
        monkeypatch.setattr(history_partials, "RAW_ROWS", 5)
        monkeypatch.setattr(history_partials, "GROUPED_ROWS", 3)
        monkeypatch.setattr(history_coded, "PENDING_BYTES_MAX", 100)
        monkeypatch.setattr(group_scan, "BLOCK_ROWS", 7)
        monkeypatch.setattr(folds, "SLOTS_MAX", 1)
        monkeypatch.setattr(folds, "HASHED_ROWS", 5)


@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_kept_result_stands_for_its_versions_and_no_others(sql: str) -> None:
    rng = random.Random(3)
    with closing(flights_world(3, 400)) as world, closing(world.service()) as service:
        service.execute(sql).close()
        fresh = [each for each in world.segments("flights") if each.name not in world.built["flights"]]
        replaced = [each for each in world.segments("flights") if each not in fresh][3:5]
        for segment in (*fresh[:2], *replaced):
            version = 1 if segment in fresh else 2
            world.build(segment, rng, "flights", version=version, events_max=1)
            with closing(world.service(bounds=MemoryBounds(0, 0, 0))) as forgetful:
                plain = forgetful.execute(sql)
                expected = rows_of(plain.table(), in_order=True)
            again = service.execute(sql)
            assert rows_of(again.table(), in_order=True) == expected
            (done,), (same,) = again.stats, plain.stats
            assert (done.history_segments, done.cuboids) == (same.history_segments, same.cuboids)


@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_remote_store_and_a_disk_answer_alike(sql: str, built: QueryWorld, far: QueryService) -> None:
    with closing(built.service()) as near:
        expected = near.execute(sql)
        rows = rows_of(expected.table(), in_order=True)
        for _ in range(2):
            outcome = far.execute(sql)
            assert rows_of(outcome.table(), in_order=True) == rows
            (done,), (same,) = outcome.stats, expected.stats
            assert (done.rows_read, done.rows_pruned) == (same.rows_read, same.rows_pruned)
            assert (done.cuboids, done.files_remote) == (same.cuboids, same.files_remote)


def test_an_error_of_one_segment_is_the_statements_and_the_next_one_is_answered(
    built: QueryWorld, remote: Remote, far: QueryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = far.execute(STATEMENTS[0]).table()
    choose_known = Choices._choose  # a segment in the midst of them fails
    failing = sorted(built.built["flights"])[5]

    def choose(choices: Choices, rows: HistoryRows, unit: HistoryUnit, known: dict[str, Choice]) -> Choice:
        if unit.records[0].name == failing:
            raise ValueError("planted")
        return choose_known(choices, rows, unit, known)

    with monkeypatch.context() as patch:
        patch.setattr(Choices, "_choose", choose)
        with pytest.raises(ValueError, match="planted"):
            far.execute(STATEMENTS[0])
    assert far.execute(STATEMENTS[0]).table().equals(expected)


def test_statements_that_begin_at_once_over_nothing_in_memory_are_all_answered_right(
    built: QueryWorld,
) -> None:
    with closing(built.service()) as service:
        expected = {sql: rows_of(service.execute(sql).table(), in_order=True) for sql in STATEMENTS}
    for _ in range(3):
        with closing(built.service(bounds=NO_RESULTS)) as service, ThreadPoolExecutor(8) as pool:
            begun = [
                (sql, pool.submit(lambda sql=sql: service.execute(sql).table())) for sql in STATEMENTS * 2
            ]
            for sql, future in begun:
                assert rows_of(future.result(WAIT_S * 3), in_order=True) == expected[sql]


def test_what_is_kept_is_bounded_in_bytes() -> None:
    values: ByteBounded[str] = ByteBounded(100)
    for number in range(10):
        values.keep(str(number), "x", 30)
        values.find("0")
        assert values.used_bytes <= 100
    assert values.find("0") == "x", "it was used"
    assert values.find("7") is None
    values.keep("0", "y", 101)
    assert values.find("0") is None, "larger than all there may be"
    values.discard("9")
    values.discard("9")
    assert values.used_bytes == 30


def test_footers_beyond_the_bound_are_read_again(built: QueryWorld) -> None:
    record = next(record for record in built.metadata.segments("flights").values() if record.version > 0)
    folder = Path(built.store.absolute(f"{record.location}/day_start"))
    remote = Remote()
    store = watched_store(folder, remote)
    first, second = (
        HistoryFile(store.fs, str(folder / name), (folder / name).stat().st_size)
        for name in ("part-0.parquet", "part-1.parquet")
    )
    footers = ParquetFooters(bytes_max=footer_bytes(first) + footer_bytes(second) - 1)
    for file in (first, first, second, first):
        footers.footer(file)
    asked = remote.taken()
    assert asked["part-0.parquet"] == 2 * asked["part-1.parquet"]


def footer_bytes(file: HistoryFile) -> int:
    size: int = pq.read_metadata(file.path).serialized_size
    return size
