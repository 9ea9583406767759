"""How a node comes to what it has missed: from what it holds itself, by single versions, or whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from rtolap.base.errors import Unavailable
from rtolap.protocols.storage import messages as wire
from rtolap.protocols.storage.client import BatchStream
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.node import catching_up
from rtolap.stored.node.node import LocalNode
from rtolap.stored.node.settings import StorageSettings

from tests.support.stored.storage_nodes import InProcessNodes
from tests.support.stored.storage_rows import SCHEMA, read, rows, tablet

SETTINGS = StorageSettings(tablet=TabletSettings(compaction_files_min=3))
T = tablet()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[InProcessNodes]:
    found = InProcessNodes(tmp_path, ("a", "b"), SETTINGS)
    for node in found.nodes.values():
        node.create(wire.CreateTablets((T,), SCHEMA))
    yield found
    found.close()


def prepare(nodes: InProcessNodes, name: str, txn_id: int, *ids: int, note: str = "x") -> None:
    stream = nodes.put(name, wire.PutHead(txn_id, SCHEMA), rows().schema)
    stream.write(T, rows(*ids, note=note))
    stream.finish(wire.PutEnd((wire.TabletRows(T, len(ids)),)))


def publish(nodes: InProcessNodes, name: str, txn_id: int, version: int) -> bool:
    return bool(nodes.nodes[name].publish(wire.Publish(txn_id, ((T, version),))).tablets)


def catch_up(
    nodes: InProcessNodes, name: str, *missed: tuple[int, int | None], sources: tuple[str, ...]
) -> int:
    wanted = tuple(wire.Missed(*each) for each in missed)
    return nodes.nodes[name].catch_up(wire.CatchUp(T, SCHEMA, wanted, sources)).version


def compact(nodes: InProcessNodes, name: str) -> None:
    before = nodes.nodes[name].compactor.runs
    for slot in nodes.nodes[name]._slots.all():
        nodes.nodes[name].compactor.compact(slot)
    assert nodes.nodes[name].compactor.runs > before


def test_what_it_has_prepared_itself_needs_nobody(nodes: InProcessNodes) -> None:
    prepare(nodes, "a", 7, 1)
    prepare(nodes, "a", 8, 2)
    assert catch_up(nodes, "a", (1, 7), (2, 8), sources=()) == 2
    assert read(nodes.nodes["a"], T, 2) == [(1, "x"), (2, "x")]


def test_single_versions_are_copied_and_what_it_holds_itself_is_not_replaced(nodes: InProcessNodes) -> None:
    for version, txn_id in enumerate((7, 8, 9), 1):
        prepare(nodes, "b", txn_id, 1, version, note=f"of {txn_id}")
        publish(nodes, "b", txn_id, version)
    prepare(nodes, "a", 8, 1, 2, note="of 8")
    assert catch_up(nodes, "a", (1, 7), (2, None), (3, 9), sources=("b",)) == 3
    for version in (1, 2, 3):
        assert read(nodes.nodes["a"], T, version) == read(nodes.nodes["b"], T, version)
    assert nodes.nodes["a"].status().tablets[0].floor == 0


def test_a_compacted_tablet_is_copied_whole_and_votes_that_were_given_stay(nodes: InProcessNodes) -> None:
    prepare(nodes, "a", 7, 1)
    publish(nodes, "a", 7, 1)
    prepare(nodes, "a", 50, 5)  # waits, and is not among what is copied
    prepare(nodes, "a", 9, 3)  # waits, and is
    for version, txn_id in enumerate((7, 8, 9), 1):
        prepare(nodes, "b", txn_id, version)
        publish(nodes, "b", txn_id, version)
    compact(nodes, "b")
    pinned = nodes.nodes["a"].scan(wire.ScanRequest(T, SCHEMA, 1))
    assert catch_up(nodes, "a", (2, None), (3, None), sources=("b",)) == 3
    assert read(nodes.nodes["a"], T, 3) == [(1, "x"), (2, "x"), (3, "x")]
    assert nodes.nodes["a"].status().tablets[0].prepared == (50,)
    assert sum(batch.num_rows for batch in pinned) == 1, "who read the old copy goes on"
    nodes.stop("a")
    nodes.start("a")
    assert publish(nodes, "a", 50, 4)
    assert read(nodes.nodes["a"], T, 4) == [(1, "x"), (2, "x"), (3, "x"), (5, "x")]


def test_rows_deleted_by_later_ones_stay_deleted_in_a_copy(nodes: InProcessNodes) -> None:
    for version, txn_id in enumerate((7, 8, 9, 10), 1):
        prepare(nodes, "b", txn_id, 1, 2, note=f"of {txn_id}")
        publish(nodes, "b", txn_id, version)
        if version == 3:
            compact(nodes, "b")
    assert catch_up(nodes, "a", *((version, None) for version in range(1, 5)), sources=("b",)) == 4
    assert read(nodes.nodes["a"], T, 4) == [(1, "of 10"), (2, "of 10")]
    prepare(nodes, "a", 11, 2, note="of 11")
    publish(nodes, "a", 11, 5)
    assert read(nodes.nodes["a"], T, 5) == [(1, "of 10"), (2, "of 11")]


def test_a_source_that_is_down_is_passed_over(nodes: InProcessNodes) -> None:
    prepare(nodes, "b", 7, 1)
    publish(nodes, "b", 7, 1)
    assert catch_up(nodes, "a", (1, 7), sources=("nobody",)) == 0
    assert catch_up(nodes, "a", (1, 7), sources=("nobody", "b")) == 1
    assert catch_up(nodes, "a", (1, 7), sources=()) == 1  # again, harmless


def test_a_stream_of_rows_that_have_come_another_way_is_given_up(nodes: InProcessNodes) -> None:
    slow = nodes.put("a", wire.PutHead(7, SCHEMA), rows().schema)
    slow.write(T, rows(1))
    prepare(nodes, "b", 7, 1)
    publish(nodes, "b", 7, 1)
    assert catch_up(nodes, "a", (1, 7), sources=("b",)) == 1
    with pytest.raises(Exception, match="is over"):
        slow.finish(wire.PutEnd((wire.TabletRows(T, 1),)))
    assert read(nodes.nodes["a"], T, 1) == [(1, "x")]
    assert nodes.nodes["a"].status().tablets[0].prepared == ()


def test_a_node_that_has_lost_its_tablet_makes_it_again(nodes: InProcessNodes) -> None:
    prepare(nodes, "b", 7, 1)
    publish(nodes, "b", 7, 1)
    nodes.nodes["a"].drop(wire.DropTablets((T,)))
    assert catch_up(nodes, "a", (1, 7), sources=("b",)) == 1
    assert read(nodes.nodes["a"], T, 1) == [(1, "x")]


class _BreakingOff:
    """A node whose copies end after their first two chunks."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node

    def copy(self, request: wire.CopyRequest) -> _HalfACopy:
        return _HalfACopy(self._node.copy(request))

    def ping(self, within_s: float) -> None:
        self._node.ping(within_s)


class _HalfACopy:
    def __init__(self, whole: BatchStream) -> None:
        self._whole = whole

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from itertools.islice(self._whole, 2)
        raise Unavailable("the source was killed")

    def cancel(self) -> None:
        self._whole.cancel()


def test_a_copy_that_breaks_off_is_begun_again(nodes: InProcessNodes) -> None:
    prepare(nodes, "b", 7, 1)
    publish(nodes, "b", 7, 1)
    copying = nodes.nodes["a"]._catching_up
    copying._node_at = lambda address: _BreakingOff(nodes.at(address))  # type: ignore[assignment, return-value]
    assert catch_up(nodes, "a", (1, 7), sources=("b",)) == 0
    copying._node_at = nodes.at  # type: ignore[assignment]
    assert catch_up(nodes, "a", (1, 7), sources=("b",)) == 1
    assert read(nodes.nodes["a"], T, 1) == [(1, "x")]


class _StandingStill:
    """A node that takes copies, gives `batches` of each, and then nothing until the test is over."""

    def __init__(self, node: LocalNode, batches: int, over: Event, *, pings: bool) -> None:
        self._node, self._batches, self._over, self._pings = node, batches, over, pings
        self.pinged = 0

    def copy(self, request: wire.CopyRequest) -> _StandingStill:
        self._copy = self._node.copy(request)
        return self

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from itertools.islice(self._copy, self._batches)
        assert self._over.wait(60)
        yield from self._copy

    def cancel(self) -> None:
        self._copy.cancel()

    def ping(self, within_s: float) -> None:
        self.pinged += 1
        if self.pinged > 1 and not self._pings:  # the first is before the copy is begun
            raise Unavailable("no answer within the time")
        if self.pinged > 2:
            self._over.set()


@pytest.mark.parametrize("batches", [0, 2])
def test_a_source_that_stands_still_is_left_for_the_next(
    nodes: InProcessNodes, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    monkeypatch.setattr(catching_up, "STALL_S", 0.05)
    prepare(nodes, "b", 7, 1)
    publish(nodes, "b", 7, 1)
    over = Event()
    still = _StandingStill(nodes.nodes["b"], batches, over, pings=False)
    by_address = {"still": still, "b": nodes.nodes["b"]}
    copying = nodes.nodes["a"]._catching_up
    copying._node_at = by_address.__getitem__  # type: ignore[assignment]
    try:
        assert catch_up(nodes, "a", (1, 7), sources=("still", "b")) == 1
    finally:
        over.set()
    assert read(nodes.nodes["a"], T, 1) == [(1, "x")]


def test_a_source_that_works_long_and_answers_pings_is_waited_for(
    nodes: InProcessNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "STALL_S", 0.05)
    prepare(nodes, "b", 7, 1)
    publish(nodes, "b", 7, 1)
    slow = _StandingStill(nodes.nodes["b"], 1, Event(), pings=True)
    copying = nodes.nodes["a"]._catching_up
    copying._node_at = lambda address: slow  # type: ignore[assignment, return-value]
    assert catch_up(nodes, "a", (1, 7), sources=("b",)) == 1
    assert slow.pinged > 2
    assert read(nodes.nodes["a"], T, 1) == [(1, "x")]


def test_prepared_rows_that_are_damaged_come_from_another_replica(
    nodes: InProcessNodes, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        prepare(nodes, name, 7, 1)
    publish(nodes, "b", 7, 1)
    nodes.stop("a")
    (file,) = (tmp_path / "a" / "tablets").rglob("pending/7/*.rows")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    nodes.start("a")
    catch_up(nodes, "a", (1, 7), sources=("b",))  # finds the damage
    assert catch_up(nodes, "a", (1, 7), sources=("b",)) == 1
    assert read(nodes.nodes["a"], T, 1) == [(1, "x")]
