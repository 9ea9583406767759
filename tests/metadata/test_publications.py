"""Records of publications: what they hold, also where that has to be said in few words."""

from __future__ import annotations

import random

import msgspec
import pytest
from rtolap.base.errors import Corrupted, NotFound, NotYet, Refused
from rtolap.metadata import paths
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.publications import (
    RANGES_MAX,
    HeldRange,
    PublicationHolds,
    Publications,
    among,
    held_ranges,
)
from rtolap.metadata.signed import SignedStore
from rtolap.metadata.store import Put
from rtolap.model.publication import IcebergCatalog, Publication, PublicationBatch
from rtolap.model.segment import SegmentRange

from tests.support.cubes.staging import CUBE, TABLE
from tests.support.seeds import so_many
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

HOUR_MS = 3_600_000
LAKE = Publication(
    name="lake",
    cube=CUBE.name,
    table="olap.sales",
    catalog=IcebergCatalog(kind="sqlite", address="/nowhere/catalog.db", warehouse="file:///nowhere"),
)


def hours(version: int, start: int, end: int) -> HeldRange:
    return HeldRange(version, start * HOUR_MS, end * HOUR_MS)


@pytest.fixture
def records() -> Publications:
    store = MemoryStore(MemoryEnsemble())
    metadata = ClusterMetadata(store, ManualClock(1))
    metadata.create_table(TABLE)
    metadata.create_cube(CUBE)
    return Publications(store)


def test_a_year_of_hours_is_one_range_and_a_few() -> None:
    year = [hours(1, hour, hour + 1) for hour in range(8760)]
    late = [hours(2, 5, 6), hours(2, 6, 7), hours(3, 6, 7)]
    assert held_ranges([*late, *year]) == (hours(1, 0, 8760), hours(2, 5, 7), hours(3, 6, 7))


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(5)))
def test_ranges_hold_all_that_is_wanted_and_fit_into_a_record(seed: int) -> None:
    rng = random.Random(seed)
    wanted = [
        hours(rng.randrange(1, 4), hour, hour + 1) for hour in range(20_000) for _ in range(rng.randrange(3))
    ]
    ranges = held_ranges(wanted)
    assert len(ranges) <= RANGES_MAX
    for each in rng.sample(wanted, 200):
        assert among(ranges, SegmentRange(each.start_ms, each.end_ms), each.version)
    assert len(msgspec.json.encode(PublicationHolds("c", ranges))) < 200_000
    assert not among(ranges, SegmentRange(0, HOUR_MS), 4)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(5)))
def test_few_ranges_hold_nothing_else(seed: int) -> None:
    rng = random.Random(seed)
    wanted = {(rng.randrange(200), rng.randrange(1, 4)) for _ in range(150)}
    ranges = held_ranges(hours(version, hour, hour + 1) for hour, version in wanted)
    found = {
        (hour, version)
        for hour in range(201)
        for version in range(1, 5)
        if among(ranges, SegmentRange(hour * HOUR_MS, (hour + 1) * HOUR_MS), version)
    }
    assert found == wanted


def test_settings_change_and_the_table_does_not(records: Publications) -> None:
    records.declare(LAKE)
    records.declare(LAKE)
    faster = msgspec.structs.replace(LAKE, batch=PublicationBatch(every_ms=1_000))
    records.declare(faster)
    assert records.declaration("lake").publication == faster
    with pytest.raises(Refused, match="another cube, cuboid or table"):
        records.declare(msgspec.structs.replace(LAKE, table="olap.other"))


def test_a_publication_needs_its_cube(records: Publications) -> None:
    with pytest.raises(NotFound, match="cube nothing does not exist"):
        records.declare(msgspec.structs.replace(LAKE, cube="nothing"))


def test_holds_are_replaced_only_as_they_were_read(records: Publications) -> None:
    records.declare(LAKE)
    read = records.holds("lake")
    records.release("lake")
    with pytest.raises(NotYet, match="changed meanwhile"):
        records.write_holds("lake", PublicationHolds("c", (hours(1, 0, 1),)), read)
    assert records.holds("lake").released


def test_a_drop_that_was_interrupted_is_completed(records: Publications) -> None:
    records.declare(LAKE)
    records.write_holds("lake", PublicationHolds("c"), PublicationHolds())
    records.start_drop("lake")
    with pytest.raises(Refused, match="being dropped"):
        records.declare(LAKE)
    records.start_drop("lake")
    records.end_drop("lake")
    records.end_drop("lake")
    assert records.declarations() == {}
    with pytest.raises(NotFound):
        records.declaration("lake")


@pytest.mark.parametrize("altered", [b"", b"{", b'{"publication": {"cube": "other"}}', None])
def test_while_a_declaration_cannot_be_read_it_may_be_one_of_each_cube(altered: bytes | None) -> None:
    """The purge would delete what its table names, and the cube might be dropped."""
    outside = MemoryStore(MemoryEnsemble())
    metadata = ClusterMetadata(SignedStore(outside, "a-token-of-this-test"), ManualClock(1))
    metadata.create_table(TABLE)
    metadata.create_cube(CUBE)
    records = Publications(metadata.store)
    records.declare(LAKE)
    assert list(records.of_cube(CUBE.name)) == ["lake"]
    path = paths.publication_definition("lake")
    node = outside.get(path)
    assert node is not None
    data = node.data + b" " if altered is None else altered
    outside.commit([Put(path, data, node.version)])
    assert records.declarations() == {}
    with pytest.raises(Corrupted, match="publications/lake"):
        records.of_cube(CUBE.name)
    with pytest.raises(Corrupted, match="publications/lake"):
        metadata.drop_cube(CUBE.name, metadata.cube_id(CUBE.name))
