"""A store that goes away while history is read is not taken for damage, nor damage for an outage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from pyarrow.fs import FSSpecHandler, PyFileSystem
from rtolap.base.errors import Corrupted, Unavailable
from rtolap.object_store.store import ObjectStore
from rtolap.query.statement_service import QueryService

from tests.support.hostile.damage import change_bit, column_spans
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

CHANGES_WORLD = True

BY_DAY = "select day_start, count(*) from flights group by day_start"
FURTHER = "select day_start, sum(price) from flights group by day_start"  # of the same files, not in memory


class Disk(LocalFileSystem):  # type: ignore[misc,unused-ignore]  # fsspec has no types
    """Opening a Parquet file fails when `breaks`; then the whole store does not answer, if `stays_away`."""

    cachable = False
    breaks = stays_away = gone = False

    def info(self, path: Any, **options: Any) -> Any:
        if self.gone:
            raise OSError("connection refused")
        return super().info(path, **options)

    def open(self, path: Any, *arguments: Any, **options: Any) -> Any:
        if self.gone or (self.breaks and str(path).endswith(".parquet")):
            self.breaks, self.gone = False, self.stays_away
            raise OSError("connection reset by peer")
        return super().open(path, *arguments, **options)


@pytest.fixture
def disk(world: QueryWorld, monkeypatch: pytest.MonkeyPatch) -> Disk:
    made, plain = Disk(), world.store
    store = ObjectStore(PyFileSystem(FSSpecHandler(made)), plain.root, plain.uri(""))
    monkeypatch.setattr(world, "store", store)
    return made


@pytest.fixture
def reader(world: QueryWorld, disk: Disk) -> Iterator[QueryService]:
    """Has read and verified every file before."""
    made = world.service()
    made.execute(BY_DAY).close()
    yield made
    made.close()


def test_a_read_that_breaks_off_over_whole_files_is_an_outage(reader: QueryService, disk: Disk) -> None:
    disk.breaks = True
    with pytest.raises(Unavailable, match=r"though its files are whole.*connection reset"):
        reader.execute(FURTHER)
    assert reader.execute(FURTHER).table().num_rows > 0, "the store is back"


def test_a_store_that_stays_away_is_an_outage(reader: QueryService, disk: Disk) -> None:
    disk.breaks = disk.stays_away = True
    with pytest.raises(Unavailable, match="connection refused"):
        reader.execute(FURTHER)
    disk.gone = disk.stays_away = False
    assert reader.execute(FURTHER).table().num_rows > 0, "the store is back"


def test_a_file_damaged_after_it_was_verified_is_damage(reader: QueryService, world: QueryWorld) -> None:
    records = [record for record in world.metadata.segments("flights").values() if record.version > 0]
    files = [(r, Path(world.store.absolute(f"{r.location}/day_start/part-0.parquet"))) for r in records]
    record, file = next((r, file) for r, file in files if pq.read_metadata(file).num_rows)
    whole = file.read_bytes()
    file.write_bytes(b"\0" * len(whole))
    with pytest.raises(Corrupted, match=rf"{record.name}.*day_start/part-0\.parquet is damaged"):
        reader.execute(FURTHER)
    file.write_bytes(whole)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(24)))
def test_a_bit_that_a_disk_loses_after_the_file_was_verified_is_in_no_answer(
    world: QueryWorld, seed: int
) -> None:
    """Size and checksum were compared before: the pages that are read have checksums of their own."""
    dice = random.Random(seed)
    records = [record for record in world.metadata.segments("flights").values() if record.version > 0]
    files = [Path(world.store.absolute(f"{record.location}/day_start/part-0.parquet")) for record in records]
    file = dice.choice([file for file in files if pq.read_metadata(file).num_rows])
    begin, end = dice.choice(column_spans(file, "price__sum"))
    at, bit = dice.choice((end - 1, dice.randrange(begin, end))), dice.randrange(8)
    with closing(world.service()) as service:
        expected = service.execute(FURTHER).table()
    with closing(world.service()) as service:
        service.execute(BY_DAY).close()
        change_bit(file, at, bit)
        found = problem = None
        try:
            found = service.execute(FURTHER).table()
        except Corrupted as error:
            problem = str(error)
        finally:
            change_bit(file, at, bit)
    if found is None:
        assert "day_start/part-0.parquet is damaged" in str(problem)
    else:
        assert at < end - 1, "values are damaged"
        assert found.equals(expected), "a page's header says what no read needs"
