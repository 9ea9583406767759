"""A cluster in memory for the query service: raw events, part of them built into history, the rest live.

The obvious slow implementation behind the same seams: partials are computed from the raw rows for every
request, local time by Python's `zoneinfo`, so an answer can be held against the same SQL over the raw rows
(`visible`).
"""

from __future__ import annotations

import atexit
import functools
import random
import struct
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import datasketches
import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rtolap.aggregates.accumulator import GivenForm, Partial
from rtolap.aggregates.approx_percentile import Quantiles
from rtolap.aggregates.approx_top_k import FrequentValues
from rtolap.aggregates.by_time import Picked
from rtolap.aggregates.count_distinct import ValueSet
from rtolap.aggregates.group_concat import SmallestTexts
from rtolap.aggregates.registry import AGGREGATES
from rtolap.base.clock import SystemClock
from rtolap.base.errors import StaleSnapshot, Unavailable
from rtolap.columnar.schema import physical_schema, select_partials
from rtolap.cubes.format.history import describe_file, write_manifest
from rtolap.cubes.format.manifest import (
    MANIFEST_NAME,
    CuboidEntry,
    HistoryManifest,
    MergedManifest,
    encode,
)
from rtolap.cubes.format.pages import WRITTEN
from rtolap.cubes.receiver.answers.top_groups import first_groups, spread_groups
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.merging.commit import commit_set
from rtolap.metadata.records import MergedSet, ReceiverRecord
from rtolap.model.cube import Schema, cuboids
from rtolap.model.merging.intervals import MergeLevel
from rtolap.model.merging.specs import MergeMember
from rtolap.model.segment import SegmentRange, SegmentState, segment_of
from rtolap.model.table import Lookup
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.protocols.receiver.messages import (
    CubeStats,
    LocalSegmentStats,
    PartialAnswer,
    PartialQuery,
    PartitionStats,
)
from rtolap.query.cancel import Cancellation
from rtolap.query.cluster.view import Cluster, Listing
from rtolap.query.cubes.arrow_filter import arrow_filter
from rtolap.query.cubes.history import EmbeddedHistory, LargeScans, MemoryBounds
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.engine_choice import EngineRules
from rtolap.query.engine_session import EngineSession, EngineSessions
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.lookups import Lookups
from rtolap.query.spills.folder import Spills
from rtolap.query.statement_cache import StatementCache
from rtolap.query.statement_service import QueryLimits, QueryService
from rtolap.query.stored.source import StoredSource

from tests.support.aggregates.joined import smallest_texts
from tests.support.aggregates.sets import set_bytes
from tests.support.in_memory import IN_MEMORY
from tests.support.query.calendar_units import unit_start
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

PARTITIONS = 4
_EXAMPLE = {"wrong_type": "column price: expected decimal(10,2), found 1.23456"}
_AGGREGATES = {"sum": "sum", "count": "count", "min": "min", "max": "max", "first": "min", "last": "max"}
_WIDE = pa.decimal128(38, 0)
_ASSIGNMENT: dict[str, tuple[int, ...]] = {"rs-a": (0, 1), "rs-b": (2, 3)}


class QueryWorld:
    """`events` has the table's columns and `__partition`, `__offset`; times are whole seconds, UTC.

    The cubes `schema` and `others` share one table. Methods that take a cube mean the first without.
    """

    def __init__(
        self, schema: Schema, events: pa.Table, lookups: dict[str, tuple[Lookup, str]], *others: Schema
    ) -> None:
        self.schema = schema
        self.schemas = {one.cube.name: one for one in (schema, *others)}
        self.events = events
        self._folder = tempfile.TemporaryDirectory(prefix="rtolap-query-", dir=IN_MEMORY)
        self.folder = Path(self._folder.name)
        self.store: ObjectStore = open_store((self.folder / "store").as_uri())
        self.metadata = ClusterMetadata(MemoryStore(MemoryEnsemble()), SystemClock(), self.store)
        self.metadata.create_table(schema.table)
        for one in self.schemas.values():
            self.metadata.create_cube(one.cube)
        for name, (lookup, text) in lookups.items():
            assert name == lookup.name
            assert lookup.file is not None
            (self.folder / lookup.file).write_text(text)
            self.metadata.create_lookup(lookup)
        self.dead: set[str] = set()
        self.stopped: set[str] = set()  # answer nothing until `resumed` is set
        self.resumed = threading.Event()
        self.asked: list[tuple[str, PartialQuery]] = []
        self.asked_ahead: list[tuple[str, PartialQuery]] = []
        self.spread_groups = spread_groups  # a test may plant a fault
        self.refused: dict[int, dict[str, int]] = {}  # partition → reason → records; see `PartialAnswer`
        self.cuboids: dict[str, int] = {}  # which a receiver says it has read; see `PartialAnswer`
        self.stale_answers = 0
        self.overlapping_answers = 0  # by rs-a, which then holds a partition of rs-b too
        self.before_answer: Callable[[PartialQuery], None] = lambda query: None
        self._lock = threading.Lock()
        self._wide = {name: self._derived(one) for name, one in self.schemas.items()}
        self._segments = {
            name: sorted(
                {segment_of(at, one.cube.segment.window_ms) for at in self._times_ms(self._wide[name])}
            )
            for name, one in self.schemas.items()
        }
        for name in _ASSIGNMENT:
            for letter in "12":
                port = len(self.metadata.receivers()) + 1
                receiver = ReceiverRecord(f"{name}-{letter}", "127.0.0.1", port, name)
                self.metadata.register_receiver(receiver)
                self.metadata.announce_live(receiver.receiver_id, "first")
        for cube in self.schemas:
            self.metadata.update_control(
                cube, lambda control: msgspec.structs.replace(control, enabled=True, assignment=_ASSIGNMENT)
            )
        self.positions = {
            partition: 1 + max(self._offsets(partition), default=-1) for partition in range(PARTITIONS)
        }
        self.built: dict[str, set[str]] = {cube: set() for cube in self.schemas}

    def service(
        self,
        limits: QueryLimits = QueryLimits(),
        stored: StoredSource | None = None,
        *,
        in_workers: bool = False,
        engine: EngineSessions | None = None,
        cache: HistoryCache | None = None,
        bounds: MemoryBounds = MemoryBounds(),
        scans: LargeScans | None = None,
        rules: EngineRules = EngineRules(),
        spills: Spills | None = None,
        statement_cache: StatementCache | None = None,
    ) -> QueryService:
        """Return a service. `stored` is where stored tables come from. `in_workers`: statements run as they
        do in production, in workers of the service's own; otherwise by `engine`, or else in this process,
        which starts quickly. `bounds` are those of what history keeps in memory. `scans` is the other engine
        of history, and `rules` say when it reads. `spills`: where history goes that memory does not take.
        `statement_cache`: what has been read and planned."""
        clock = SystemClock()
        listing = None if stored is None else Listing(stored, clock)
        return QueryService(
            Cluster(self.metadata, clock, listing),
            EmbeddedHistory(self.store, cache, bounds, scans, rules, spills),
            self,
            Lookups(self.folder),
            clock,
            limits,
            stored,
            None if in_workers else engine or _LentEngine(_engine(limits.memory_bytes, limits.threads)),
            statement_cache=statement_cache,
        )

    def close(self) -> None:
        self._folder.cleanup()

    def visible(self, cube: str | None = None) -> pa.Table:
        """Return the raw events as SQL sees them: the event time and the derived dimensions in local time."""
        wide = self._wide[cube or self.schema.cube.name]
        time = self.schema.table.time.column
        local = wide.set_column(wide.column_names.index(time), time, wide.column("__local"))
        return local.drop_columns(["__local", "__segment"])

    def segments(self, cube: str | None = None) -> list[SegmentRange]:
        return self._segments[cube or self.schema.cube.name]

    def events_of(self, segments: set[str], cube: str | None = None) -> pa.Table:
        """Return events of the named segments, with derived columns."""
        wide = self._wide[cube or self.schema.cube.name]
        names: Any = pa.array(sorted(segments), pa.string())
        return wide.filter(pc.is_in(wide.column("__segment"), value_set=names))

    def build(
        self,
        segment: SegmentRange,
        rng: random.Random,
        cube: str | None = None,
        *,
        version: int = 1,
        events_max: int | None = None,
    ) -> None:
        """Move a segment into history, all cuboids. `events_max`: of its events, so that they are other ones
        than those of another version."""
        schema = self.schemas[cube or self.schema.cube.name]
        name = schema.cube.name
        location = f"history/{name}/{segment.name}/v{version}-test"
        events = self.events_of({segment.name}, name).slice(0, events_max)
        entries = self._written(schema, location, events, rng)
        write_manifest(
            self.store,
            location,
            HistoryManifest(
                cube=name,
                segment=segment.name,
                version=version,
                build_id="test",
                covered=self.positions,
                events=events.num_rows,
                cuboids=entries,
            ),
        )
        self.have_built(segment, name, version)

    def _written(
        self, schema: Schema, location: str, events: pa.Table, rng: random.Random
    ) -> tuple[CuboidEntry, ...]:
        """Write all cuboids of these events, in two files each."""
        entries = []
        for cuboid in cuboids(schema.cube):
            plain = self._partials(schema, events, cuboid.dimensions, None)
            folder = f"{location}/{cuboid.name}"
            Path(self.store.absolute(folder)).mkdir(parents=True)
            cut = rng.randint(0, plain.num_rows)
            files = []
            for number, piece in enumerate((plain.slice(0, cut), plain.slice(cut))):
                file = f"{cuboid.name}/part-{number}.parquet"
                pq.write_table(piece, self.store.absolute(f"{location}/{file}"), row_group_size=64, **WRITTEN)
                files.append(describe_file(self.store, location, file))
            entries.append(CuboidEntry(cuboid.name, cuboid.dimensions, plain.num_rows, tuple(files)))
        return tuple(entries)

    def merge(
        self, level: MergeLevel, segments: list[SegmentRange], rng: random.Random, cube: str | None = None
    ) -> MergedSet:
        """Merge READY segments to a set, out of their raw events, and have their records name it."""
        schema = self.schemas[cube or self.schema.cube.name]
        name = schema.cube.name
        folder = f"merged/{name}/{level}/{uuid.UUID(int=rng.getrandbits(128)).hex}"
        records = self.metadata.nodes.segments(name)
        members = []
        for segment in segments:
            record = records[segment.name]
            events = self.events_of({segment.name}, name).num_rows
            members.append(MergeMember(segment.name, record.version, record.location or "", events))
        events = self.events_of({segment.name for segment in segments}, name)
        location = f"{folder}/set"
        manifest = MergedManifest(
            cube=name,
            merge=folder.rpartition("/")[2],
            level=level,
            start_ms=segments[0].start_ms,
            end_ms=segments[-1].end_ms,
            members=tuple(members),
            events=events.num_rows,
            cuboids=self._written(schema, location, events, rng),
        )
        self.store.write(f"{location}/{MANIFEST_NAME}", encode(manifest))
        merged = MergedSet(level, location, len(members))
        assert commit_set(self.metadata, name, members, merged)
        return merged

    def have_built(self, segment: SegmentRange, cube: str, version: int = 1) -> None:
        """Have the version built: its files lie in the store as `build` writes them, and from now on it
        answers for the segment."""
        location = f"history/{cube}/{segment.name}/v{version}-test"
        self.metadata.update_segment(
            cube,
            segment,
            lambda record: msgspec.structs.replace(
                record,
                state=SegmentState.READY,
                version=version,
                location=location,
                covered=self.positions,
                merged=(),
            ),
        )
        self.built[cube].add(segment.name)

    def ask(
        self,
        receiver_id: str,
        address: str,
        query: PartialQuery,
        on_start: Callable[[Callable[[], None]], None],
    ) -> tuple[pa.Table, PartialAnswer]:
        """Answer as RealtimeSource with everything that the snapshot's versions do not name."""
        with self._lock:
            self.asked.append((receiver_id, query))
            stale = self.stale_answers > 0
            self.stale_answers -= int(stale)
            overlaps = receiver_id.startswith("rs-a") and self.overlapping_answers > 0
            self.overlapping_answers -= int(overlaps)
        self.before_answer(query)
        if receiver_id in self.stopped:
            self.resumed.wait(60)
        self._check_alive(receiver_id)
        outside = self._outside(query)
        if stale or self.built[query.cube] - set(query.snapshot.versions) - outside:
            raise StaleSnapshot(f"{receiver_id} has dropped a version")
        mine = (0, 1, 2) if overlaps else _ASSIGNMENT[receiver_id[:4]]
        asked = {s.name for s in self.segments(query.cube)} - set(query.snapshot.versions) - outside
        events = self.events_of(asked, query.cube)
        own = events.filter(pc.is_in(events.column("__partition"), value_set=_int32(mine)))
        table = self._partials(self.schemas[query.cube], own, query.dimensions, query.partials, query)
        left = None
        if query.top is not None and query.top.spread:
            table, left = self.spread_groups(table, query.dimensions, query.top)
        elif query.top is not None:
            table = first_groups(table, query.dimensions, query.top)
        positions = {partition: self.positions[partition] for partition in mine}
        refused = {partition: self.refused[partition] for partition in mine if partition in self.refused}
        return table, PartialAnswer(
            receiver_id,
            positions,
            tuple(sorted(asked)),
            events.num_rows,
            0,
            refused,
            _EXAMPLE,
            dict(self.cuboids),
            left=left,
        )

    def stats(self, receiver_id: str, address: str, cube: str) -> CubeStats:
        """Return, as RealtimeSource, what a receiver holds that no version has."""
        self._check_alive(receiver_id)
        mine = _int32(_ASSIGNMENT[receiver_id[:4]])
        found = []
        for segment in self.segments(cube):
            if segment.name not in self.built[cube]:
                events = self.events_of({segment.name}, cube)
                count = events.filter(pc.is_in(events.column("__partition"), value_set=mine)).num_rows
                found.append(LocalSegmentStats(segment.name, 1, "ACTIVE", count, count, 0, 0))
        partitions = tuple(
            PartitionStats(part, self.positions[part], None, None, False, 0, self.refused.get(part, {}))
            for part in _ASSIGNMENT[receiver_id[:4]]
        )
        return CubeStats(cube, "CONSUMING", "", True, partitions, tuple(found), _EXAMPLE)

    def ping(self, receiver_id: str, address: str, within_s: float) -> None:
        """Answer as RealtimeSource, unless the receiver is dead or stopped."""
        if receiver_id in self.dead | self.stopped:
            raise Unavailable(f"{receiver_id} does not answer")

    def ask_ahead(self, receiver_id: str, address: str, query: PartialQuery) -> None:
        """Note the query as RealtimeSource, unless the receiver is dead."""
        self._check_alive(receiver_id)
        with self._lock:
            self.asked_ahead.append((receiver_id, query))

    def _check_alive(self, receiver_id: str) -> None:
        if receiver_id in self.dead:
            raise Unavailable(f"{receiver_id} is down")

    def _partials(
        self,
        schema: Schema,
        events: pa.Table,
        dimensions: tuple[str, ...],
        partials: tuple[str, ...] | None,
        query: PartialQuery | None = None,
    ) -> pa.Table:
        expected = physical_schema(schema, dimensions, partials, plain=True)
        if query is not None and query.filter is not None:
            events = events.filter(arrow_filter(query.filter, schema))
        keys = {f"key {name}": events.column(name) for name in dimensions}
        if not keys:  # one group, and none where there are no events
            keys["key"] = pa.array(bytes(events.num_rows), pa.uint8())
        columns = dict(keys)
        aggregates: list[tuple[Any, str]] = [([], "count_all")]
        for partial in select_partials(schema, partials):
            if partial.source is None:
                continue
            columns[partial.name] = events.column(partial.source)
            if partial.accumulator.name == "sum":  # as wide as the sum, which then does not wrap around
                columns[partial.name] = columns[partial.name].cast(expected.field(partial.name).type)
            if isinstance(partial.accumulator, Picked):
                columns[partial.name] = _with_keys(columns[partial.name], events, self._times_ms(events))
            aggregates.append((partial.name, _AGGREGATES.get(partial.accumulator.name, "list")))
        grouped = pa.table(columns).group_by(list(keys), use_threads=False).aggregate(aggregates)
        found = {name: grouped.column(f"key {name}") for name in dimensions}
        for partial in select_partials(schema, partials):
            if partial.source is None:
                found[partial.name] = grouped.column("count_all")
                continue
            kernel = _AGGREGATES.get(partial.accumulator.name, "list")
            values = grouped.column(f"{partial.name}_{kernel}")
            if kernel == "list":
                values = _of_lists(partial, values)
            found[partial.name] = values
        return pa.table(found).cast(expected)

    def _derived(self, schema: Schema) -> pa.Table:
        """Return events with `__local`, the time dimensions and `__segment`."""
        time = schema.table.time
        zone = ZoneInfo(time.zone)
        instants: list[Any] = self.events.column(time.column).to_pylist()
        local = [at.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None) for at in instants]
        window_ms = schema.cube.segment.window_ms
        segments = [segment_of(time_ms, window_ms).name for time_ms in self._times_ms()]
        table = self.events.append_column("__local", pa.array(local, pa.timestamp("us")))
        table = table.append_column("__segment", pa.array(segments, pa.string()))
        for name in schema.cube.time_columns:
            unit, first = name.removesuffix("_start"), schema.cube.week_starts_on
            starts = pa.array([unit_start(at, unit, first) for at in local], pa.timestamp("us"))
            table = table.append_column(name, starts)
        revision = schema.cube.revision
        since_ms, until_ms = (None, None) if revision is None else (revision.reads_from_ms, revision.until_ms)
        own = [
            (since_ms is None or at >= since_ms) and (until_ms is None or at < until_ms)
            for at in self._times_ms()
        ]
        return table.filter(pa.array(own, pa.bool_()))

    def _outside(self, query: PartialQuery) -> set[str]:
        start_ms, end_ms = query.snapshot.start_ms, query.snapshot.end_ms
        return {
            segment.name
            for segment in self.segments(query.cube)
            if (end_ms is not None and segment.start_ms >= end_ms)
            or (query.snapshot.horizon_ms is not None and segment.end_ms <= query.snapshot.horizon_ms)
            or (start_ms is not None and segment.end_ms <= start_ms)
        }

    def _times_ms(self, events: pa.Table | None = None) -> list[int]:
        table = self.events if events is None else events
        times: Any = table.column(self.schema.table.time.column).cast(pa.int64()).to_pylist()
        return [time // 1000 for time in times]

    def _offsets(self, partition: int) -> list[int]:
        pairs: Any = zip(
            self.events.column("__partition").to_pylist(),
            self.events.column("__offset").to_pylist(),
            strict=True,
        )
        return [offset for at, offset in pairs if at == partition]


@functools.cache
def _engine(memory_bytes: int, threads: int) -> EmbeddedEngine:
    """Return one engine for all services of this process: opening one takes longer than most statements."""
    engine = EmbeddedEngine(memory_limit_bytes=memory_bytes, threads=threads)
    atexit.register(engine.close)
    return engine


class _LentEngine(EngineSessions):
    """An engine that goes on when its service is closed."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self._engine = engine

    def session(self, ending: Cancellation) -> EngineSession:
        return self._engine.session(ending)

    def close(self) -> None:
        """Do nothing: others use it."""


def _int32(values: tuple[int, ...]) -> Any:
    return pa.array(values, pa.int32())


def _of_lists(partial: Partial, lists: Any) -> Any:
    """Merge the partials of lists of values, where Arrow has no aggregate for them, by the engine's own."""
    given = partial.accumulator.given_form
    if given is not None:
        return pa.array([given_union(each or (), given) for each in lists.to_pylist()], pa.binary())
    form = partial.accumulator.local_form
    if form is not None:
        return pa.array([_sketch(each, form.lg_k) for each in lists.to_pylist()], pa.binary())
    if isinstance(partial.accumulator, SmallestTexts):
        bound = partial.accumulator.bytes_max
        return pa.array([smallest_texts(each or (), bound) for each in lists.to_pylist()], pa.binary())
    if isinstance(partial.accumulator, Quantiles):
        k = partial.accumulator.k
        return pa.array([_quantiles(each, k) for each in lists.to_pylist()], pa.binary())
    if isinstance(partial.accumulator, FrequentValues):
        size = partial.accumulator.lg_size
        return pa.array([_frequencies(each, size) for each in lists.to_pylist()], pa.binary())
    if isinstance(partial.accumulator, ValueSet):
        kind: Any = lists.type.value_type
        scale = kind.scale if pa.types.is_decimal(kind) else 0
        sets = [set_bytes(each or (), partial.accumulator.form, scale) for each in lists.to_pylist()]
        return pa.array(sets, pa.binary())
    if partial.accumulator.name in ("squares_low", "squares_high"):
        return pa.array([_squares(each, partial.accumulator.name) for each in lists.to_pylist()], _WIDE)
    title = next(f.title for f in AGGREGATES.values() if partial.accumulator in f.accumulators())
    with duckdb.connect() as engine:
        engine.register("groups", pa.table({"l": lists}))
        found: Any = engine.execute(f"SELECT list_aggr(l, '{title.lower()}') FROM groups")
        return found.to_arrow_reader(1 << 20).read_all().column(0)


def _squares(values: list[Any] | None, part: str) -> Decimal | None:
    """Return the sum of the lowest 32 bits of the squares of unscaled values, or of the bits above them."""
    known = [value for value in values or () if value is not None]
    if not known:
        return None
    squares = [int("".join(map(str, Decimal(value).as_tuple().digits))) ** 2 for value in known]
    return Decimal(sum(square % 2**32 if part == "squares_low" else square >> 32 for square in squares))


def _with_keys(column: Any, events: pa.Table, times_ms: list[int]) -> Any:
    """Return FIRST's and LAST's partial of each event: time, partition, offset, and the value as text."""
    partitions, offsets = (events.column(name).to_pylist() for name in ("__partition", "__offset"))
    values = pc.cast(column, pa.string()).to_pylist()
    return pa.array(
        [
            None if value is None else struct.pack(">QIQ", at_ms + (1 << 63), *place) + value.encode()
            for value, at_ms, *place in zip(values, times_ms, partitions, offsets, strict=True)
        ],
        pa.binary(),
    )


def given_union(images: Iterable[bytes | None], form: GivenForm) -> bytes | None:
    """Return the union of sketches, by the library alone."""
    known = [each for each in images if each is not None]
    if form.family == "hll":
        union = datasketches.hll_union(form.size)
        for each in known:
            union.update(datasketches.hll_sketch.deserialize(each))
        found = union.get_result(datasketches.tgt_hll_type.HLL_8).serialize_compact()
        return bytes(found) if known else None
    kind = datasketches.kll_doubles_sketch
    if form.family == "frequent_items":
        kind = datasketches.frequent_strings_sketch
    merged = kind(form.size)
    for each in known:
        merged.merge(kind.deserialize(each))
    return bytes(merged.serialize()) if known else None


def _quantiles(values: list[Any] | None, k: int) -> bytes | None:
    """Return a sketch that has got its values one after another."""
    known = [float(value) for value in values or () if value is not None]
    sketch = datasketches.kll_doubles_sketch(k)
    for value in known:
        sketch.update(value)
    return bytes(sketch.serialize()) if known else None


def _frequencies(values: list[Any] | None, lg_size: int) -> bytes | None:
    """Return a sketch that has got its values one after another."""
    known = [value_text(value) for value in values or () if value is not None]
    sketch = datasketches.frequent_strings_sketch(lg_size)
    for value in known:
        sketch.update(value)
    return bytes(sketch.serialize()) if known else None


def value_text(value: Any) -> str:
    """Return a value as APPROX_TOP_K shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, "f") if isinstance(value, Decimal) else str(value)[:256]


def _sketch(values: list[object] | None, lg_k: int) -> bytes:
    sketch = datasketches.hll_sketch(lg_k, datasketches.tgt_hll_type.HLL_8)
    for value in values or ():
        if value is not None:
            sketch.update(value if isinstance(value, int | float | str) else str(value))
    return bytes(sketch.serialize_compact())
