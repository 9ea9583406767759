"""A read compares the row groups that it needs with the manifest, each once, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import Corrupted
from rtolap.cubes.format.file_ranges import range_bounds
from rtolap.cubes.format.history import describe_file, read_manifest, write_manifest
from rtolap.cubes.format.manifest import FileEntry
from rtolap.metadata.records import SegmentRecord
from rtolap.model.predicate import Compare
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.cubes import history_rows
from rtolap.query.cubes.history import EmbeddedHistory, MemoryBounds
from rtolap.query.memory_budget import MemoryBudget
from rtolap.query.plan import CubeRead, ReadStats, TimeRange

from tests.support.query.on_spark.scanned_history import SCHEMA, make_history

ROWS, GROUPS = 20_000, 10
NOTHING_KEPT = MemoryBounds(file_bytes=0, column_bytes=0, result_bytes=0)
PART = "base/part-0.parquet"


class Ranged:
    """A version of one file with ten row groups, sorted by `host` (0 to 999).

    Attributes:
        compared: start of each range that was compared.
        whole: files that were compared as a whole.
    """

    def __init__(self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        (self.segment,) = make_history(store, files=1, rows=ROWS)
        self.location = str(self.segment.location)
        self.path = Path(store.absolute(f"{self.location}/{PART}"))
        table = pq.read_table(self.path).sort_by("host")
        pq.write_table(table, self.path, row_group_size=ROWS // GROUPS, compression="zstd")
        self.entry = describe_file(store, self.location, PART)
        self.describe(self.entry)
        self.compared: list[int] = []
        self.whole: list[str] = []
        of_range, of_file = ObjectStore.sha256_of_range, ObjectStore.sha256

        def counted_range(store: ObjectStore, path: str, start: int, size_bytes: int) -> str:
            self.compared.append(start)
            return of_range(store, path, start, size_bytes)

        def counted_file(store: ObjectStore, path: str) -> tuple[str, int]:
            self.whole.append(path)
            return of_file(store, path)

        monkeypatch.setattr(ObjectStore, "sha256_of_range", counted_range)
        monkeypatch.setattr(ObjectStore, "sha256", counted_file)
        monkeypatch.setattr(history_rows, "SMALL_ROWS", 0)  # as of large files

    @property
    def starts(self) -> list[int]:
        return [start for start, _ in range_bounds(self.entry.ranges)]

    def describe(self, entry: FileEntry) -> None:
        manifest = read_manifest(self.store, self.location)
        (cuboid,) = manifest.cuboids
        cuboid = msgspec.structs.replace(cuboid, files=(entry,))
        write_manifest(self.store, self.location, msgspec.structs.replace(manifest, cuboids=(cuboid,)))

    def damage(self, group: int) -> None:
        data = bytearray(self.path.read_bytes())
        at = self.starts[group] + self.entry.ranges[group].bytes // 2
        data[at] ^= 1
        self.path.write_bytes(data)


@pytest.fixture
def ranged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ranged:
    store = open_store((tmp_path / "store").as_uri())
    store.claim()
    return Ranged(store, monkeypatch)


@pytest.fixture
def history(ranged: Ranged) -> Iterator[EmbeddedHistory]:
    with closing(EmbeddedHistory(ranged.store, None, NOTHING_KEPT)) as made:
        yield made


@pytest.fixture(scope="module")
def timeouts() -> Iterator[Timeouts]:
    with closing(Timeouts(SystemClock())) as made:
        yield made


def rows_below(history: EmbeddedHistory, segment: SegmentRecord, host: int, timeouts: Timeouts) -> int:
    condition = Compare("host", "lt", host)
    read = CubeRead(SCHEMA, "__relation_scanned", (), ("__rows",), condition, TimeRange())
    with closing(Cancellation(timeouts, 600_000)) as ending:
        account = MemoryBudget().account("")
        found = history.read(read, [segment], ReadStats("scanned"), ending, account)
    return sum(row["__rows"] for row in found.to_pylist())


def test_a_read_of_some_row_groups_compares_these_and_the_footer_each_once(
    ranged: Ranged, history: EmbeddedHistory, timeouts: Timeouts
) -> None:
    assert 0 < rows_below(history, ranged.segment, 50, timeouts) < ROWS // 10
    assert sorted(ranged.compared) == [0, ranged.starts[-1]]
    rows_below(history, ranged.segment, 250, timeouts)
    assert sorted(ranged.compared) == [*ranged.starts[:3], ranged.starts[-1]]
    assert rows_below(history, ranged.segment, 1_000, timeouts) == ROWS
    assert sorted(ranged.compared) == ranged.starts
    assert not ranged.whole


def test_damage_is_named_by_who_reads_it_and_by_nobody_else(
    ranged: Ranged, history: EmbeddedHistory, timeouts: Timeouts
) -> None:
    wanted = rows_below(history, ranged.segment, 50, timeouts)
    ranged.damage(group=7)
    with closing(EmbeddedHistory(ranged.store, None, NOTHING_KEPT)) as fresh:
        assert rows_below(fresh, ranged.segment, 50, timeouts) == wanted
        with pytest.raises(Corrupted, match=rf"{PART} is damaged.*sha256 of bytes {ranged.starts[7]} to"):
            rows_below(fresh, ranged.segment, 1_000, timeouts)
    ranged.damage(group=GROUPS)  # the footer
    with (
        closing(EmbeddedHistory(ranged.store, None, NOTHING_KEPT)) as fresh,
        pytest.raises(Corrupted, match=rf"{PART} is damaged.*sha256 of bytes {ranged.starts[-1]} to"),
    ):
        rows_below(fresh, ranged.segment, 50, timeouts)


def test_a_file_kept_in_memory_is_compared_as_a_whole_by_its_ranges(
    ranged: Ranged, timeouts: Timeouts
) -> None:
    with closing(EmbeddedHistory(ranged.store)) as kept:
        assert rows_below(kept, ranged.segment, 1_000, timeouts) == ROWS
    assert sorted(ranged.compared) == ranged.starts


def test_a_file_of_an_older_manifest_is_compared_as_a_whole(
    ranged: Ranged, history: EmbeddedHistory, timeouts: Timeouts
) -> None:
    ranged.describe(msgspec.structs.replace(ranged.entry, ranges=()))
    assert 0 < rows_below(history, ranged.segment, 50, timeouts) < ROWS // 10
    assert (ranged.whole, ranged.compared) == ([f"{ranged.location}/{PART}"], [])
    ranged.damage(group=7)
    with (
        closing(EmbeddedHistory(ranged.store, None, NOTHING_KEPT)) as fresh,
        pytest.raises(Corrupted, match=rf"{PART} is damaged"),
    ):
        rows_below(fresh, ranged.segment, 50, timeouts)
