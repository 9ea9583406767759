"""The Iceberg table of a publication: which versions its snapshots name, and the commit that changes them.

Nothing here decides what is published. A commit requires that the newest snapshot is still the one that was
looked at; another publisher's commit in between makes it a CommitConflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from rtolap.base.errors import AlreadyExists, Corrupted, NotFound, Refused
from rtolap.columnar.schema import FIELD_ID
from rtolap.cubes.format.history import ReadyFile
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.model.cube import Cuboid, Schema
from rtolap.model.publication import Publication
from rtolap.model.validation.publication import published_cuboid
from rtolap.object_store.store import ObjectStore
from rtolap.publish.catalog import close_catalog, named, open_catalog
from rtolap.publish.columns import (
    CUBE_ID,
    PUBLICATION,
    cube_schema,
    cuboid_columns,
    cuboid_schema,
    same_columns,
    table_properties,
)
from rtolap.publish.snapshot import expire, replace_files, sweep
from rtolap.publish.versions import Version, version_of_file

_SUMMARY_VERSIONS_MAX = 200  # named in a snapshot's summary; all are in its files' paths


class NamedFile(NamedTuple):
    """A data file of a snapshot.

    Attributes:
        uri: as the snapshot names it.
        version: None where it is no file of this cube's history.
    """

    uri: str
    rows: int
    version: Version | None


@contextmanager
def published_table(
    metadata: ClusterMetadata, publication: Publication, store: ObjectStore
) -> Iterator[PublishedTable]:
    """Connect to the catalog, and close it at the end. The table is neither read nor made yet."""
    schema = metadata.schema(publication.cube)
    cuboid = published_cuboid(publication, schema.cube)
    catalog = open_catalog(publication.catalog)
    try:
        yield PublishedTable(catalog, publication, schema, cuboid, store)
    finally:
        close_catalog(catalog)


class PublishedTable:
    """A table of the catalog that belongs to one publication."""

    def __init__(
        self, catalog: Catalog, publication: Publication, schema: Schema, cuboid: Cuboid, store: ObjectStore
    ) -> None:
        self.publication = publication
        self._catalog = catalog
        self._schema = schema
        self.cuboid = cuboid
        self.store = store
        self._table: Table | None = None
        self._manifests: dict[str, tuple[NamedFile, ...]] = {}  # by path: what is written never changes

    @property
    def table(self) -> Table:
        assert self._table is not None, "`open` comes first"
        return self._table

    @property
    def snapshot(self) -> Snapshot | None:
        return self.table.metadata.current_snapshot()

    def read(self) -> None:
        """Read the table as it is now. Raises NotFound where there is none."""
        with named(self.publication.catalog):
            self._table = self._catalog.load_table(self.publication.identifier)

    def snapshot_of(self, snapshot_id: int | None) -> Snapshot | None:
        """Return a snapshot, None for the newest. Raises NotFound."""
        if snapshot_id is None:
            return self.snapshot
        found = self.table.metadata.snapshot_by_id(snapshot_id)
        if found is None:
            there = [each.snapshot_id for each in self.table.metadata.snapshots]
            raise NotFound(f"table {self.publication.table} has no snapshot {snapshot_id}", found=there)
        return found

    def open(self, cube_id: str) -> None:
        """Read the table as it is now, and make it where there is none.

        Raises AlreadyExists where the table is not this publication's, Refused where its columns are others.
        """
        with named(self.publication.catalog):
            try:
                self._table = self._catalog.load_table(self.publication.identifier)
            except NoSuchTableError:
                self._table = self._create(cube_id)
            self._check_owner()
            self._set_properties(cube_id)

    def named_files(self, snapshot: Snapshot | None) -> tuple[NamedFile, ...]:
        """Return the data files of a snapshot. Manifests that were read before are not read again."""
        if snapshot is None:
            return ()
        with named(self.publication.catalog):
            files: list[NamedFile] = []
            for manifest in snapshot.manifests(self.table.io):
                if manifest.manifest_path not in self._manifests:
                    self._manifests[manifest.manifest_path] = tuple(self._read(manifest))
                files += self._manifests[manifest.manifest_path]
        return tuple(files)

    def named_versions(self) -> set[Version]:
        """Return all versions that any snapshot names."""
        return {
            file.version
            for snapshot in self.table.metadata.snapshots
            for file in self.named_files(snapshot)
            if file.version is not None
        }

    def replace(
        self, added: Mapping[Version, Sequence[ReadyFile]], removed: Sequence[NamedFile], cube_id: str
    ) -> None:
        """Commit one snapshot on top of the one that was read. Raises CommitConflict, CommitUnknown."""
        data_files = [self._data_file(file) for files in added.values() for file in files]
        names = sorted(f"{version.segment.name}=v{version.version}" for version in added)
        summary = {
            PUBLICATION: self.publication.name,
            CUBE_ID: cube_id,
            "rtolap.versions-added": str(len(names)),
            "rtolap.versions": " ".join(names[:_SUMMARY_VERSIONS_MAX]),
        }
        with named(self.publication.catalog):
            replace_files(self.table, data_files, {file.uri for file in removed}, summary)

    @property
    def snapshots(self) -> int:
        return len(self.table.metadata.snapshots)

    @property
    def metadata_bytes(self) -> int:
        """Return the size of the newest metadata file, which every reader reads."""
        with named(self.publication.catalog):
            return len(self.table.io.new_input(self.table.metadata_location))

    def expire(self, snapshot_ids: Sequence[int]) -> None:
        """Remove snapshots, with the metadata files that only they name."""
        with named(self.publication.catalog):
            expire(self.table, snapshot_ids)
            there = {
                manifest.manifest_path
                for snapshot in self.table.metadata.snapshots
                for manifest in snapshot.manifests(self.table.io)
            }
        self._manifests = {path: files for path, files in self._manifests.items() if path in there}

    def sweep(self) -> None:
        """Delete metadata files that killed publishers have left."""
        with named(self.publication.catalog):
            sweep(self.table)

    def _create(self, cube_id: str) -> Table:
        """All columns of the cube are made in one commit, and those that the cuboid lacks are dropped in it:
        catalogs number the columns of a new table by themselves."""
        namespace, _ = self.publication.identifier
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(namespace)
        lacking = set(cube_schema(self._schema).column_names) - set(cuboid_columns(self._schema, self.cuboid))
        properties = table_properties(self.publication, self._schema, self.cuboid, cube_id)
        with self._catalog.create_table_transaction(
            self.publication.identifier, cube_schema(self._schema), properties=properties
        ) as transaction:
            if lacking:
                with transaction.update_schema(allow_incompatible_changes=True) as update:
                    for name in sorted(lacking):
                        update.delete_column(name)
        return self._catalog.load_table(self.publication.identifier)

    def _check_owner(self) -> None:
        owner = self.table.properties.get(PUBLICATION)
        if owner != self.publication.name:
            raise AlreadyExists(
                f"table {self.publication.table} in {self.publication.catalog.address} is somebody else's",
                expected=f"the property {PUBLICATION}={self.publication.name}",
                found=f"{PUBLICATION}={owner}" if owner else "no such property",
                action="name another table in the publication",
            )
        wanted = cuboid_schema(self._schema, self.cuboid)
        if not same_columns(self.table.schema(), wanted):
            raise Refused(
                f"table {self.publication.table} has other columns than publication {self.publication.name}",
                expected="; ".join(str(field) for field in wanted.fields),
                found="; ".join(str(field) for field in self.table.schema().fields),
                action=f"`rtolap publish reset {self.publication.name}` drops the table and makes it anew",
            )

    def _set_properties(self, cube_id: str) -> None:
        wanted = table_properties(self.publication, self._schema, self.cuboid, cube_id)
        changed = {key: value for key, value in wanted.items() if self.table.properties.get(key) != value}
        if changed:
            with self.table.transaction() as transaction:
                transaction.set_properties(changed)

    def _read(self, manifest: ManifestFile) -> Iterator[NamedFile]:
        root = self.store.uri("") + "/"
        for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=True):
            file = entry.data_file
            path = file.file_path.removeprefix(root) if file.file_path.startswith(root) else ""
            yield NamedFile(file.file_path, file.record_count, version_of_file(path))

    def _data_file(self, file: ReadyFile) -> DataFile:
        """Return the entry of a Parquet file, with statistics out of its footer."""
        with self.store.open(file.path) as source:
            try:
                footer = pq.read_metadata(source)
            except (OSError, pa.ArrowException) as error:
                raise Corrupted(f"file {file.path} is not Parquet", found=str(error)) from error
        schema, metadata = self.table.schema(), self.table.metadata
        self._check_footer(file, footer)
        with named(self.publication.catalog):
            statistics = data_file_statistics_from_parquet_metadata(
                parquet_metadata=footer,
                stats_columns=compute_statistics_plan(schema, metadata.properties),
                parquet_column_mapping=parquet_path_to_id_mapping(schema),
            )
            return DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=self.store.uri(file.path),
                file_format=FileFormat.PARQUET,
                partition=statistics.partition(metadata.spec(), schema),
                file_size_in_bytes=file.bytes,
                sort_order_id=None,
                spec_id=metadata.default_spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )

    def _check_footer(self, file: ReadyFile, footer: pq.FileMetaData) -> None:
        """Check that readers find each column by its id, or by its name where the file has no ids."""
        if footer.num_rows != file.rows:
            raise Corrupted(
                f"file {file.path} has another number of rows", expected=file.rows, found=footer.num_rows
            )
        wanted = {field.name: field.field_id for field in self.table.schema().fields}
        found = {
            field.name: (field.metadata or {}).get(FIELD_ID) for field in footer.schema.to_arrow_schema()
        }
        ids = {name: None if number is None else int(number) for name, number in found.items()}
        if ids.keys() != wanted.keys() or ids not in (wanted, dict.fromkeys(wanted)):
            raise Refused(
                f"file {file.path} has other columns than table {self.publication.table}",
                expected=wanted,
                found=ids,
                action="build the segment again: `rtolap segments requeue CUBE SEGMENT`",
            )
