"""A build refuses inputs that do not join, are not the ones meant, or do not match their checksums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from rtolap.base.errors import Corrupted, DefinitionError, NotFound, Refused
from rtolap.cubes.format import history
from rtolap.cubes.format.build_inputs import check_ranges_join, read_specs, verify_inputs
from rtolap.cubes.format.manifest import HistoryManifest
from rtolap.model.build_spec import BuildSpec
from rtolap.model.cube import Cuboid
from rtolap.model.offsets import PartRange
from rtolap.object_store.store import open_store
from rtolap.protocols.coordinator.messages import BuildSpecMessage

from tests.support.cubes.staging import SCHEMA, Staging, raw_events

SEED = 7


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    uri = (tmp_path / "store").as_uri()
    return Staging(open_store(uri), uri, tmp_path / "store")


def spec_of(staging: Staging, *ranges: PartRange, **more: Any) -> BuildSpec:
    none = raw_events(SEED, 0, 0, 0)
    return staging.spec("b", *(staging.part(1, f"rs{n}", none, r) for n, r in enumerate(ranges)), **more)


def test_ranges_of_several_replica_sets_join(staging: Staging) -> None:
    check_ranges_join(
        spec_of(
            staging, PartRange(0, 5, 9), PartRange(1, 0, 0), PartRange(0, 3, 5),
            first_offsets={0: 3, 1: 0}, covered={0: 9, 1: 0},
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ranges", "vectors", "message"),
    [
        ([(0, 3, 5), (0, 6, 9)], {"covered": {0: 9}}, "a gap"),
        ([(0, 3, 5), (0, 4, 9)], {"covered": {0: 9}}, "an overlap"),
        ([(0, 3, 5), (0, 3, 5)], {"covered": {0: 5}}, "an overlap"),
        ([(0, 3, 5)], {"covered": {0: 9}}, "parts up to offset 9"),
        ([(0, 3, 9)], {"covered": {0: 5}}, "parts up to offset 5"),
        ([(0, 4, 9)], {"covered": {0: 9}, "first_offsets": {0: 3}}, "from offset 3"),
        ([(0, 4, 9)], {"covered": {0: 9}, "previous_covered": {0: 3}}, "from offset 3"),
        ([], {"covered": {0: 9}, "previous_covered": {0: 3}}, "parts up to offset 9"),
        ([(1, 0, 1)], {"covered": {}}, "a covered offset"),
    ],
)
def test_ranges_that_do_not_join_are_refused(
    staging: Staging, ranges: list[tuple[int, int, int]], vectors: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        check_ranges_join(spec_of(staging, *(PartRange(*r) for r in ranges), **vectors))


def test_a_part_of_another_segment_or_replica_set_is_refused(staging: Staging) -> None:
    part = staging.part(1, "rs", raw_events(SEED, 0, 0, 20), PartRange(0, 0, 20))
    assert verify_inputs(staging.store, staging.spec("b", part, covered={0: 20})).events == 20
    for changed in (
        msgspec.structs.replace(part, replica_set="other"),
        msgspec.structs.replace(part, events=21),
    ):
        with pytest.raises(Corrupted, match="another one"):
            verify_inputs(staging.store, staging.spec("b", changed, covered={0: 20}))
    with pytest.raises(Corrupted, match="another one"):
        verify_inputs(staging.store, staging.spec("b", part, version=2, covered={0: 20}))


def test_a_later_version_needs_the_one_before(staging: Staging) -> None:
    part = staging.part(2, "rs", raw_events(SEED, 0, 0, 20), PartRange(0, 0, 20))
    with pytest.raises(Refused, match="previous version"):
        verify_inputs(staging.store, staging.spec("b", part, version=2, covered={0: 20}))


def test_a_version_that_is_rebuilt_needs_parts_from_the_beginning_on(staging: Staging) -> None:
    part = staging.part(2, "rs", raw_events(SEED, 0, 0, 20), PartRange(0, 0, 20))
    recreated = staging.spec("b", part, version=2, base_lost=True, first_offsets={0: 0}, covered={0: 20})
    assert verify_inputs(staging.store, recreated).events == 20
    late = staging.part(2, "late", raw_events(SEED, 0, 10, 20), PartRange(0, 10, 20))
    with pytest.raises(Refused, match="from offset 0"):
        verify_inputs(staging.store, msgspec.structs.replace(recreated, parts=(late,)))


def test_the_coordinators_answer_is_read_as_a_spec(staging: Staging, tmp_path: Path) -> None:
    spec = spec_of(staging, PartRange(0, 0, 9), covered={0: 9}, previous_covered={0: 0})
    payload = msgspec.to_builtins(spec, str_keys=True)
    for part in payload["parts"]:
        part["bytes"] = 0
    file = tmp_path / "spec.json"
    file.write_text(BuildSpecMessage.model_validate(payload).model_dump_json())
    assert read_specs(str(file)) == [spec]
    file.write_bytes(msgspec.json.encode([spec, spec]))
    assert read_specs(file.as_uri()) == [spec, spec]
    file.write_text("[]x")
    with pytest.raises(DefinitionError, match="not a build specification"):
        read_specs(str(file))


def write_version(staging: Staging) -> tuple[str, HistoryManifest]:
    import_part = staging.part(1, "rs", raw_events(SEED, 0, 0, 50), PartRange(0, 0, 50))
    location = import_part.path  # a base cuboid is what a staged part holds
    file = history.describe_file(staging.store, location, "part-0.parquet")
    dimensions = SCHEMA.cube.all_dimensions
    entry = {
        "name": "base",
        "dimensions": dimensions,
        "rows": file.rows,
        "files": [msgspec.to_builtins(file)],
    }
    manifest = msgspec.convert(
        {
            "cube": "sales_cube", "segment": "s", "version": 1, "build_id": "b", "covered": {0: 50},
            "events": 50, "cuboids": [entry],
        },
        HistoryManifest,
    )  # fmt: skip
    history.write_manifest(staging.store, location, manifest)
    return location, manifest


def test_a_version_is_verified_and_dumped(staging: Staging) -> None:
    location, manifest = write_version(staging)
    assert history.verify(staging.store, location, SCHEMA) == manifest
    dumped = history.dump(staging.store, location)
    assert (dumped["events"], dumped["covered"]) == (50, {"0": 50})


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "events", "rows"])
def test_every_damage_of_a_version_is_found(staging: Staging, damage: str) -> None:
    location, manifest = write_version(staging)
    file = staging.folder / location / "part-0.parquet"
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "cut":
        file.write_bytes(data[:-1])
    elif damage == "remove":
        file.unlink()
    elif damage == "events":
        history.write_manifest(staging.store, location, msgspec.structs.replace(manifest, events=51))
    else:
        cuboid = msgspec.structs.replace(manifest.cuboids[0], rows=1)
        history.write_manifest(staging.store, location, msgspec.structs.replace(manifest, cuboids=(cuboid,)))
    with pytest.raises(Corrupted):
        history.verify(staging.store, location, SCHEMA)


def test_a_folder_without_a_manifest_is_no_version(staging: Staging) -> None:
    with pytest.raises(NotFound):
        history.read_manifest(staging.store, "history/nothing")


def test_other_columns_than_the_cubes_are_found(staging: Staging) -> None:
    location, _ = write_version(staging)
    wider = msgspec.structs.replace(
        SCHEMA, cube=msgspec.structs.replace(SCHEMA.cube, measures=SCHEMA.cube.measures[:-1])
    )
    with pytest.raises(Corrupted, match="other columns"):
        history.verify(staging.store, location, wider)


def test_long_cuboid_names_become_short_folders() -> None:
    long = Cuboid(tuple(f"dimension_{n}" for n in range(40)))
    other = Cuboid((*long.dimensions[:-1], "dimension_x"))
    assert history.cuboid_folder(Cuboid(("a", "b"))) == "a+b"
    assert history.cuboid_folder(Cuboid(())) == "_all"
    assert len(history.cuboid_folder(long)) == history.FOLDER_LENGTH_MAX
    assert history.cuboid_folder(long) != history.cuboid_folder(other)


def test_entries_are_found_by_their_dimensions(staging: Staging) -> None:
    _, manifest = write_version(staging)
    dimensions = manifest.cuboids[0].dimensions
    assert history.entry_of(manifest, Cuboid(tuple(reversed(dimensions)))).name == "base"
    with pytest.raises(NotFound, match="no cuboid"):
        history.entry_of(manifest, Cuboid(()))


def test_events_are_counted_from_the_files(staging: Staging) -> None:
    location, manifest = write_version(staging)
    assert history.count_events(staging.store, location, manifest.cuboids[0].files) == 50
