from __future__ import annotations

import gc
import random
import sys
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from hdfs_native import FileWriter
from pyarrow import fs
from rtolap.base.errors import DefinitionError
from rtolap.object_store.address import resolve, s3a_settings
from rtolap.object_store.hdfs import HdfsHandler
from rtolap.object_store.store import ObjectStore, open_store

from tests.support.cubes.object_store_contract import ObjectStoreContract

S3 = "s3://bucket/prefix?region=eu-west-1"


class TestLocalDisk(ObjectStoreContract):
    @pytest.fixture
    def uri(self, tmp_path: Path) -> str:
        return (tmp_path / "store").as_uri()


class TestRenamingFileSystem(ObjectStoreContract):
    """The way of file systems that only rename, here a sub-tree of the local one."""

    @pytest.fixture
    def uri(self, tmp_path: Path) -> str:
        return (tmp_path / "store").as_uri()

    @pytest.fixture
    def store(self, uri: str, tmp_path: Path) -> ObjectStore:
        (tmp_path / "store").mkdir()
        store = ObjectStore(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "store", uri)
        store.claim()
        return store


def test_uris_open_elsewhere(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri() + "/s")
    store.write("a/b", b"x")
    assert store.uri("a/b") == store.spark_uri("a/b") == f"{tmp_path.as_uri()}/s/a/b"
    found, path = fs.FileSystem.from_uri(store.uri("a/b"))
    assert found.open_input_stream(path).read() == b"x"
    assert store.spark_settings == {}


@pytest.mark.parametrize(
    "uri", ["nonsense", "ftp://x/y", "relative/path", "hdfs://host:8020", "hdfs:///x", f"{S3}&wrong=1"]
)
def test_other_uris_are_refused(uri: str) -> None:
    with pytest.raises(DefinitionError):
        open_store(uri)


@pytest.mark.parametrize("scheme", ["s3", "hdfs"])
def test_credentials_in_an_address_are_refused_and_not_repeated(scheme: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        open_store(f"{scheme}://AKIAKEY:hunter2@bucket/prefix")
    assert "AWS_ACCESS_KEY_ID" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "AKIAKEY" not in str(caught.value)


def test_without_its_client_hdfs_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(DefinitionError, match=r"pip install 'rtolap\[hdfs\]'"):
        open_store("hdfs://host:8020/rtolap")


def test_spark_is_told_the_same_s3_as_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    address = resolve(f"{S3}&endpoint_override=http://127.0.0.1:9000")
    store = ObjectStore(*address)
    assert (store.root, store.fs.region) == ("bucket/prefix", "eu-west-1")
    assert store.spark_uri("a/b") == "s3a://bucket/prefix/a/b"
    assert store.spark_settings == {
        "fs.s3a.bucket.bucket.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.bucket.bucket.path.style.access": "true",
        "fs.s3a.bucket.bucket.endpoint.region": "eu-west-1",
    }


def test_spark_keeps_its_own_settings_where_the_address_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert s3a_settings("b", {}) == {}
    assert s3a_settings("b", {"endpoint_override": "minio:9000", "scheme": "http"}) == {
        "fs.s3a.bucket.b.endpoint": "http://minio:9000",
        "fs.s3a.bucket.b.path.style.access": "true",
    }
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/etc/rtolap/aws")
    assert list(s3a_settings("b", {})) == ["fs.s3a.bucket.b.aws.credentials.provider"]


class DataNodes:
    """A client of HDFS. So many reads fail, at places that are drawn; opening fails once `is_away`."""

    def __init__(self, data: bytes, dice: random.Random, failures: int) -> None:
        self.data, self.dice, self.failures = data, dice, failures
        self.opened = 0
        self.is_away = False

    def read(self, path: str) -> OpenFile:
        if self.is_away:
            raise RuntimeError("no NameNode answers")
        self.opened += 1
        return OpenFile(self)


class OpenFile:
    """Where it stands after an error, nobody says."""

    def __init__(self, nodes: DataNodes) -> None:
        self._nodes, self._at = nodes, 0

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> None:
        self._at = offset

    def read(self, size: int) -> bytes:
        nodes = self._nodes
        if nodes.failures and nodes.dice.random() < 0.6:
            nodes.failures -= 1
            self._at += nodes.dice.randrange(10)
            raise RuntimeError("DataTransferError: All DataNodes failed")
        data = nodes.data[self._at : self._at + size]
        self._at += len(data)
        return data


def hdfs_file(nodes: DataNodes) -> pa.PythonFile:
    return HdfsHandler(nodes, "host:8020").open_input_file("/x")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(10))
def test_a_read_of_hdfs_whose_data_nodes_fail_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    dice = random.Random(seed)
    nodes = DataNodes(dice.randbytes(500), dice, failures=3)
    with hdfs_file(nodes) as file:
        parts = []
        while part := file.read(dice.randrange(1, 40)):
            parts.append(part)
    assert b"".join(parts) == nodes.data
    assert (nodes.failures, nodes.opened) == (0, 4)


def test_a_read_of_hdfs_fails_where_data_nodes_stay_away_and_at_once_where_the_name_node_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    nodes = DataNodes(b"x", random.Random(1), failures=1_000)
    nodes.dice.random = lambda: 0.0  # type: ignore[method-assign]
    with hdfs_file(nodes) as file, pytest.raises(OSError, match="All DataNodes failed"):
        file.read(1)
    assert nodes.opened == 4
    with hdfs_file(nodes) as file:
        nodes.is_away = True
        with pytest.raises(OSError, match="no NameNode answers"):
            file.read(1)
    assert nodes.opened == 5


@pytest.mark.parametrize("is_away", [False, True], ids=["there", "away"])
def test_a_writer_of_hdfs_is_closed_once_and_never_by_its_finalizer(is_away: bool) -> None:
    """A finalizer would wait for servers on whatever thread happens to collect it."""
    closed: list[str] = []

    class Inner(FileWriter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(None)  # type: ignore[arg-type]

        def hsync(self) -> None:
            if is_away:
                raise RuntimeError("no data node answers")

        def close(self) -> None:
            closed.append("closed")

    class Client:
        def create(self, path: str) -> Inner:
            return Inner()

    stream = HdfsHandler(Client(), "host:8020").open_output_stream("/x", None)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="no data node answers") if is_away else nullcontext():
        stream.close()
    del stream
    gc.collect()
    assert closed == ([] if is_away else ["closed"])


@pytest.mark.parametrize(
    "address", ["file:///store/a#b", "file:///store?region=x", "hdfs://namenode:8020/a?b", "s3://bucket/a#b"]
)
def test_an_address_that_ends_before_its_end_is_refused(address: str) -> None:
    with pytest.raises(DefinitionError, match="ends before a # or"):
        resolve(address)


@pytest.mark.parametrize("letter", ["*", "%3F", "%5B", "%7D", "%5C"])
def test_a_path_that_is_a_pattern_to_spark_is_no_cluster_s_and_can_be_looked_at(
    tmp_path: Path, letter: str
) -> None:
    store = open_store(f"{tmp_path.as_uri()}/a{letter}b")
    with pytest.raises(DefinitionError, match="for a pattern"):
        store.claim()
    with pytest.raises(DefinitionError, match="for a pattern"):
        store.spark_uri("history")
    assert not store.list("")
