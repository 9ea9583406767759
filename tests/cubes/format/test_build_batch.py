"""Files that a Spark job has left in its scratch folder become those of the versions they belong to."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rtolap.cubes.format import history
from rtolap.cubes.format.build_batch import SEGMENT_COLUMN, adopt, check_counted, encoded, finish
from rtolap.cubes.format.tries import new_try, scratch_of
from rtolap.model.cube import cuboids
from rtolap.object_store.store import open_store

from tests.support.cubes.built import assert_nothing_else, assert_recount
from tests.support.cubes.staging import CUBE, SEGMENT, Staging, raw_events, roll_up

SEED = 20130105
ALL = cuboids(CUBE)
DAYS = (SEGMENT, "20130102000000_20130103000000", "20130103000000_20130104000000")
EVENTS = (80, 0, 30)


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    uri = (tmp_path / "store").as_uri()
    return Staging(open_store(uri), uri, tmp_path / "store")


def test_files_are_moved_to_their_versions(staging: Staging) -> None:
    days = [staging.of(name) for name in DAYS]
    raws = [raw_events(SEED, number, 0, events, DAYS[number]) for number, events in enumerate(EVENTS)]
    specs = [of.spec(f"b{number}", covered={number: 1}) for number, of in enumerate(days)]
    tried = new_try()
    scratch = scratch_of(tried, specs[0].location)
    folders = [f"{scratch}/job-0/__cuboid={number}" for number in range(len(ALL))]
    for cuboid, folder in zip(ALL, folders, strict=True):
        for place, raw in enumerate(raws):
            if not raw.num_rows:
                continue
            rows = roll_up(raw, cuboid.dimensions)
            for number, part in enumerate((rows.slice(0, 1), rows.slice(1))):
                target = staging.folder / folder / f"{SEGMENT_COLUMN}={place}" / f"part-{number}.parquet"
                target.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(part, target)
    entries, counted = adopt(staging.store, tried, specs, ALL, folders)
    assert staging.store.list(scratch) == ()
    check_counted(specs, EVENTS, entries, counted)
    manifests = {
        spec.location: finish(staging.store, spec, events, of)
        for spec, events, of in zip(specs, EVENTS, entries, strict=True)
    }
    for of, spec, raw in zip(days, specs, raws, strict=True):
        assert_recount(of, spec, raw, with_ids=False)
        assert history.verify(staging.store, spec.location) == manifests[spec.location]
    assert_nothing_else(staging, manifests)


def test_files_of_history_let_readers_skip_pages() -> None:
    table = pa.table({"kind": ["a", "b"] * 500, "__rows": pa.array(range(1000), pa.int64())})
    data, rows = encoded(table.schema, table.to_batches())
    assert rows == 1000
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    for number in range(group.num_columns):
        assert group.column(number).has_offset_index
    assert group.column(0).has_column_index
