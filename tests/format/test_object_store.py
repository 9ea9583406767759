from pathlib import Path

import pytest
from pyarrow import fs
from rtolap.base.errors import DefinitionError, NotFound
from rtolap.format.object_store import ObjectStore, StoredFile, open_store


@pytest.fixture(params=["local", "other"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """The local path, and the one for file systems that only rename (here: a sub-tree of the local one)."""
    if request.param == "local":
        return open_store((tmp_path / "store").as_uri())
    (tmp_path / "store").mkdir()
    return ObjectStore(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "store", "x://store")


def test_files_are_written_read_listed_and_deleted(store: ObjectStore) -> None:
    store.write("a/b/one", b"1")
    store.write("a/two", b"22")
    store.write("a/two", b"222")
    assert store.read("a/two") == b"222"
    assert store.list() == (StoredFile("a/b/one", 1), StoredFile("a/two", 3))
    assert store.list("a/b") == (StoredFile("a/b/one", 1),)
    assert store.folders("a") == ("b",)
    assert store.exists("a/b/one")
    assert store.exists("a/b")
    assert store.size_bytes("a/two") == 3
    store.delete("a/two")
    store.delete("a/two")
    store.delete_tree("a/b")
    store.delete_tree("a/b")
    assert store.list() == ()


def test_missing_things_are_not_found_and_missing_folders_are_empty(store: ObjectStore) -> None:
    for attempt in (store.read, store.size_bytes):
        with pytest.raises(NotFound):
            attempt("no/such")
    assert store.list("no/such") == ()
    assert store.folders("no/such") == ()
    assert not store.exists("no/such")


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a//b", "a/../b", ".", "a/", "a b", "a\0", "%2e%2e/x"]
)
def test_paths_that_leave_the_root_are_refused(store: ObjectStore, path: str) -> None:
    for attempt in (
        store.read,
        store.exists,
        store.list,
        store.delete_tree,
        store.uri,
        lambda p: store.write(p, b""),
    ):
        with pytest.raises(DefinitionError):
            attempt(path)


def test_the_root_itself_is_not_deleted(store: ObjectStore) -> None:
    with pytest.raises(DefinitionError):
        store.delete_tree("")


def test_uris_open_elsewhere(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri() + "/s")
    store.write("a/b", b"x")
    assert store.uri("a/b") == f"{tmp_path.as_uri()}/s/a/b"
    found, path = fs.FileSystem.from_uri(store.uri("a/b"))
    assert found.open_input_stream(path).read() == b"x"


@pytest.mark.parametrize("uri", ["nonsense", "ftp://x/y", "relative/path"])
def test_other_uris_are_refused(uri: str) -> None:
    with pytest.raises(DefinitionError):
        open_store(uri)
