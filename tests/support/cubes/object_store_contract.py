"""The contract of every object store. Subclass it and give it the URI of an empty folder of one."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rtolap.base.errors import Corrupted, DefinitionError, NotFound, Refused
from rtolap.coordinator.purge import Purge
from rtolap.coordinator.views import Views
from rtolap.cubes.format.folders import ROOTS, creation_folder
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.segment_format.vectors import VectorFiles, vectors_path
from rtolap.model.segment import SegmentState
from rtolap.object_store.store import ObjectStore, StoredFile, open_store

from tests.support.cubes.builders import small_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

LARGE_BYTES = 12 << 20  # on S3 more than one part
_READS = 12
# Writes files full of one byte each until it is killed, and says when each is written.
_WRITER = """
import sys
from rtolap.object_store.store import open_store
store = open_store(sys.argv[1])
for number in range(1000):
    store.write(f"busy/{number:04}", bytes([number % 256]) * int(sys.argv[2]))
    print(number, flush=True)
"""


class ObjectStoreContract:
    # Paths that the server of a test lists by itself: temporary files of its own, which the real store hides.
    servers_own: re.Pattern[str] | None = None

    @pytest.fixture
    def uri(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def store(self, uri: str) -> ObjectStore:
        store = open_store(uri)
        store.claim()
        return store

    def test_nothing_is_deleted_below_a_root_that_is_not_ours(self, uri: str) -> None:
        strange = open_store(uri)
        strange.write("history/x", b"1")
        with pytest.raises(Refused, match="rtolap-store"):
            strange.delete_tree("history")
        assert strange.exists("history/x")
        strange.claim()
        strange.claim()
        open_store(uri).delete_tree("history")
        assert not strange.exists("history/x")

    def test_a_root_with_other_things_is_not_taken(self, uri: str) -> None:
        strange = open_store(uri)
        strange.write("accounts/2013.csv", b"1")
        with pytest.raises(DefinitionError, match=r"holds other things.*accounts"):
            strange.claim()
        with pytest.raises(Refused):
            strange.delete_tree("accounts")

    def test_files_are_written_read_listed_and_deleted(self, store: ObjectStore) -> None:
        store.write("a/b/one", b"1")
        store.write("a/two", b"22")
        assert store.read("a/two") == b"22"
        assert store.list() == (StoredFile("a/b/one", 1), StoredFile("a/two", 2))
        assert store.list("a/b") == (StoredFile("a/b/one", 1),)
        assert store.folders("a") == ("b",)
        assert store.folders() == ("a",)
        assert store.exists("a/b/one")
        assert store.exists("a/b")
        assert store.size_bytes("a/two") == 2
        store.delete("a/two")
        store.delete("a/two")
        assert not store.exists("a/two")
        store.delete_tree("a/b")
        store.delete_tree("a/b")
        assert not store.exists("a/b/one")
        assert store.list() == ()

    def test_a_written_file_replaces_the_one_of_its_name(self, store: ObjectStore) -> None:
        store.write("a/manifest.json", b"first and longer")
        store.write("a/manifest.json", b"second")
        assert store.read("a/manifest.json") == b"second"
        assert store.list() == (StoredFile("a/manifest.json", 6),)

    def test_a_deleted_folder_takes_no_neighbour_with_it(self, store: ObjectStore) -> None:
        for path in ("v1/x", "v1/sub/y", "v1-b/x", "v10/x"):
            store.write(path, b"x")
        store.delete_tree("v1")
        assert [file.path for file in store.list()] == ["v1-b/x", "v10/x"]

    def test_missing_things_are_not_found_and_missing_folders_are_empty(self, store: ObjectStore) -> None:
        store.write("there", b"x")
        for attempt in (store.read, store.size_bytes, store.open, store.sha256):
            with pytest.raises(NotFound):
                attempt("no/such")
        assert store.list("no/such") == ()
        assert store.folders("no/such") == ()
        assert not store.exists("no/such")

    def test_a_folder_is_no_file(self, store: ObjectStore) -> None:
        store.write("a/b", b"x")
        with pytest.raises(NotFound):
            store.size_bytes("a")

    @pytest.mark.parametrize("name", ["hour=2013-01-01T00", "a+b", "x,y@z~", "_batch", "v1.0"])
    def test_names_are_kept_as_they_are(self, store: ObjectStore, name: str) -> None:
        store.write(f"{name}/{name}", b"x")
        assert store.read(f"{name}/{name}") == b"x"
        assert store.list() == (StoredFile(f"{name}/{name}", 1),)
        assert store.folders() == (name,)

    def test_an_empty_file_is_a_file(self, store: ObjectStore) -> None:
        store.write("a/empty", b"")
        assert store.read("a/empty") == b""
        assert store.list() == (StoredFile("a/empty", 0),)

    def test_large_files_are_whole_and_read_by_ranges(self, store: ObjectStore) -> None:
        data = np.arange(LARGE_BYTES // 4, dtype=">u4").tobytes()
        store.write("a/large", data)
        assert store.sha256("a/large") == (hashlib.sha256(data).hexdigest(), len(data))
        with store.open("a/large") as source:
            assert source.size() == len(data)
            source.seek(len(data) - 8)
            assert source.read() == data[-8:]
            source.seek(4000)
            assert source.read(8) == data[4000:4008]
        for start, stop in ((0, 8), (4000, len(data) - 4000), (len(data) - 8, len(data) + 8)):
            wanted = hashlib.sha256(data[start:stop]).hexdigest()
            assert store.sha256_of_range("a/large", start, stop - start) == wanted
        with pytest.raises(NotFound):
            store.sha256_of_range("no/such", 0, 8)

    def test_parquet_is_read_column_by_column(self, store: ObjectStore) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"a": range(1000), "b": [str(n) for n in range(1000)]}), sink)
        store.write("a/part-0.parquet", sink.getvalue().to_pybytes())
        with store.open("a/part-0.parquet") as source:
            assert pq.read_table(source, columns=["a"])["a"].to_pylist() == list(range(1000))

    def test_a_moved_file_has_one_path(self, store: ObjectStore) -> None:
        store.write("scratch/x", b"new")
        store.write("v1/base/x", b"old")
        store.move("scratch/x", "v1/base/x")
        assert store.read("v1/base/x") == b"new"
        assert [file.path for file in store.list()] == ["v1/base/x"]
        with pytest.raises(NotFound):
            store.move("scratch/x", "v1/base/y")

    def test_what_was_written_is_listed_whoever_wrote_it(self, store: ObjectStore, uri: str) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: store.write(f"many/{n:03}", b"x" * n), range(60)))
        expected = tuple(StoredFile(f"many/{n:03}", n) for n in range(60))
        assert store.list() == open_store(uri).list() == expected

    def test_a_file_is_seen_whole_or_not_at_all_while_its_writer_is_killed(
        self, store: ObjectStore, uri: str
    ) -> None:
        """Check that only whole files of a process that does nothing but write are listed or read."""
        seen: dict[str, int] = {}

        def look() -> None:
            """Check the sizes of all, and what the newest holds: who reads all is never up to date."""
            newest = None
            for file in store.list("busy"):
                if self.servers_own is not None and self.servers_own.search(file.path):
                    continue
                assert file.bytes == LARGE_BYTES, file
                seen[file.path] = file.bytes
                newest = max(newest or "", file.path)
            if newest is not None:
                assert store.read(newest) == bytes([int(newest[-4:]) % 256]) * LARGE_BYTES

        command = [sys.executable, "-c", _WRITER, uri, str(LARGE_BYTES)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            try:
                assert writer.stdout.readline() == "0\n"
                for _ in range(_READS):
                    look()
            finally:
                writer.kill()
            written = 1 + len(writer.stdout.readlines())
        look()
        assert written <= len(seen) <= written + 1  # the last may have been finished without being told

    def test_vectors_of_a_version_are_read_back_and_refused_once_they_are_altered_or_gone(
        self, store: ObjectStore
    ) -> None:
        covered = {p: 10**9 + p for p in range(1000)}
        record = SegmentRecord(
            cube="c",
            start_ms=0,
            end_ms=1000,
            state=SegmentState.READY,
            version=1,
            location="history/c/s/v1-b",
            covered=covered,
            begins={0: 5},
        )
        sha256 = VectorFiles(store).write(record)
        assert VectorFiles(store).write(record) == sha256, "a repetition writes the same file"
        named = msgspec.structs.replace(record, covered={}, begins={}, vectors=sha256)
        assert VectorFiles(store).whole(named) == msgspec.structs.replace(record, vectors=sha256)
        path = vectors_path("history/c/s/v1-b", sha256)
        data = store.read(path)
        store.write(path, data.replace(b"1000000007", b"1000000008"))
        with pytest.raises(Corrupted, match="was altered"):
            VectorFiles(store).whole(named)
        store.delete(path)
        with pytest.raises(Corrupted, match="is missing"):
            VectorFiles(store).whole(named)

    def test_what_one_creation_of_a_cube_has_left_goes_and_what_another_has_made_stays(
        self, store: ObjectStore
    ) -> None:
        """List folders while the first creation stands, and delete them when the second has written."""
        metadata = ClusterMetadata(MemoryStore(MemoryEnsemble()), ManualClock(1))
        schema = small_schema()
        name, segment = schema.cube.name, "20130101000000_20130102000000"
        purge = Purge(metadata, Views(metadata), store)
        metadata.create_table(schema.table)
        metadata.create_cube(schema.cube)
        first = metadata.cube_id(name)
        older = [f"{root}/{name}/{segment}/v1/manifest.json" for root in ROOTS]  # of before folders had an id

        def made(cube_id: str) -> list[str]:
            return [f"{creation_folder(root, name, cube_id)}/{segment}/v1/manifest.json" for root in ROOTS]

        for path in (*older, *made(first)):
            store.write(path, b"of the first")
        left = purge.folders_of(name)
        metadata.drop_cube(name, first)
        metadata.create_cube(schema.cube)
        second = metadata.cube_id(name)
        for path in made(second):
            store.write(path, b"of the second")
        purge.delete_all(left)
        purge.delete_all(left)
        assert [file.path for root in reversed(ROOTS) for file in store.list(root)] == sorted(made(second))
        store.write(made(first)[0], b"by one that was late")
        assert creation_folder("staged", name, first) in purge.cleanup(name).folders
        assert not store.exists(made(first)[0])

    @pytest.mark.parametrize(
        "path",
        ["../x", "/etc/passwd", "a//b", "a/../b", ".", "a/", "a b", "a\0", "%2e%2e/x", "a:b", "a\\b", "a\n"],
    )
    def test_paths_that_leave_the_root_are_refused(self, store: ObjectStore, path: str) -> None:
        for attempt in (
            store.read,
            store.open,
            store.sha256,
            store.exists,
            store.list,
            store.delete,
            store.delete_tree,
            store.uri,
            lambda p: store.write(p, b""),
            lambda p: store.move(p, "x"),
            lambda p: store.move("x", p),
        ):
            with pytest.raises(DefinitionError):
                attempt(path)

    def test_the_root_itself_is_not_deleted(self, store: ObjectStore) -> None:
        store.write("a", b"x")
        with pytest.raises(DefinitionError):
            store.delete_tree("")
        assert store.read("a") == b"x"
