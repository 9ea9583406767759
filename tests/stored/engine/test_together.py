"""Loads, publishes, readers and compaction at the same time, in threads; and copies to other replicas."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rtolap.base.errors import StaleSnapshot
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable, TableModel
from rtolap.stored.engine.copying import Arriving, complete, filling, write_whole
from rtolap.stored.engine.disk import RealDisk
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.tablet import Tablet

from tests.support.stored.stored_in_process import UnsyncedDisk
from tests.support.waiting import until

VERSIONS, ROWS = 16, 40
SETTINGS = TabletSettings(block_rows=16, compaction_files_min=3, merge_rows_max=64)
MODELS: tuple[TableModel, ...] = ("duplicate", "aggregate", "unique")


def table(model: TableModel) -> StoredTable:
    function = {"aggregate": "SUM"}.get(model)
    columns = (StoredColumn("id", "bigint"), StoredColumn("n", "bigint", aggregate=function))  # type: ignore[arg-type]
    return StoredTable(database="d", name="t", model=model, keys=("id",), columns=columns)


def load(tablet: Tablet, txn: int) -> None:
    """The same ids each time, with the number of the transaction."""
    transaction = tablet.begin(txn)
    transaction.add_rows(
        pa.record_batch({"id": pa.array(range(ROWS)), "n": pa.array([txn] * ROWS, pa.int64())})
    )
    transaction.prepare()


def holds(model: TableModel, version: int) -> tuple[int, int]:
    """(rows, sum of n) after that many transactions."""
    total = version * (version + 1) // 2
    match model:
        case "duplicate":
            return version * ROWS, total * ROWS
        case "aggregate":
            return (ROWS, total * ROWS) if version else (0, 0)
        case "unique":
            return (ROWS, version * ROWS) if version else (0, 0)


def found(batches: list[pa.RecordBatch]) -> tuple[int, int]:
    return (
        sum(batch.num_rows for batch in batches),
        sum(pc.sum(batch.column("n")).as_py() or 0 for batch in batches),
    )


@pytest.mark.parametrize("model", MODELS)
def test_readers_see_whole_versions_while_others_load_publish_and_compact(
    tmp_path: Path, model: TableModel
) -> None:
    # A disk that syncs would have readers read the same version again and again meanwhile.
    tablet = Tablet.create(tmp_path / "t", initial_schema(table(model)), SETTINGS, UnsyncedDisk())
    done = threading.Event()
    errors: list[BaseException] = []
    reads: list[int] = []

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 – for the thread of the test
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def read() -> None:
        while not done.is_set():
            with tablet.pin() as snapshot:
                first = found(list(snapshot.read()))
                assert first == holds(model, snapshot.version), snapshot.version
                assert found(list(snapshot.read())) == first
                reads.append(snapshot.version)

    def compact() -> None:
        while not done.wait(0.001):
            tablet.compact()

    others = [guarded(read), guarded(read), guarded(compact)]
    for version in range(1, VERSIONS + 1):
        load(tablet, version)
        tablet.publish(version, version)
        until(lambda wanted=version: errors or wanted in reads, "a reader of each version", poll_s=0.001)
    until(lambda: errors or tablet.status().floor > 0, "a version that was compacted")
    done.set()
    for thread in others:
        thread.join(60)
    assert not errors, errors
    assert set(reads) >= set(range(1, VERSIONS + 1))
    assert tablet.status().floor > 0
    tablet.close()
    again = Tablet.open(tmp_path / "t", SETTINGS)
    with again.pin() as snapshot:
        assert found(list(snapshot.read())) == holds(model, VERSIONS)
    again.close()


def test_files_of_a_pinned_version_stay_until_nobody_reads_it(tmp_path: Path) -> None:
    root = tmp_path / "t"
    tablet = Tablet.create(root, initial_schema(table("unique")), SETTINGS)
    for version in range(1, 4):
        load(tablet, version)
        tablet.publish(version, version)
    first, second = tablet.pin(2), tablet.pin(3)
    assert tablet.compact()
    assert {path.name for path in (root / "rowsets").iterdir()} == {"v1", "v2", "v3", "c1"}
    assert found(list(first.read())) == holds("unique", 2)
    first.close()
    assert {path.name for path in (root / "rowsets").iterdir()} == {"v1", "v2", "v3", "c1"}
    assert found(list(second.read())) == holds("unique", 3)
    second.close()
    assert {path.name for path in (root / "rowsets").iterdir()} == {"c1"}
    with pytest.raises(StaleSnapshot):
        tablet.pin(2)
    tablet.close()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("compacted", [False, True])
def test_a_copy_reads_as_its_source_at_every_version_it_has(
    tmp_path: Path, model: TableModel, compacted: bool
) -> None:
    schema = initial_schema(table(model))
    source, copy = (Tablet.create(tmp_path / name, schema, SETTINGS) for name in ("source", "copy"))
    for each in (source, copy):
        load(each, 1)
        each.publish(1, 1)
    load(copy, 99)  # prepared, and not among the versions
    for version in range(2, 7):
        load(source, version)
        source.publish(version, version)
    while compacted and source.compact():
        pass
    with source.export(copy.version) as export:
        arriving = Arriving(export.chunks())
        assert (arriving.manifest.state is not None) == compacted
        if compacted:
            disk, root = RealDisk(), tmp_path / "whole"
            state = write_whole(disk, root, arriving)
            copy.close()
            complete(disk, root, state, copy.prepared_files, tmp_path / "copy", SETTINGS.log_bytes_max)
            copy = Tablet.open(root, SETTINGS)
        for version in arriving.manifest.versions:
            copy.begin(version.txn).adopt(filling(arriving, version))
            copy.publish(version.txn, version.version)
    assert copy.status().prepared == (99,)
    for version in range(copy.status().floor, 7):
        with copy.pin(version) as snapshot:
            assert found(list(snapshot.read())) == holds(model, version)
    copy.publish(99, 7)
    source.close()
    copy.close()
