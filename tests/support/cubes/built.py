"""Built versions of the sales cube beside a recount of the raw rows."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rtolap.columnar.schema import FIELD_ID, field_ids
from rtolap.cubes.format import history
from rtolap.cubes.format.manifest import CuboidEntry, HistoryManifest, MergedManifest
from rtolap.cubes.format.merge_inputs import verify_set
from rtolap.cubes.format.tries import SCRATCH_FOLDER
from rtolap.model.build_spec import BuildSpec
from rtolap.model.cube import Cube, cuboids
from rtolap.model.merging.specs import MergeSpec

from tests.support.cubes.staging import CUBE, SCHEMA, Staging, estimate, roll_up

_OF_TRY = re.compile(rf"/(?:{SCRATCH_FOLDER}-[0-9a-f]{{12}}/|[0-9a-f]{{12}}-[^/]*$)")


def assert_recount(
    staging: Staging, spec: BuildSpec, raw: pa.Table, *, with_ids: bool = True, cube: Cube = CUBE
) -> HistoryManifest:
    """Check that every cuboid of the version holds exactly what the raw rows roll up to, and that each
    column has its id. `with_ids`: False for files that the test itself wrote without. `cube`: with the groups
    by which the version was built."""
    manifest = history.verify(staging.store, spec.location, SCHEMA)
    assert manifest.events == raw.num_rows
    assert [entry.dimensions for entry in manifest.cuboids] == [c.dimensions for c in cuboids(cube)]
    for entry in manifest.cuboids:
        expected = roll_up(raw, entry.dimensions)
        if with_ids:
            assert_ids(staging, spec, entry)
        assert _comparable(_stored(staging, spec.location, entry, expected.schema)) == _comparable(
            expected
        ), entry.name
    return manifest


def assert_merged(staging: Staging, spec: MergeSpec, raw: pa.Table) -> MergedManifest:
    """Check that every cuboid of the set holds exactly what the raw rows of all members roll up to."""
    manifest = verify_set(staging.store, spec)
    assert manifest.events == raw.num_rows == spec.events
    assert [entry.dimensions for entry in manifest.cuboids] == [c.dimensions for c in cuboids(CUBE)]
    for entry in manifest.cuboids:
        expected = roll_up(raw, entry.dimensions)
        found = _stored(staging, spec.location, entry, expected.schema)
        assert _comparable(found) == _comparable(expected), entry.name
    return manifest


def assert_ids(staging: Staging, spec: BuildSpec, entry: CuboidEntry) -> None:
    """Every column of the cuboid's files has the id by which Iceberg tables know it."""
    ids = field_ids(SCHEMA)
    for file in entry.files:
        with staging.store.open(f"{spec.location}/{file.name}") as source:
            schema = pq.read_schema(source)
        found = {field.name: int((field.metadata or {}).get(FIELD_ID, b"-1")) for field in schema}
        assert found == {name: ids[name] for name in schema.names}, file.name


def assert_nothing_else(
    staging: Staging, manifests: dict[str, HistoryManifest], *, killed: bool = False
) -> None:
    """Assert that the history holds the files of these versions, by location, and no other.

    killed: True where a driver was killed. The files of its try are still there, which no manifest names;
    they go with the version's folder."""
    expected = {history.manifest_path(location) for location in manifests}
    for location, manifest in manifests.items():
        expected |= {f"{location}/{file.name}" for entry in manifest.cuboids for file in entry.files}
    found = {file.path for file in staging.store.list("history")}
    assert expected <= found
    others = found - expected
    of_tries = {path for path in others if any(path.startswith(f"{each}/") for each in manifests)}
    assert others == ({path for path in of_tries if _OF_TRY.search(path)} if killed else set())


def _comparable(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows in a stable order, nulls included, sketches as their estimates."""
    rows = table.to_pylist()
    plain = [tuple(estimate(v) if k.endswith("__hll") else v for k, v in row.items()) for row in rows]
    return sorted(plain, key=repr)


def _stored(staging: Staging, location: str, entry: CuboidEntry, schema: pa.Schema) -> pa.Table:
    tables = []
    for file in entry.files:
        with staging.store.fs.open_input_file(staging.store.absolute(f"{location}/{file.name}")) as data:
            tables.append(pq.read_table(data))
    return pa.concat_tables(tables) if tables else schema.empty_table()
