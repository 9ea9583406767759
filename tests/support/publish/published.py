"""A cube with READY versions in an object store, and publishers of it, without any service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from rtolap.base.clock import SystemClock
from rtolap.columnar.schema import history_schema
from rtolap.cubes.format import history
from rtolap.cubes.format.build_batch import write_file
from rtolap.cubes.format.manifest import CuboidEntry, HistoryManifest
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.publications import Publications
from rtolap.metadata.records import BuildAttempt, SegmentRecord
from rtolap.metadata.store import MetadataStore
from rtolap.model.cube import Cuboid, cuboids
from rtolap.model.offsets import PartRange
from rtolap.model.publication import IcebergCatalog, Publication
from rtolap.model.segment import SegmentRange, StagedPart
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.publish.catalog import close_catalog, open_catalog
from rtolap.publish.publisher import Publisher
from rtolap.publish.table import PublishedTable

from tests.support.cubes.staging import CUBE, SCHEMA, TABLE, raw_events, roll_up
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

DAY_MS = 86_400_000
NAME = "lake_sales"
SUMS = ("__rows", "items__sum", "items__count", "big__sum", "price__sum", "weight__sum")


def day(number: int) -> SegmentRange:
    start_ms = 1_356_998_400_000 + number * DAY_MS  # 2013-01-01
    return SegmentRange(start_ms, start_ms + DAY_MS)


class PublishedCube:
    """The sales cube, its records and its files, and what every version was made of."""

    def __init__(self, folder: Path, store: MetadataStore | None = None, uri: str | None = None) -> None:
        """`uri`: of the services' object store; None: a folder, and no services."""
        self.folder = folder
        self.store = store or MemoryStore(MemoryEnsemble())
        self.clock = SystemClock()
        self.uri = uri or (folder / "ein Stück 50%").as_uri()
        self.files: ObjectStore = open_store(self.uri)
        self.files.claim()
        self.metadata = ClusterMetadata(self.store, self.clock, None if uri is None else self.files)
        self.records = Publications(self.store)
        self.metadata.create_table(TABLE)
        self.metadata.create_cube(CUBE)
        self.raw: dict[str, pa.Table] = {}  # by segment: what the READY version holds
        self._closers: list[Callable[[], None]] = []

    def close(self) -> None:
        for close in self._closers:
            close()
        self.store.close()

    # -- the life of segments ----------------------------------------------------------------------------

    def promote(
        self, number: int, events: int = 20, *, with_ids: bool = True, seed: int = 7
    ) -> SegmentRecord:
        """Promote the next version of a day: what it had, and so many events more."""
        window = day(number)
        record = self.metadata.segment(CUBE.name, window.name) or SegmentRecord(
            cube=CUBE.name, start_ms=window.start_ms, end_ms=window.end_ms
        )
        start = record.covered.get(0, 0)
        fresh = raw_events(seed, number, start, start + events, window.name)
        end = start + max(events, 1)  # offsets go on even where no event is of this segment
        known = self.raw.get(window.name)
        raw = fresh if known is None else pa.concat_tables([known, fresh])
        build_id = f"b{number}x{record.version + 1}"
        of_cube = f"history/{CUBE.name}/{self.metadata.cube_id(CUBE.name)}"
        location = f"{of_cube}/{window.name}/v{record.version + 1}-{build_id}"
        self.write_version(location, window, record.version + 1, raw, {0: end}, with_ids=with_ids)
        now_ms = self.clock.now_ms()

        def promoted(before: SegmentRecord) -> SegmentRecord:
            closed = segments.close(before, {0: end}, now_ms=now_ms, by="rs1")
            part = StagedPart("rs1", "staged/none", (PartRange(0, start, end),), events, events, 1)
            whole = segments.add_part(closed, part, partitions=(0,), first={0: 0}, now_ms=now_ms)
            attempt = BuildAttempt(build_id, before.version + 1, now_ms, location)
            started = segments.start_build(whole, attempt)
            return segments.promote(started, build_id, events=raw.num_rows, now_ms=now_ms)

        after = self.metadata.update_segment(CUBE.name, window, promoted)
        self.raw[window.name] = raw
        return after

    def write_version(
        self,
        location: str,
        window: SegmentRange,
        version: int,
        raw: pa.Table,
        covered: dict[int, int],
        *,
        with_ids: bool,
    ) -> None:
        entries = []
        for cuboid in cuboids(CUBE):
            folder = history.cuboid_folder(cuboid)
            rows = roll_up(raw, cuboid.dimensions)
            files = []
            half = max(1, rows.num_rows // 2)
            parts = [rows.slice(0, half), rows.slice(half)] if raw.num_rows else []
            for place, part in enumerate(each for each in parts if each.num_rows):
                name = f"{folder}/part-{place:05}.parquet"
                schema = history_schema(SCHEMA, cuboid.dimensions)
                plain = schema if with_ids else schema.remove_metadata()
                if not with_ids:
                    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
                files.append(write_file(self.files, location, name, plain, part.to_batches()))
            entries.append(CuboidEntry(folder, cuboid.dimensions, rows.num_rows, tuple(files)))
        manifest = HistoryManifest(
            cube=CUBE.name,
            segment=window.name,
            version=version,
            build_id=location.rpartition("-")[2],
            covered=covered,
            events=raw.num_rows,
            cuboids=tuple(entries),
        )
        history.write_manifest(self.files, location, manifest)

    def purge(self, number: int) -> None:
        def purged(record: SegmentRecord) -> SegmentRecord:
            return segments.purge(record, now_ms=self.clock.now_ms(), by="a test")

        self.metadata.update_segment(CUBE.name, day(number), purged)
        self.raw.pop(day(number).name, None)

    # -- publishing --------------------------------------------------------------------------------------

    def publication(self, **changes: Any) -> Publication:
        catalog = IcebergCatalog(
            kind="sqlite",
            address=str(self.folder / "catalog.db"),
            warehouse=(self.folder / "warehouse").as_uri(),
        )
        given = {"name": NAME, "cube": CUBE.name, "table": "olap.sales", "catalog": catalog, **changes}
        return Publication(**given)

    def declared(self, **changes: Any) -> Publication:
        publication = self.publication(**changes)
        self.records.declare(publication)
        return publication

    def publisher(self, publication: Publication, **more: Any) -> Publisher:
        """Open another publisher with a catalog of its own, as another process has."""
        catalog = open_catalog(publication.catalog)
        cuboid = self.cuboid(publication)
        table = PublishedTable(catalog, publication, SCHEMA, cuboid, self.files)
        made = Publisher(table, self.metadata, self.clock, **more)
        self._closers += [made.close, lambda: close_catalog(catalog)]
        return made

    def cuboid(self, publication: Publication) -> Cuboid:
        wanted = publication.cuboid
        return next(c for c in cuboids(CUBE) if wanted is None or set(c.dimensions) == set(wanted))

    def catalog(self, publication: Publication) -> Catalog:
        """Return the catalog as a reader opens it."""
        catalog = open_catalog(publication.catalog)
        self._closers.append(lambda: close_catalog(catalog))
        return catalog

    def table(self, publication: Publication) -> IcebergTable:
        return self.catalog(publication).load_table(publication.identifier)

    # -- what has to come out ----------------------------------------------------------------------------

    def expected(self, dimensions: Sequence[str]) -> pa.Table:
        """Return what the raw events of all READY versions roll up to, over all segments."""
        return roll_up(pa.concat_tables([raw_events(0, 0, 0, 0), *self.raw.values()]), dimensions)

    def assert_published(self, publication: Publication) -> None:
        """Check that the newest snapshot names each file of each READY version once and no other, and that a
        reader's merge of it equals a plain recount."""
        cuboid, table = self.cuboid(publication), self.table(publication)
        named = sorted(task.file.file_path for task in table.scan().plan_files())
        assert named == sorted(self.expected_files(cuboid))
        root = self.files.uri("") + "/"
        for uri in named:
            assert self.files.size_bytes(uri.removeprefix(root)) > 0, uri
        rows = table.scan().to_arrow()
        assert totals(rows) == totals(self.expected(cuboid.dimensions))

    def expected_files(self, cuboid: Cuboid) -> list[str]:
        found = []
        for record in self.metadata.segments(CUBE.name).values():
            if record.version and record.state != "PURGED":
                assert record.location is not None
                manifest = history.read_manifest(self.files, record.location)
                entry = history.entry_of(manifest, cuboid)
                found += [self.files.uri(f"{record.location}/{file.name}") for file in entry.files]
        return found


def totals(rows: pa.Table) -> dict[str, Decimal | float | int | None]:
    """Return the sum of each partial that adds up."""
    found: dict[str, Decimal | float | int | None] = {}
    for name in SUMS:
        values = [value for value in rows.column(name).to_pylist() if value is not None]
        found[name] = sum(values[1:], values[0]) if values else None
    return found


def read_files(uris: Sequence[str]) -> pa.Table:
    """Return the rows of Parquet files with nothing but pyarrow."""
    return pa.concat_tables([pq.read_table(uri.removeprefix("file://")) for uri in uris])
