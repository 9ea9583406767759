"""Partial rows of history beyond the memory of a statement go to the disk, and the answer stays exact."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import OverBudget, QueryInterrupted, TooLittleDisk, Unavailable
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.cubes import history_partials, history_rows
from rtolap.query.cubes.history import EmbeddedHistory, MemoryBounds
from rtolap.query.memory_budget import HISTORY, BudgetLimits, MemoryBudget
from rtolap.query.plan import CubeRead, ReadStats, TimeRange
from rtolap.query.spills import folder
from rtolap.query.spills.folder import Spills
from rtolap.query.spills.tables import SpilledTable

from tests.support.query.on_spark.drawn_reads import difference, drawn_history, drawn_read
from tests.support.query.on_spark.scanned_history import SCHEMA, make_history
from tests.support.query.oracles.sql_oracle import rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.scrape import Scrape
from tests.support.seeds import so_many
from tests.support.waiting import until

READS = 20  # of one drawn history
TIMEOUT_MS = 600_000
BOUNDS = (1, 3_000, 20_000)
GROUPS = CubeRead(SCHEMA, "__relation_scanned", ("kind", "host"), ("__rows", "bytes__sum"), None, TimeRange())
SQL = "select carrier, gate, count(*), sum(price), avg(weight), count(distinct passenger) from flights"


@pytest.fixture(scope="module")
def timeouts() -> Iterator[Timeouts]:
    with closing(Timeouts(SystemClock())) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    made = open_store((tmp_path / "store").as_uri())
    made.claim()
    return made


@pytest.fixture
def spills(tmp_path: Path) -> Spills:
    made = Spills(tmp_path / "spill", 0)
    made.clear_left()
    return made


@pytest.fixture
def ending(timeouts: Timeouts) -> Iterator[Cancellation]:
    with closing(Cancellation(timeouts, TIMEOUT_MS)) as made:
        yield made


def opened(store: ObjectStore, bytes_max: int, spills: Spills | None, file_bytes: int = 0) -> EmbeddedHistory:
    bounds = MemoryBounds(file_bytes, column_bytes=0, result_bytes=0, statement_bytes=bytes_max)
    return EmbeddedHistory(store, None, bounds, spills=spills)


def in_memory(table: pa.Table | SpilledTable) -> pa.Table:
    if isinstance(table, SpilledTable):
        table.seal()
        return table.mapped()
    return table


def spilled_files() -> list[str]:
    """Return the open or mapped files of this process that lie in a spill folder."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found.append(os.readlink(descriptor))
        except FileNotFoundError:  # of the listing itself
            continue
    found += Path("/proc/self/maps").read_text().splitlines()
    return [each for each in found if "/spill/service-" in each]


@pytest.mark.seeded
@pytest.mark.parametrize("file_bytes", [0, 64 << 20], ids=("by rows", "by codes"))
def test_drawn_reads_that_spill_at_every_step_give_what_memory_gives(
    store: ObjectStore,
    spills: Spills,
    ending: Cancellation,
    monkeypatch: pytest.MonkeyPatch,
    file_bytes: int,
) -> None:
    monkeypatch.setattr(history_rows, "PIECE_ROWS", 16)
    monkeypatch.setattr(history_rows, "SKETCH_ROWS", 8)
    monkeypatch.setattr(history_rows, "SMALL_ROWS", 40)  # of some files, so that both kinds are in one read
    spilled = in_pieces = 0
    account = MemoryBudget().account("")
    for seed in range(so_many(3, 30)):
        rng = random.Random(seed)
        segments = drawn_history(rng, store, f"s{seed}")
        for number in range(READS):
            read = drawn_read(rng)
            with closing(opened(store, 1 << 30, None, file_bytes)) as unbounded:
                wanted = unbounded.read(read, segments, ReadStats(read.cube), ending, account)
            assert isinstance(wanted, pa.Table)
            stats = ReadStats(read.cube)
            with closing(opened(store, rng.choice(BOUNDS), spills, file_bytes)) as bounded:
                found = bounded.read(read, segments, stats, ending, account)
            spilled += isinstance(found, SpilledTable)
            in_pieces += isinstance(found, SpilledTable) and len(found_batches(found)) > 1
            assert isinstance(found, SpilledTable) == (stats.spilled_bytes > 0)
            assert account.reserved_bytes == 0
            said = difference(read, in_memory(found), wanted)
            assert not said, f"seed {seed}, read {number}: {said}"
    assert spilled > READS
    assert in_pieces > READS


def found_batches(table: SpilledTable) -> list[pa.RecordBatch]:
    return in_memory(table).to_batches()


def test_every_group_has_one_row_where_the_parts_fit_the_bound(
    store: ObjectStore, spills: Spills, ending: Cancellation
) -> None:
    segments = make_history(store, files=4, rows=60_000)
    stats, account = ReadStats("scanned"), MemoryBudget().account("")
    with closing(opened(store, 1 << 20, spills)) as history:
        found = history.read(GROUPS, segments, stats, ending, account)
    assert isinstance(found, SpilledTable)
    table = in_memory(found)
    keys = table.group_by(["kind", "host"]).aggregate([("__rows", "sum")])
    assert keys.num_rows == table.num_rows
    assert sum(keys.column("__rows_sum").to_pylist()) == 240_000
    assert stats.spilled_bytes > table.nbytes


READ = """
import pickle, sys
from pathlib import Path
import pyarrow as pa
from rtolap.query.cubes import history_rows
from tests.query.test_history_spills import *

root, bytes_max = Path(sys.argv[1]), int(sys.argv[2])
history_rows.PIECE_ROWS = 8_192
segments = pickle.loads((root / "segments").read_bytes())
ending = Cancellation(Timeouts(SystemClock()), TIMEOUT_MS)
history = opened(open_store((root / "store").as_uri()), bytes_max, Spills(root / "spill", 0))
found = history.read(GROUPS, segments, ReadStats("scanned"), ending, MemoryBudget().account(""))
print(pa.default_memory_pool().max_memory(), isinstance(found, SpilledTable), flush=True)
"""


def peak_of(root: Path, bytes_max: int) -> tuple[int, str]:
    """Return the highest memory of Arrow in a process that reads the history, and whether it has spilled."""
    argv = [sys.executable, "-c", READ, str(root), str(bytes_max)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peak, spilled = done.stdout.split()
    return int(peak), spilled


def test_a_history_several_times_larger_than_the_bound_is_merged_within_it(
    store: ObjectStore, spills: Spills, tmp_path: Path, ending: Cancellation
) -> None:
    rows, bound_bytes = 12 * 60_000, 2 << 20
    segments = make_history(store, files=12, rows=60_000)
    (tmp_path / "segments").write_bytes(pickle.dumps(segments))
    (bounded, spilled), (unbounded, held) = (peak_of(tmp_path, size) for size in (bound_bytes, 1 << 30))
    assert (spilled, held) == ("True", "False")
    assert rows * 36 > 10 * bound_bytes  # of the columns that are read
    # Some pieces that are decoded beside the one that is merged come to the bound.
    assert bounded < 6 * bound_bytes < unbounded / 2
    account = MemoryBudget().account("")
    with closing(opened(store, bound_bytes, spills)) as history:
        found = history.read(GROUPS, segments, ReadStats("scanned"), ending, account)
    with closing(opened(store, 1 << 30, None)) as whole:
        wanted = whole.read(GROUPS, segments, ReadStats("scanned"), ending, account)
    order = [("kind", "ascending"), ("host", "ascending")]
    assert in_memory(found).sort_by(order).equals(in_memory(wanted).sort_by(order))


def test_without_a_folder_a_read_beyond_the_bound_is_refused_by_name(
    store: ObjectStore, ending: Cancellation
) -> None:
    segments = make_history(store, files=2, rows=20_000)
    account = MemoryBudget().account("")
    with (
        closing(opened(store, 100_000, None)) as history,
        pytest.raises(OverBudget, match="groups of a read of history") as caught,
    ):
        history.read(GROUPS, segments, ReadStats("scanned"), ending, account)
    said = str(caught.value)
    assert "RTOLAP_HISTORY_STATEMENT_BYTES_MAX" in said
    assert "RTOLAP_QUERY_SPILL_FOLDER" in said
    assert "rtolap_engine = spark" in said
    assert account.reserved_bytes == 0


def test_a_read_whose_room_others_have_spills_before_its_bound(
    store: ObjectStore, spills: Spills, ending: Cancellation
) -> None:
    segments = make_history(store, files=2, rows=20_000)
    budget = MemoryBudget(BudgetLimits(1 << 30, 1 << 30, 1 << 20, 0))
    other, account = budget.account("other"), budget.account("this")
    other.reserve(HISTORY, (1 << 20) - 10_000)
    with closing(opened(store, 1 << 30, spills)) as history:
        found = history.read(GROUPS, segments, ReadStats("scanned"), ending, account)
    assert isinstance(found, SpilledTable)
    assert sum(in_memory(found).column("__rows").to_pylist()) == 40_000


class Disk(NamedTuple):
    f_frsize: int
    f_bavail: int


def test_a_full_disk_and_one_with_too_little_free_are_named_and_nothing_stays(
    store: ObjectStore, spills: Spills, tmp_path: Path, ending: Cancellation, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = make_history(store, files=2, rows=20_000)
    account = MemoryBudget().account("")

    def read(to: Spills) -> None:
        with closing(opened(store, 100_000, to)) as history:
            history.read(GROUPS, segments, ReadStats("scanned"), ending, account)

    real, written = os.write, [0]

    def write(descriptor: int, data: Any) -> int:
        if "/spill/" not in os.readlink(f"/proc/self/fd/{descriptor}"):
            return real(descriptor, data)
        if written[0] > 200_000:
            raise OSError(failure, os.strerror(failure))
        written[0] += len(data)
        return real(descriptor, data)

    with monkeypatch.context() as patched:
        patched.setattr("rtolap.query.spills.tables.os.write", write)
        failure = errno.ENOSPC
        with pytest.raises(TooLittleDisk, match=r"spill is full.*RTOLAP_QUERY_SPILL_FOLDER"):
            read(spills)
        failure = errno.EIO
        with pytest.raises(Unavailable, match=r"cannot be written.*RTOLAP_QUERY_SPILL_FOLDER"):
            read(spills)
    with monkeypatch.context() as patched:
        free = itertools.count(1 << 20, -5_000)  # with each look others have written some more
        patched.setattr("rtolap.query.spills.folder.os.statvfs", lambda path: Disk(1, next(free)))
        with pytest.raises(TooLittleDisk, match="more of the disk than it may have"):
            read(Spills(tmp_path / "spill", (1 << 20) - 150_000))
    (tmp_path / "plain").write_text("no folder")
    with pytest.raises(OverBudget, match=r"spill folder takes no file.*RTOLAP_QUERY_SPILL_FOLDER"):
        read(Spills(tmp_path / "plain", 0))
    gc.collect()
    assert not spilled_files()
    assert account.reserved_bytes == 0


def test_a_statement_that_is_ended_in_mid_read_leaves_nothing_on_the_disk(
    store: ObjectStore, spills: Spills, timeouts: Timeouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = make_history(store, files=4, rows=20_000)
    account = MemoryBudget().account("")
    with closing(Cancellation(timeouts, TIMEOUT_MS)) as killed:
        spill, spilled = history_partials.HistoryPartials._spill, []

        def spill_and_end(partials: history_partials.HistoryPartials) -> None:
            spill(partials)
            spilled.append(len(spilled_files()))
            if len(spilled) == 3:
                killed.cancel("KILL")

        monkeypatch.setattr(history_partials.HistoryPartials, "_spill", spill_and_end)
        with closing(opened(store, 100_000, spills)) as history, pytest.raises(QueryInterrupted):
            history.read(GROUPS, segments, ReadStats("scanned"), killed, account)
    assert spilled[-1] > 0
    gc.collect()
    assert not spilled_files()
    assert account.reserved_bytes == 0


SERVICE = """
import sys, time
from pathlib import Path
import pyarrow as pa
from rtolap.query.spills.folder import Spills
from rtolap.query.spills.tables import SpilledTable

spills = Spills(Path(sys.argv[1]), 0)
spills.clear_left()
table = SpilledTable(spills, pa.schema([("a", pa.int64())]))
table.write(pa.table({"a": list(range(100_000))}))
print(table.num_rows, flush=True)
time.sleep(600)
"""


def test_a_service_that_is_killed_leaves_no_file_and_the_next_one_removes_its_folder(tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    process = subprocess.Popen([sys.executable, "-c", SERVICE, str(spill)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"100000"
        assert [each.name for each in spill.iterdir()] == [f"{folder.SERVICE}{process.pid}"]
        assert not [each for each in spill.rglob("*") if each.is_file()]  # what has no name goes by itself
        Spills(spill, 0).clear_left()
        assert list(spill.iterdir())  # its service lives
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    Spills(spill, 0).clear_left()
    assert not list(spill.iterdir())


def test_statements_over_spilled_history_and_live_events_are_answered_as_without_a_bound(
    world: QueryWorld, tmp_path: Path
) -> None:
    """In workers: they map the rows where they lie, and the engine joins, sorts and counts over them."""
    statements = [
        f"{SQL} group by carrier, gate order by carrier, gate",
        "select count(distinct passenger), sum(distance) from flights",
        "select a.carrier, count(*) from flights a join (select carrier, max(price) m from flights "
        "group by carrier) b on a.carrier = b.carrier group by a.carrier order by 1",
    ]
    spills = Spills(tmp_path / "spill", 0)
    bounds = MemoryBounds(result_bytes=0, statement_bytes=1_000)
    with (
        closing(world.service()) as memory,
        closing(world.service(in_workers=True, bounds=bounds, spills=spills)) as service,
    ):
        for sql in statements:
            assert rows_of(service.execute(sql).table()) == rows_of(memory.execute(sql).table()), sql
        metrics = Scrape(service.metrics.registry.render()[0].decode())
        assert metrics("rtolap_query_history_spilled_bytes_total", cube="flights") > 0
        told = service.execute(f"explain analyze {statements[0]}").table().to_pylist()
        (spilled,) = [row["value"] for row in told if row["item"] == "history spilled"]
        assert int(spilled.removesuffix(" bytes")) > 0
    until(lambda: gc.collect() >= 0 and not spilled_files(), "the end of spilled files")
    assert not list((tmp_path / "spill").glob("service-*"))
