"""A staged batch beside history: drawn events, some lost, added or changed, and a plain count."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.base.errors import Corrupted
from rtolap.columnar.schema import history_schema
from rtolap.cubes.format import history
from rtolap.cubes.format.batch_compare import Difference, compare, read_batch
from rtolap.cubes.format.build_batch import write_file
from rtolap.cubes.format.manifest import (
    BATCH_NAME,
    MANIFEST_NAME,
    PLAN_NAME,
    BatchManifest,
    BatchPart,
    BatchPlan,
    CuboidEntry,
    HistoryManifest,
    StagedManifest,
    encode,
)
from rtolap.model.batch import BatchSegment, BatchSource, BatchSpec
from rtolap.model.cube import Cuboid
from rtolap.model.offsets import PartRange
from rtolap.model.segment import SegmentRange, StagedPart
from rtolap.object_store.store import ObjectStore, open_store

from tests.support.batches.drawn import rolled_up
from tests.support.cubes.builders import START_MS, WINDOW_MS, Event, small_schema
from tests.support.query.visitors import with_visitors

SCHEMA = with_visitors(small_schema())
NAME = SegmentRange(START_MS, START_MS + WINDOW_MS).name
Group = tuple[int, str | None, int | None]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "store").as_uri())


def drawn(rng: random.Random) -> list[Event]:
    return [
        Event(
            event_ms=START_MS + rng.randrange(WINDOW_MS),
            kind=rng.choice(("a", "b", None)),
            place=rng.choice((1, 2, 3, None)),
            amount=rng.choice((None, rng.randrange(9))),
            price=None,
            visitor=rng.choice(("v1", "v2")),
        )
        for _ in range(rng.randrange(40))
    ]


def rows_of(events: list[Event]) -> pa.Table:
    texts = [
        json.dumps(
            {"ts": e.event_ms, "kind": e.kind, "place": e.place, "amount": e.amount, "visitor": e.visitor}
        ).encode()
        for e in events
    ]
    return rolled_up(SCHEMA, texts)


def as_history(store: ObjectStore, events: list[Event]) -> str:
    base, location = Cuboid(SCHEMA.cube.all_dimensions), f"history/{SCHEMA.cube.name}/{NAME}/v1-b"
    expected = history_schema(SCHEMA, base.dimensions)
    rows = rows_of(events).select(expected.names).cast(expected)
    folder = history.cuboid_folder(base)
    file = write_file(store, location, f"{folder}/part-0.parquet", expected, rows.to_batches())
    manifest = HistoryManifest(
        cube=SCHEMA.cube.name,
        segment=NAME,
        version=1,
        build_id="b",
        covered={},
        events=len(events),
        cuboids=(CuboidEntry(folder, base.dimensions, rows.num_rows, (file,)),),
    )
    history.write_manifest(store, location, manifest)
    return location


def as_batch(store: ObjectStore, events: list[Event]) -> str:
    folder = f"batches/{SCHEMA.cube.name}/b1"
    path = f"{folder}/rows/__segment=0"
    rows = rows_of(events)
    file = write_file(store, path, "part-0.parquet", rows.schema, rows.to_batches())
    ranges = (PartRange(0, 0, 0),)
    manifest = StagedManifest(
        cube=SCHEMA.cube.name,
        segment=NAME,
        version=2,
        replica_set="batch",
        ranges=ranges,
        files=(file,),
        events=len(events),
    )
    store.write(f"{path}/{MANIFEST_NAME}", encode(manifest))
    spec = BatchSpec(
        batch="b1",
        cube=SCHEMA.cube.name,
        table_definition=SCHEMA.table,
        cube_definition=SCHEMA.cube,
        object_store=store.uri(""),
        folder=folder,
        start_ms=START_MS,
        end_ms=START_MS + WINDOW_MS,
        segments=(BatchSegment(NAME, 2, ranges),),
        source=BatchSource(format="parquet", path="file:///x"),
    )
    part = BatchPart(NAME, 2, StagedPart("batch", path, ranges, rows.num_rows, len(events), file.bytes))
    store.write(f"{folder}/{PLAN_NAME}", encode(BatchPlan(planned_ms=0, spec=spec)))
    whole = BatchManifest(cube=SCHEMA.cube.name, batch="b1", parts=(part,))
    store.write(f"{folder}/{BATCH_NAME}", encode(whole))
    return folder


def groups(events: list[Event]) -> dict[Group, list[int | None]]:
    """Return the amounts of each group, sorted: the same list means the same sums, counts and extremes."""
    found: dict[Group, list[int | None]] = {}
    for event in events:
        key = (event.event_ms // 60_000, event.kind, event.place)
        found.setdefault(key, []).append(event.amount)
    return {key: sorted(values, key=str) for key, values in found.items()}


def summed(values: list[int | None]) -> tuple[object, ...]:
    known = [value for value in values if value is not None]
    return (len(values), sum(known), len(known), min(known, default=None), max(known, default=None))


@pytest.mark.parametrize("seed", range(20))
def test_differences_are_those_of_a_plain_count(store: ObjectStore, seed: int) -> None:
    rng = random.Random(seed)
    in_history = drawn(rng)
    in_source = [event for event in in_history if rng.random() < 0.9]
    in_source = [replace(e, amount=(e.amount or 0) + 1) if rng.random() < 0.05 else e for e in in_source]
    in_source += drawn(rng)[:3] if rng.random() < 0.5 else []
    spec, (part,) = read_batch(store, as_batch(store, in_source))
    mine, other = groups(in_history), groups(in_source)
    assert compare(store, spec, as_history(store, in_history), part.part.path) == Difference(
        history_events=len(in_history),
        source_events=len(in_source),
        only_history=len(mine.keys() - other.keys()),
        only_source=len(other.keys() - mine.keys()),
        different=sum(summed(mine[key]) != summed(other[key]) for key in mine.keys() & other.keys()),
    )


def test_the_same_events_have_no_difference_and_a_segment_without_history_has_all(store: ObjectStore) -> None:
    events = drawn(random.Random(3))
    spec, (part,) = read_batch(store, as_batch(store, events))
    assert compare(store, spec, as_history(store, events), part.part.path).is_none
    none = compare(store, spec, None, part.part.path)
    assert (none.history_events, none.only_source) == (0, len(groups(events)))


def test_a_damaged_file_is_named_and_not_compared(store: ObjectStore) -> None:
    events = drawn(random.Random(3))
    spec, (part,) = read_batch(store, as_batch(store, events))
    path = f"{part.part.path}/part-0.parquet"
    store.write(path, bytes(store.size_bytes(path)))
    with pytest.raises(Corrupted, match="does not match its checksum"):
        compare(store, spec, as_history(store, events), part.part.path)
