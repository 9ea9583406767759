"""Versions of cubes whose files are random bytes, a store and a disk that fail, and a slow model of a cache.

The model has no state: which files should be on the disk follows from the READY versions and the budget.
"""

from __future__ import annotations

import errno
import hashlib
import random
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import msgspec
from rtolap.cubes.format.history import write_manifest
from rtolap.cubes.format.manifest import CuboidEntry, FileEntry, HistoryManifest, MergedManifest, encode
from rtolap.metadata.merging.units import HistoryUnit
from rtolap.metadata.records import CubeControl, MergedSet, SegmentRecord
from rtolap.model.merging.specs import MergeMember
from rtolap.model.segment import SegmentState
from rtolap.object_store.store import open_store
from rtolap.query.cubes.history_files import HistoryFile, HistoryFiles
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.history_cache.folder import CacheDisk, CacheFolder
from rtolap.query.history_cache.keeper import HistoryKeeper
from rtolap.query.plan import ReadStats

from tests.support.cubes.watched_store import watched_store
from tests.support.twins.clock import ManualClock

HOUR_MS = 3_600_000


class Crash(Exception):
    """The process is killed here."""


class Remote:
    """What becomes of requests to the store: counted, and refused while it is `down`."""

    def __init__(self) -> None:
        self.requests = 0
        self.down = False

    def request(self, path: str) -> None:
        self.requests += 1
        if self.down:
            raise OSError("connection refused")


class MortalCacheDisk(CacheDisk):
    """`die_at`: the operation, from 1, in which the process is killed. `room`: bytes until it is full.

    After each operation what is below `watched` must not be more than `bytes_max`.
    """

    def __init__(self) -> None:
        self.operations = 0
        self.die_at: int | None = None
        self.room: int | None = None
        self.failing = False
        self.watched: Path | None = None
        self.bytes_max = 0
        self.largest_bytes = 0

    def create(self, path: Path) -> BinaryIO:
        self._operate()
        return super().create(path)

    def write(self, file: BinaryIO, data: bytes) -> None:
        half = len(data) // 2
        super().write(file, data[:half])
        self._operate()
        if self.room is not None:
            if self.room < len(data):
                raise OSError(errno.ENOSPC, "no space left on device")
            self.room -= len(data)
        super().write(file, data[half:])
        self.check()

    def sync(self, file: BinaryIO) -> None:
        self._operate()

    def rename(self, source: Path, target: Path) -> None:
        self._operate()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._operate()
        super().remove(path)

    def check(self) -> None:
        if self.watched is not None:
            used_bytes = sum(file.stat().st_size for file in self.watched.rglob("*") if file.is_file())
            assert used_bytes <= self.bytes_max, f"{used_bytes} bytes of {self.bytes_max}"
            self.largest_bytes = max(self.largest_bytes, used_bytes)

    def _operate(self) -> None:
        self.operations += 1
        if self.die_at is not None and self.operations >= self.die_at:
            raise Crash
        if self.failing:
            raise OSError(errno.EIO, "input/output error")


class CacheWorld:
    """Cubes `a` and `b`, of hours and of three hours, whose files are random bytes."""

    windows: ClassVar = {"a": HOUR_MS, "b": 3 * HOUR_MS}

    def __init__(self, folder: Path, seed: int, bytes_max: int = 20_000) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(10**12)
        self.remote = Remote()
        self.plain = open_store((folder / "store").as_uri())
        self.store = watched_store(folder / "store", self.remote.request)
        self.root = folder / "cache"
        self.disk = MortalCacheDisk()
        self.bytes_max = bytes_max
        self.records: dict[str, dict[str, SegmentRecord]] = {cube: {} for cube in self.windows}
        self.controls = {cube: CubeControl() for cube in self.windows}
        self.manifests: dict[str, HistoryManifest] = {}
        self.contents: dict[str, bytes] = {}
        self.builds = 0
        self.creation = ""  # id of the cubes' creation, in the paths of what is published
        self.begin()

    def begin(self) -> None:
        """Begin a new process over the same folder."""
        self.disk.die_at = None
        self.cache = HistoryCache(CacheFolder(self.root, self.disk))
        self.disk.watched = None  # a smaller budget is kept from the end of the scan on
        self.files = HistoryFiles(self.store, self.cache)
        self.keeper = HistoryKeeper(
            self.cache,
            self.store,
            self.snapshots,
            self.clock,
            bytes_max=self.bytes_max,
            bytes_per_s=1 << 30,
            disk_free_bytes_min=0,
            pause=lambda wait_s: None,
        )
        self.disk.bytes_max = self.bytes_max

    def kill(self) -> None:
        self.cache.folder.unlock()  # as the kernel does

    def snapshots(self) -> dict[str, tuple[CubeControl, dict[str, SegmentRecord]]]:
        return {cube: (self.controls[cube], records) for cube, records in self.records.items()}

    def publish(self, cube: str, hour: int, sizes: Sequence[Sequence[int]] = ((100,),)) -> SegmentRecord:
        """Publish a READY version that replaces the one before. `sizes` has the bytes of the files of each
        cuboid."""
        window_ms = self.windows[cube]
        start_ms = hour * HOUR_MS // window_ms * window_ms
        record = SegmentRecord(cube=cube, start_ms=start_ms, end_ms=start_ms + window_ms)
        before = self.records[cube].get(record.name, record)
        self.builds += 1
        folder = f"history/{cube}/{self.creation}" if self.creation else f"history/{cube}"
        location = f"{folder}/{record.name}/v{before.version + 1}-b{self.builds}"
        cuboids = []
        for number, files in enumerate(sizes):
            entries = []
            for part, size_bytes in enumerate(files):
                name, data = f"c{number}/part-{part}.parquet", self.rng.randbytes(size_bytes)
                self.plain.write(f"{location}/{name}", data)
                self.contents[f"{location}/{name}"] = data
                entries.append(FileEntry(name, size_bytes, size_bytes, hashlib.sha256(data).hexdigest()))
            cuboids.append(CuboidEntry(f"c{number}", (f"d{number}",), sum(files), tuple(entries)))
        manifest = HistoryManifest(
            cube=cube,
            segment=record.name,
            version=before.version + 1,
            build_id=f"b{self.builds}",
            covered={0: self.builds},
            events=1,
            cuboids=tuple(cuboids),
        )
        write_manifest(self.plain, location, manifest)
        self.manifests[location] = manifest
        return self.put(
            msgspec.structs.replace(
                before, state=SegmentState.READY, version=manifest.version, location=location, merged=()
            )
        )

    def merge(self, records: Sequence[SegmentRecord], size_bytes: int) -> MergedSet:
        """Merge READY versions to a set of one file."""
        cube, merge = records[0].cube, uuid.UUID(int=self.rng.getrandbits(128)).hex
        location = f"merged/{cube}/{'a' * 32}/day/{merge}/set"
        data = self.rng.randbytes(size_bytes)
        self.plain.write(f"{location}/c0/part-0.parquet", data)
        file = FileEntry("c0/part-0.parquet", size_bytes, size_bytes, hashlib.sha256(data).hexdigest())
        manifest = MergedManifest(
            cube=cube,
            merge=merge,
            level="day",
            start_ms=0,
            end_ms=24 * HOUR_MS,
            members=tuple(MergeMember(each.name, each.version, str(each.location), 1) for each in records),
            events=len(records),
            cuboids=(CuboidEntry("c0", ("d0",), size_bytes, (file,)),),
        )
        self.plain.write(f"{location}/manifest.json", encode(manifest))
        merged = MergedSet("day", location, len(records))
        for each in records:
            self.put(msgspec.structs.replace(each, merged=(merged,)))
        return merged

    def put(self, record: SegmentRecord) -> SegmentRecord:
        self.records[record.cube] = {**self.records[record.cube], record.name: record}
        return record

    def purge(self, record: SegmentRecord) -> None:
        """Purge: the record says so first, then the files go."""
        self.put(msgspec.structs.replace(record, state=SegmentState.PURGED))
        assert record.location is not None
        self.plain.claim()
        self.plain.delete_tree(record.location)

    def read_files(
        self, record: SegmentRecord, cuboid: int, during: Callable[[], object] = lambda: None
    ) -> tuple[list[bytes], ReadStats]:
        """Return what a statement reads of one cuboid; `during` runs while it does."""
        location = record.location
        assert location is not None
        stats = ReadStats(record.cube)
        unit = HistoryUnit(location, (record,), "", False)
        entry = self.files.manifest(unit).cuboids[cuboid]

        def do(files: Sequence[HistoryFile]) -> list[bytes]:
            found = []
            for file in files:
                with file.filesystem.open_input_stream(file.path, compression=None) as source:
                    found.append(bytes(source.read()))
            for data, named in zip(found, entry.files, strict=True):
                if len(data) != named.bytes:  # as a Parquet reader finds out
                    raise OSError("unexpected end of file")
            during()
            return found

        return self.files.use(unit, location, entry, stats, do, verified=True), stats

    def settle(self) -> None:
        """Run rounds until nothing is left to do, over all pauses."""
        for _ in range(6):
            self.clock.advance_ms(31_000)
            while self.keeper.round():
                self.disk.check()
            self.watch()

    def watch(self) -> None:
        self.disk.watched = self.root / "files"
        self.disk.check()

    def cached(self) -> set[str]:
        """Return the paths on the disk."""
        files = self.root / "files"
        return {path.relative_to(files).as_posix() for path in files.rglob("*") if path.is_file()}

    def ready(self) -> list[SegmentRecord]:
        return [
            record
            for cube, records in self.records.items()
            for record in records.values()
            if record.state is SegmentState.READY and record.end_ms > (self.controls[cube].horizon_ms or 0)
        ]

    def expected(self) -> set[str]:
        """Return the slow model: the longest beginning of all files, newest first, that the budget holds."""
        files: list[tuple[tuple[Any, ...], str, int]] = []
        for record in self.ready():
            assert record.location is not None
            age = (-record.end_ms, -record.start_ms, record.cube)
            path = f"{record.location}/manifest.json"
            files.append(((*age, -1, "", 0), path, self.plain.size_bytes(path)))
            for cuboid in self.manifests[record.location].cuboids:
                for number, file in enumerate(cuboid.files):
                    place = (*age, cuboid.rows, cuboid.name, number)
                    files.append((place, f"{record.location}/{file.name}", file.bytes))
        chosen, total_bytes = set(), 0
        for _, path, size_bytes in sorted(file for file in files if file[2] <= self.bytes_max):
            if (total_bytes := total_bytes + size_bytes) > self.bytes_max:
                break
            chosen.add(path)
        return chosen


def states(world: CacheWorld) -> Counter[str]:
    return Counter({state.value: count for state, (count, _) in world.cache.counts().items() if count})
