"""Merges in a seeded run: planned, written as Spark writes them, committed, by leaders that may be killed.

A run has minutes of event time: its "days" are four of them and its "months" sixteen, and plans age in
seconds.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from unittest import mock

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from rtolap.base.errors import Corrupted, NotFound
from rtolap.coordinator.merging import intervals, leftovers, merges
from rtolap.cubes.format.file_states import FileToLookAt, look_here
from rtolap.cubes.format.history import describe_file
from rtolap.cubes.format.manifest import CuboidEntry
from rtolap.cubes.format.merge_inputs import declared_members, finish_set
from rtolap.metadata.merging.units import history_units
from rtolap.metadata.records import WatermarkRecord, standing
from rtolap.model.merging.intervals import MergeLevel
from rtolap.model.merging.specs import MergeSpec
from rtolap.model.segment import SegmentRange
from rtolap.object_store.store import open_store
from rtolap.protocols.coordinator.messages import MergeRequest

from tests.support.cubes.builders import WINDOW_MS
from tests.support.cubes.cluster import BASE_FILE, Cluster
from tests.support.cubes.harness_actions import Actions

_SEGMENTS = {"day": 4, "month": 16}


def short_interval(level: MergeLevel, instant_ms: int) -> SegmentRange:
    length_ms = _SEGMENTS[level] * WINDOW_MS
    start_ms = instant_ms // length_ms * length_ms
    return SegmentRange(start_ms, start_ms + length_ms)


@contextlib.contextmanager
def short_merges() -> Iterator[None]:
    """Have intervals and ages that fit into a run."""
    with (
        mock.patch.object(intervals, "interval_of", short_interval),
        mock.patch.object(merges, "COMMITTED_MS", 300_000),
        mock.patch.object(leftovers, "KEPT_MS", 330_000),
    ):
        yield


def plan_merges(actions: Actions) -> None:
    """Plan merges and write them, or be killed before that is done."""
    cluster = actions.cluster
    watermark_ms = cluster.low_watermark_ms()
    if watermark_ms is None:
        return
    cluster.metadata.publish_watermark(cluster.cube, WatermarkRecord(watermark_ms))
    plans = actions.command(lambda leader: leader.merges.plan(cluster.cube, MergeRequest()))
    for planned in () if plans is None else plans.merges:
        actions.merges.append((planned.cube, planned.merge))
        if actions.random.random() < actions.kill_rate / 2:
            actions.counts["merges killed"] += 1
            continue
        try:
            write_set(cluster, msgspec.convert(planned.spec, MergeSpec))
        except (Corrupted, NotFound):  # a member was replaced and cleaned up meanwhile
            actions.counts["merges refused"] += 1
            continue
        actions.counts["sets written"] += 1


def commit_merge(actions: Actions) -> None:
    """Commit a merge, mostly one of the newest; it may be committed already, or be too old."""
    if not actions.merges:
        return
    some = actions.merges[-3:] if actions.random.random() < 0.8 else actions.merges
    cube, merge = actions.random.choice(some)
    done = actions.command(lambda leader: leader.merges.commit(cube, merge))
    actions.counts["sets committed"] += done is not None and done.committed


def write_set(cluster: Cluster, spec: MergeSpec) -> None:
    """Do the Spark job's work: verify the members' bases, write their rows, write the manifest last."""
    declared = declared_members(cluster.store, spec)
    paths = [FileToLookAt(file.path) for file in declared.files]
    inputs = declared.verified(look_here(spec.object_store, paths))
    tables = [pq.read_table(io.BytesIO(cluster.store.read(path))) for path in inputs.files]
    rows = pa.concat_tables(tables)
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    cluster.store.write(f"{spec.location}/{BASE_FILE}", sink.getvalue())
    base = describe_file(cluster.store, spec.location, BASE_FILE)
    finish_set(
        cluster.store,
        spec,
        [CuboidEntry("base", spec.cube_definition.all_dimensions, base.rows, (base,))],
    )
    cluster.history[spec.location] = rows


def check_units(cluster: Cluster) -> int:
    """Check that what statements open now is there. Return how many sets they open."""
    records = cluster.records()
    units = history_units(standing(cluster.metadata.control(cluster.cube), records))
    store = open_store((cluster.folder / "store").as_uri())
    for unit in units:
        assert store.exists(f"{unit.location}/{BASE_FILE}"), f"the files of {unit.title} are gone"
    return sum(bool(unit.level) for unit in units)
