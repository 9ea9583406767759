"""A partition that was dropped and made again under its name: nothing of the first gets into the second."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import msgspec
import pyarrow as pa
import pytest
from rtolap.base.errors import NotFound, RtolapError
from rtolap.protocols.storage import messages as wire
from rtolap.protocols.storage.client import BatchStream
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.node.node import LocalNode
from rtolap.stored.node.settings import StorageSettings

from tests.support.stored.storage_nodes import InProcessNodes
from tests.support.stored.storage_rows import SCHEMA, read, rows, tablet

SETTINGS = StorageSettings(tablet=TabletSettings(compaction_files_min=3))
FIRST = msgspec.structs.replace(tablet(), incarnation=1)
AGAIN = msgspec.structs.replace(tablet(), incarnation=2)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[InProcessNodes]:
    """Two nodes with three versions of the first partition on "b", and none yet on "a"."""
    found = InProcessNodes(tmp_path, ("a", "b"), SETTINGS)
    for node in found.nodes.values():
        create(node, FIRST)
    for version in (1, 2, 3):
        load(found, "b", FIRST, version, version)
    yield found
    found.close()


def create(node: LocalNode, id: wire.TabletId) -> None:
    node.create(wire.CreateTablets((id,), SCHEMA))


def drop(node: LocalNode, id: wire.TabletId) -> None:
    node.drop(wire.DropTablets((id,)))


def load(nodes: InProcessNodes, name: str, id: wire.TabletId, txn_id: int, version: int) -> None:
    stream = nodes.put(name, wire.PutHead(txn_id, SCHEMA), rows().schema)
    stream.write(id, rows(txn_id))
    stream.finish(wire.PutEnd((wire.TabletRows(id, 1),)))
    assert nodes.nodes[name].publish(wire.Publish(txn_id, ((id, version),))).tablets == (id,)


def catch_up(node: LocalNode, id: wire.TabletId, until: int) -> int:
    missed = tuple(wire.Missed(version, None) for version in range(1, until + 1))
    return node.catch_up(wire.CatchUp(id, SCHEMA, missed, ("b",))).version


def compact(node: LocalNode) -> None:
    for slot in node._slots.all():
        node.compactor.compact(slot)
    assert node.compactor.runs


class _Waiting:
    """A source whose copies wait after their first two chunks until `over`."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self.began, self.over = Event(), Event()

    def copy(self, request: wire.CopyRequest) -> _WaitingCopy:
        return _WaitingCopy(self, self._node.copy(request))

    def ping(self, within_s: float) -> None:
        self._node.ping(within_s)


class _WaitingCopy:
    def __init__(self, source: _Waiting, whole: BatchStream) -> None:
        self._source, self._whole = source, whole

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from itertools.islice(self._whole, 2)
        self._source.began.set()
        assert self._source.over.wait(60)
        yield from self._whole

    def cancel(self) -> None:
        self._whole.cancel()


@pytest.mark.parametrize("whole", [False, True])
def test_a_copy_during_which_its_partition_is_made_again_leaves_nothing(
    nodes: InProcessNodes, whole: bool
) -> None:
    """Of single versions, and of the whole tablet, which takes the place of another."""
    if whole:
        compact(nodes.nodes["b"])
    node = nodes.nodes["a"]
    source = _Waiting(nodes.nodes["b"])
    node._catching_up._node_at = lambda address: source  # type: ignore[assignment, return-value]
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(catch_up, node, FIRST, 3)
        assert source.began.wait(60)
        drop(node, FIRST)
        create(node, AGAIN)
        source.over.set()
        with pytest.raises(RtolapError):
            late.result(60)
    assert read(node, AGAIN, 0) == []
    (report,) = node.status().tablets
    assert (report.tablet, report.version, report.rows) == (AGAIN, 0, 0)
    load(nodes, "a", AGAIN, 9, 1)
    nodes.stop("a")
    nodes.start("a")
    assert read(nodes.nodes["a"], AGAIN, 1) == [(9, "x")]


def test_a_copy_that_is_asked_for_after_the_drop_does_not_get_into_the_next_partition(
    nodes: InProcessNodes,
) -> None:
    node = nodes.nodes["a"]
    drop(node, FIRST)
    assert catch_up(node, FIRST, 3) == 3  # late: the tablet is there anew
    create(node, AGAIN)
    assert read(node, AGAIN, 0) == []
    with pytest.raises(NotFound):
        read(node, FIRST, 3)
    with pytest.raises(NotFound):
        catch_up(node, FIRST, 3)
    assert [each.tablet for each in node.status().tablets] == [AGAIN]


def test_a_partition_that_is_made_again_under_the_same_incarnation_would_get_the_late_rows(
    nodes: InProcessNodes,
) -> None:
    """What the tests above would miss if incarnations were given twice."""
    node = nodes.nodes["a"]
    drop(node, FIRST)
    assert catch_up(node, FIRST, 3) == 3
    create(node, FIRST)
    assert len(read(node, FIRST, 3)) == 3


def test_late_calls_of_the_first_change_nothing_of_the_second(nodes: InProcessNodes) -> None:
    node = nodes.nodes["a"]
    create(node, AGAIN)
    load(nodes, "a", AGAIN, 9, 1)
    drop(node, FIRST)
    create(node, FIRST)
    assert node.prepare(wire.Prepare(9, (FIRST,))).tablets == ()
    assert node.publish(wire.Publish(9, ((FIRST, 1),))).tablets == ()
    stream = nodes.put("a", wire.PutHead(10, SCHEMA), rows().schema)
    with pytest.raises(NotFound):
        stream.write(FIRST, rows(10))
    with pytest.raises(NotFound):
        node.copy(wire.CopyRequest(FIRST, 0))
    assert read(node, AGAIN, 1) == [(9, "x")]


def test_a_tablet_of_an_earlier_version_of_the_program_is_served_where_it_is(tmp_path: Path) -> None:
    """Its folder and its `about.json` say nothing of an incarnation."""
    nodes = InProcessNodes(tmp_path, ("a",), SETTINGS)
    before = tablet()
    create(nodes.nodes["a"], before)
    load(nodes, "a", before, 7, 1)
    nodes.stop("a")
    (place,) = (tmp_path / "a" / "tablets").iterdir()
    assert place.name == "1.all.0"
    about = msgspec.json.decode((place / "about.json").read_bytes())
    del about["incarnation"]
    (place / "about.json").write_bytes(msgspec.json.encode(about))
    nodes.start("a")
    assert read(nodes.nodes["a"], before, 1) == [(7, "x")]
    create(nodes.nodes["a"], AGAIN)
    assert read(nodes.nodes["a"], AGAIN, 0) == []
    nodes.close()
    assert [path.name for path in (tmp_path / "a" / "tablets").iterdir()] == ["1-2.all.0"]
