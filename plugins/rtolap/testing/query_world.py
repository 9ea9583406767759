"""A cluster in memory for the query service: raw events, part of them built into history, the rest live.

The obvious slow implementation behind the same seams: partials are computed from the raw rows by DuckDB for
every request, so an answer can be held against the same SQL over the raw rows.
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasketches
import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from rtolap.base.clock import SystemClock
from rtolap.base.errors import StaleSnapshot, Unavailable
from rtolap.format.history import describe_file, write_manifest
from rtolap.format.manifest import CuboidEntry, HistoryManifest
from rtolap.format.object_store import ObjectStore, open_store
from rtolap.format.schema import physical_schema
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.memory import MemoryEnsemble, MemoryStore
from rtolap.metadata.records import ReceiverRecord
from rtolap.model.cube import Schema, cuboids
from rtolap.model.segment import SegmentRange, segment_of
from rtolap.model.segment_states import SegmentState
from rtolap.model.table import Lookup
from rtolap.query.arrow_filter import arrow_filter
from rtolap.query.cluster import Cluster
from rtolap.query.history import EmbeddedHistory
from rtolap.query.lookups import Lookups
from rtolap.query.service import Limits, QueryService
from rtolap.wire.receiver import PartialAnswer, PartialQuery

PARTITIONS = 4


class QueryWorld:
    """`events` has the table's columns and `__partition`, `__offset`; times are whole seconds, UTC."""

    def __init__(self, schema: Schema, events: pa.Table, lookups: dict[str, tuple[Lookup, str]]) -> None:
        self.schema = schema
        self.events = events
        self._folder = tempfile.TemporaryDirectory(prefix="rtolap-query-")
        self.folder = Path(self._folder.name)
        self.store: ObjectStore = open_store((self.folder / "store").as_uri())
        self.metadata = ClusterMetadata(MemoryStore(MemoryEnsemble()), SystemClock())
        self.metadata.create_table(schema.table)
        self.metadata.create_cube(schema.cube)
        for name, (lookup, text) in lookups.items():
            (self.folder / lookup.file).write_text(text)
            assert name == lookup.name
            self.metadata.create_lookup(lookup)
        self.dead: set[str] = set()
        self.asked: list[tuple[str, PartialQuery]] = []
        self.stale_answers = 0
        self.overlapping_answers = 0  # by rs-a, which then holds a partition of rs-b too
        self.before_answer: Callable[[PartialQuery], None] = lambda query: None
        self._lock = threading.Lock()
        assignment: dict[str, tuple[int, ...]] = {"rs-a": (0, 1), "rs-b": (2, 3)}
        for name in assignment:
            for letter in "12":
                receiver = ReceiverRecord(f"{name}-{letter}", "127.0.0.1", 1, name)
                self.metadata.register_receiver(receiver)
                self.metadata.announce_live(receiver.receiver_id, "first")
        self.metadata.update_control(
            schema.cube.name,
            lambda control: msgspec.structs.replace(control, enabled=True, assignment=assignment),
        )
        self.positions = {
            partition: 1 + max(self._offsets(partition), default=-1) for partition in range(PARTITIONS)
        }
        self.built: set[str] = set()

    def service(self, limits: Limits = Limits()) -> QueryService:
        clock = SystemClock()
        return QueryService(
            Cluster(self.metadata, clock),
            EmbeddedHistory(self.store),
            self,
            Lookups(self.folder),
            clock,
            limits,
        )

    def close(self) -> None:
        self._folder.cleanup()

    def segments(self) -> list[SegmentRange]:
        window_ms = self.schema.cube.segment.window_ms
        times: list[Any] = self.events.column(self.schema.table.time.column).cast(pa.int64()).to_pylist()
        return sorted({segment_of(time // 1000, window_ms) for time in times})

    def build(self, segment: SegmentRange, rng: random.Random) -> None:
        """Move a segment into history as version 1, all cuboids."""
        cube = self.schema.cube.name
        location = f"history/{cube}/{segment.name}/v1-test"
        entries = []
        for cuboid in cuboids(self.schema.cube):
            plain = self.partials(self.events_of({segment.name}), cuboid.dimensions, None)
            folder = f"{location}/{cuboid.name}"
            Path(self.store.absolute(folder)).mkdir(parents=True)
            cut = rng.randint(0, plain.num_rows)
            files = []
            for number, piece in enumerate((plain.slice(0, cut), plain.slice(cut))):
                name = f"{cuboid.name}/part-{number}.parquet"
                pq.write_table(piece, self.store.absolute(f"{location}/{name}"), row_group_size=64)
                files.append(describe_file(self.store, location, name))
            entries.append(CuboidEntry(cuboid.name, cuboid.dimensions, plain.num_rows, tuple(files)))
        write_manifest(
            self.store,
            location,
            HistoryManifest(
                cube=cube,
                segment=segment.name,
                version=1,
                build_id="test",
                covered=self.positions,
                events=self.events_of({segment.name}).num_rows,
                cuboids=tuple(entries),
            ),
        )
        self.metadata.update_segment(
            cube,
            segment,
            lambda record: msgspec.structs.replace(
                record, state=SegmentState.READY, version=1, location=location, covered=self.positions
            ),
        )
        self.built.add(segment.name)

    def events_of(self, segments: set[str]) -> pa.Table:
        window_ms = self.schema.cube.segment.window_ms
        times: list[Any] = self.events.column(self.schema.table.time.column).cast(pa.int64()).to_pylist()
        mask = pa.array([segment_of(time // 1000, window_ms).name in segments for time in times], pa.bool_())
        return self.events.filter(mask)

    def ask(
        self,
        receiver_id: str,
        address: str,
        query: PartialQuery,
        on_start: Callable[[Callable[[], None]], None],
    ) -> tuple[pa.Table, PartialAnswer]:
        """RealtimeSource: everything that the snapshot's versions do not name."""
        with self._lock:
            self.asked.append((receiver_id, query))
            stale = self.stale_answers > 0
            self.stale_answers -= int(stale)
            overlaps = receiver_id.startswith("rs-a") and self.overlapping_answers > 0
            self.overlapping_answers -= int(overlaps)
        self.before_answer(query)
        if receiver_id in self.dead:
            raise Unavailable(f"{receiver_id} is down")
        if stale or self.built - set(query.snapshot.versions) - self._outside(query):
            raise StaleSnapshot(f"{receiver_id} has dropped a version")
        mine: tuple[int, ...] = (0, 1) if receiver_id.startswith("rs-a") else (2, 3)
        if overlaps:
            mine = (0, 1, 2)
        asked = (
            {segment.name for segment in self.segments()}
            - set(query.snapshot.versions)
            - self._outside(query)
        )
        events = self.events_of(asked)
        own = pa.array([p in mine for p in events.column("__partition").to_pylist()], pa.bool_())
        table = self.partials(events.filter(own), query.dimensions, query.partials, query)
        positions = {partition: self.positions[partition] for partition in mine}
        return table, PartialAnswer(receiver_id, positions, tuple(sorted(asked)), events.num_rows, 0)

    def partials(
        self,
        events: pa.Table,
        dimensions: tuple[str, ...],
        partials: tuple[str, ...] | None,
        query: PartialQuery | None = None,
    ) -> pa.Table:
        expected = physical_schema(self.schema, dimensions, partials, plain=True)
        with duckdb.connect() as connection:
            connection.register("events", events)
            time = self.schema.table.time.column
            derived = ", ".join(
                f"date_trunc('{name.removesuffix('_start')}', \"{time}\") AS {name}"
                for name in self.schema.cube.time_columns
            )
            connection.register(
                "wide", connection.execute(f"SELECT *, {derived} FROM events").to_arrow_table()
            )
            wide: Any = connection.execute("SELECT * FROM wide").to_arrow_table()
            if query is not None and query.filter is not None:
                wide = wide.filter(arrow_filter(query.filter, self.schema))
            connection.register("kept", wide)
            keys = ", ".join(f'"{name}"' for name in dimensions)
            columns = [f'"{name}"' for name in dimensions]
            for partial in self.schema.partials:
                source = f'"{partial.source}"'
                columns.append(
                    {
                        "rows": "count(*)",
                        "sum": f"sum({source})",
                        "count": f"count({source})",
                        "min": f"min({source})",
                        "max": f"max({source})",
                        "hll": f"list({source})",
                    }[partial.initial]
                    + f' AS "{partial.name}"'
                )
            group = f"GROUP BY {keys}" if dimensions else "HAVING count(*) > 0"
            table: Any = connection.execute(f"SELECT {', '.join(columns)} FROM kept {group}").to_arrow_table()
        for partial in self.schema.partials:
            if partial.op == "hll":
                index = table.column_names.index(partial.name)
                sketches = [
                    _sketch(values, self.schema.lg_k[partial.name])
                    for values in table.column(partial.name).to_pylist()
                ]
                table = table.set_column(index, partial.name, pa.array(sketches, pa.binary()))
        plain: pa.Table = table.select(expected.names).cast(expected)
        return plain

    def _outside(self, query: PartialQuery) -> set[str]:
        start_ms, end_ms = query.snapshot.start_ms, query.snapshot.end_ms
        return {
            segment.name
            for segment in self.segments()
            if (end_ms is not None and segment.start_ms >= end_ms)
            or (query.snapshot.horizon_ms is not None and segment.end_ms <= query.snapshot.horizon_ms)
            or (start_ms is not None and segment.end_ms <= start_ms)
        }

    def _offsets(self, partition: int) -> list[int]:
        pairs: Any = zip(
            self.events.column("__partition").to_pylist(),
            self.events.column("__offset").to_pylist(),
            strict=True,
        )
        return [offset for at, offset in pairs if at == partition]


def _sketch(values: list[object] | None, lg_k: int) -> bytes:
    sketch = datasketches.hll_sketch(lg_k, datasketches.tgt_hll_type.HLL_8)
    for value in values or ():
        if value is not None:
            sketch.update(value)
    return bytes(sketch.serialize_compact())
