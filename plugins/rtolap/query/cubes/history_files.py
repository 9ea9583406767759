"""Manifests and files of READY versions, checked against what they should be: copies in the disk cache where
there are any, else the object store's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
from cachetools import LRUCache
from pyarrow import fs

from rtolap.base.errors import Corrupted, NotFound, Unavailable
from rtolap.cubes.format.file_ranges import range_bounds
from rtolap.cubes.format.history import REBUILD
from rtolap.cubes.format.manifest import (
    MANIFEST_NAME,
    CuboidEntry,
    FileEntry,
    FileRange,
    HistoryManifest,
    MergedManifest,
    decode,
)
from rtolap.cubes.format.pages import open_parquet, parquet_format
from rtolap.metadata.merging.units import HistoryUnit
from rtolap.object_store.store import ObjectStore
from rtolap.query.cubes.byte_bounded import ByteBounded
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.plan import ReadStats

log = logging.getLogger(__name__)

MANIFEST_BYTES_MAX = 16 << 20  # of manifests as they are stored: a few kilobytes each
FOOTER_BYTES_MAX = 32 << 20  # of footers as they are stored; parsed they take a few times as much
FILES_CACHED_MAX = 20_000  # names of files and row groups whose checksum was found right

T = TypeVar("T")


class CopiesFailed(Exception):
    """Reading copies has failed when some of their rows were passed on already. Damaged copies were dropped;
    what was read is to be forgotten, and read again from the store."""


class HistoryFile(NamedTuple):
    """A file of history, in the store or on the local disk.

    Attributes:
        path: the path within `filesystem`.
        bytes: the size of the file.
        check: compares row groups with the manifest, all of them for None; None: the file is checked already.
    """

    filesystem: fs.FileSystem
    path: str
    bytes: int
    check: Callable[[Sequence[int] | None], None] | None = None

    def compare(self, groups: Sequence[int] | None = None) -> None:
        """Compare the row groups that are about to be read, or all. Raises Corrupted, and Unavailable."""
        if self.check is not None:
            self.check(groups)


class ParquetFooter(NamedTuple):
    """The footer of a Parquet file.

    Attributes:
        fragment: the file as part of a data set, which holds the parsed footer.
    """

    fragment: ds.ParquetFileFragment
    rows: int
    columns: frozenset[str]


class ParquetFooters:
    """Footers of Parquet files, read once: a file that is published never changes. Thread-safe.

    A footer is two requests to a remote store and some 0.3 ms of parsing, and says which rows need not be
    read.
    """

    def __init__(self, bytes_max: int = FOOTER_BYTES_MAX) -> None:
        self._format = parquet_format()
        self._footers: ByteBounded[ParquetFooter] = ByteBounded(bytes_max)

    def footer(self, file: HistoryFile) -> ParquetFooter:
        """Return the footer of a file. Raises OSError and pyarrow.ArrowException."""
        known = self._footers.find(file.path)
        if known is not None:
            return known
        fragment = self._format.make_fragment(file.path, file.filesystem, file_size=file.bytes)
        fragment.ensure_complete_metadata()
        metadata = fragment.metadata
        footer = ParquetFooter(fragment, metadata.num_rows, frozenset(metadata.schema.names))
        self._footers.keep(file.path, footer, metadata.serialized_size)
        return footer

    def read(self, file: HistoryFile, schema: pa.Schema, *, use_threads: bool) -> pa.Table:
        """Return columns of all rows of a file, strings as dictionaries where the schema has them so.

        Raises OSError, pyarrow.ArrowException and Corrupted.
        """
        file.compare()
        metadata = self.footer(file).fragment.metadata
        strings = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        with (
            file.filesystem.open_input_file(file.path) as source,
            open_parquet(source, metadata=metadata, pre_buffer=True, read_dictionary=strings) as parquet,
        ):
            table = parquet.read(schema.names, use_threads=use_threads)
        return table.select(schema.names).cast(schema)

    def discard(self, file: HistoryFile) -> None:
        """Forget the file after a failed read: what is known about it may be wrong."""
        self._footers.discard(file.path)

    def dataset(self, fragments: list[ds.ParquetFileFragment], schema: pa.Schema) -> ds.FileSystemDataset:
        return ds.FileSystemDataset(fragments, schema, self._format)


class HistoryFiles:
    """The files of history, checked before they are read. Thread-safe.

    Sizes and checksums are checked when this process first reads a file and after a failure, because no file
    is written a second time: of the whole file, or, where the manifest has more, of the footer first and of
    row groups before they are read. Manifests and `footers` are cached too.

    All methods raise Unavailable when the store does not answer.
    """

    def __init__(self, store: ObjectStore, cache: HistoryCache | None = None) -> None:
        self._store = store
        self._cache = cache
        self._lock = threading.Lock()
        self._manifests: ByteBounded[HistoryManifest | MergedManifest] = ByteBounded(MANIFEST_BYTES_MAX)
        self.footers = ParquetFooters()
        self._verified: LRUCache[str, bool] = LRUCache(FILES_CACHED_MAX)

    def manifest(self, unit: HistoryUnit) -> HistoryManifest | MergedManifest:
        """Return the manifest of a unit. Raises Corrupted when it is missing, damaged or of other
        versions."""
        known = self._manifests.find(unit.location)
        if known is not None:
            return known
        path = f"{unit.location}/{MANIFEST_NAME}"
        copy = None if self._cache is None else self._cache.read(path)
        with _named(path):
            data = copy or self._store.read(path)
        manifest = manifest_of(unit, data, path)
        self._manifests.keep(unit.location, manifest, len(data))
        return manifest

    def use(
        self,
        unit: HistoryUnit,
        location: str,
        cuboid: CuboidEntry,
        stats: ReadStats,
        do: Callable[[Sequence[HistoryFile]], T],
        *,
        verified: bool,
        with_copies: bool = True,
        is_streamed: bool = False,
    ) -> T:
        """Return the result of `do` with the cuboid's files, which stay while it runs. Count them in `stats`.

        If reading copies fails, damaged copies are dropped and `do` runs again over the store's files alone.
        Only errors of that second run are raised.

        Args:
            verified: True if the store's files are checked before they are read; copies always are.
            with_copies: False if the store's files are read, whatever is cached.
            is_streamed: True if `do` passes rows on, so that it cannot run again: CopiesFailed is raised
                instead.
        """
        if self._cache is not None and with_copies:
            done = self._use_copies(
                self._cache, location, cuboid, stats, do, verified=verified, is_streamed=is_streamed
            )
            if done is not None:
                return done[0]
        paths = [f"{location}/{file.name}" for file in cuboid.files]
        if verified:
            for path, file in zip(paths, cuboid.files, strict=True):
                self._verify(path, file)
        files = [
            self._stored(path, file, verified=verified)
            for path, file in zip(paths, cuboid.files, strict=True)
        ]
        with self._readable(unit, location, cuboid, files):
            result = do(files)
        stats.files_remote += len(paths)
        return result

    def count(self, location: str, cuboid: CuboidEntry, stats: ReadStats) -> None:
        """Count files where they would be read; what is needed of them is in memory."""
        copies = 0
        if self._cache is not None:
            named = {f"{location}/{file.name}": file for file in cuboid.files}
            with self._cache.leases(list(named)) as leased:
                copies = sum(copy is not None and copy.sha256 == named[copy.path].sha256 for copy in leased)
        stats.files_cached += copies
        stats.files_remote += len(cuboid.files) - copies

    def _use_copies(
        self,
        cache: HistoryCache,
        location: str,
        cuboid: CuboidEntry,
        stats: ReadStats,
        do: Callable[[Sequence[HistoryFile]], T],
        *,
        verified: bool,
        is_streamed: bool,
    ) -> tuple[T] | None:
        """Do `do` with the copies in the cache; return None if no file has a copy, or reading copies
        failed. Raises CopiesFailed instead where that is streamed.
        """
        named = {f"{location}/{file.name}": file for file in cuboid.files}
        with cache.leases(list(named)) as leased:
            copies = {copy.path for copy in leased if copy and copy.sha256 == named[copy.path].sha256}
            if not copies:
                return None
            files = [
                _copied(cache, path, file) if path in copies else self._stored(path, file, verified=verified)
                for path, file in named.items()
            ]
            try:
                for path, file in named.items():
                    if verified and path not in copies:
                        self._verify(path, file)
                result = do(files)
            except (OSError, pa.ArrowException, Corrupted) as error:
                log.warning("reading copies of %s failed, the store is read: %s", location, error)
                for each in files:
                    self.footers.discard(each)
                cache.check_again([copy for copy in leased if copy is not None])
                if is_streamed:
                    raise CopiesFailed from error
                return None
        stats.files_cached += len(copies)
        stats.files_remote += len(named) - len(copies)
        return (result,)

    def _stored(self, path: str, file: FileEntry, *, verified: bool) -> HistoryFile:
        check = partial(self._verify_groups, path, file) if verified and file.ranges else None
        return HistoryFile(self._store.fs, self._store.absolute(path), file.bytes, check)

    def _verify(self, path: str, file: FileEntry) -> None:
        """Compare size and checksum, once: of the whole file, or of its footer where there are ranges.

        Raises Corrupted when it is missing or damaged.
        """
        if not file.ranges:
            self._once(path, lambda: self._compare(path, file))
            return

        def compare_size() -> None:
            with _named(path):
                size = self._store.size_bytes(path)
            check_found(path, file, size)

        self._once(path, compare_size)
        self._verify_ranges(path, file, (len(file.ranges) - 1,))

    def _verify_groups(self, path: str, file: FileEntry, groups: Sequence[int] | None) -> None:
        self._verify_ranges(path, file, range(len(file.ranges) - 1) if groups is None else groups)

    def _verify_ranges(self, path: str, file: FileEntry, numbers: Sequence[int]) -> None:
        bounds = list(range_bounds(file.ranges))
        for number in numbers:
            self._once(f"{path}\0{number}", partial(self._compare_range, path, *bounds[number]))

    def _once(self, name: str, compare: Callable[[], None]) -> None:
        with self._lock:
            if self._verified.get(name):
                return
        compare()
        with self._lock:
            self._verified[name] = True

    def _compare_range(self, path: str, start: int, expected: FileRange) -> None:
        with _named(path):
            found = self._store.sha256_of_range(path, start, expected.bytes)
        if found != expected.sha256:
            where = f"sha256 of bytes {start} to {start + expected.bytes}"
            raise damaged_file(path, f"{where}: {expected.sha256}", found)

    @contextmanager
    def _readable(
        self, unit: HistoryUnit, location: str, cuboid: CuboidEntry, files: Sequence[HistoryFile]
    ) -> Iterator[None]:
        """Translate the engine's errors while it reads the cuboid into Unavailable or Corrupted.

        A store that fails in mid-read and a damaged file raise the same error, so the files are checked
        again.
        """
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            for each in files:
                self.footers.discard(each)
            for file in cuboid.files:
                self._compare(f"{location}/{file.name}", file)
            name = f"history of {unit.title}"
            if isinstance(error, OSError):
                raise Unavailable(
                    f"reading the {name} broke off, though its files are whole",
                    found=str(error),
                    action="ask again, and look at the object store if it stays so",
                ) from error
            raise Corrupted(
                f"{name} cannot be read",
                found=str(error),
                action=REBUILD,
            ) from error

    def _compare(self, path: str, file: FileEntry) -> None:
        with _named(path):
            digest, size = self._store.sha256(path)
        check_found(path, file, size, digest)


def _copied(cache: HistoryCache, path: str, file: FileEntry) -> HistoryFile:
    return HistoryFile(cache.folder.files.fs, cache.folder.files.absolute(path), file.bytes)


def manifest_of(unit: HistoryUnit, data: bytes, path: str) -> HistoryManifest | MergedManifest:
    """Return the manifest that these bytes are, if it is of the unit's versions. Raises Corrupted."""
    if unit.level:
        merged = decode(data, MergedManifest, path)
        expected: object = [(each.cube, each.name, each.version, each.location) for each in unit.records]
        found: object = [(merged.cube, each.segment, each.version, each.location) for each in merged.members]
        if found != expected:
            raise Corrupted(
                f"manifest {path} is not of the members of its set",
                expected=f"{len(unit.records)} versions of {unit.title}",
                found=f"{len(merged.members)} of {merged.cube}, or others",
                action=REBUILD,
            )
        return merged
    (record,) = unit.records
    manifest = decode(data, HistoryManifest, path)
    if (manifest.cube, manifest.segment, manifest.version) != (record.cube, record.name, record.version):
        raise Corrupted(
            f"manifest {path} belongs to another version",
            expected=f"{record.cube}/{record.name} v{record.version}",
            found=f"{manifest.cube}/{manifest.segment} v{manifest.version}",
        )
    return manifest


def check_found(path: str, file: FileEntry, size: int, digest: str | None = None) -> None:
    """Compare what was found of a file with its manifest; `digest`: None where the size is enough.

    Raises Corrupted.
    """
    if size != file.bytes:
        raise damaged_file(path, f"{file.bytes} bytes", f"{size} bytes")
    if digest not in (None, file.sha256):
        raise damaged_file(path, f"sha256 {file.sha256}", str(digest))


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Name the file that the store has not got, as Corrupted."""
    try:
        yield
    except NotFound as error:
        raise missing_file(path) from error


def missing_file(path: str) -> Corrupted:
    return Corrupted(
        f"{path} is missing from the object store",
        expected="a file that the READY version names",
        action=REBUILD,
    )


def damaged_file(path: str, expected: str, found: str) -> Corrupted:
    return Corrupted(
        f"{path} is damaged",
        expected=expected,
        found=found,
        action=REBUILD,
    )
