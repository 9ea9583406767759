"""Rows on their way to all replicas: majorities, nodes that fail or stall, what all nodes refuse."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.protocols.storage import messages as wire
from rtolap.protocols.storage.client import RowStream
from rtolap.stored.metastore.records import Partition
from rtolap.stored.stream_load.writer import LoadWriter, WriterSettings

from tests.support.stored.storage_nodes import InProcessNodes, replicas_of
from tests.support.stored.storage_rows import SCHEMA, read, rows, tablet

TABLETS = (tablet(0), tablet(1))
REPLICAS = replicas_of(TABLETS, ("a", "b", "c"))
ALL = Partition("d", "t", "all")
SMALL = WriterSettings(part_bytes=1000, waiting_bytes_max=4000, queue_bytes_max=4000, stall_s=0.3)


class Between:
    """The nodes, with something that happens before each batch of some of them."""

    def __init__(self, nodes: InProcessNodes, before: dict[str, Callable[[], None]]) -> None:
        self._nodes, self._before = nodes, before

    def put(self, node: str, head: wire.PutHead, columns: pa.Schema) -> RowStream:
        stream = self._nodes.put(node, head, columns)
        return _Stream(stream, self._before[node]) if node in self._before else stream

    def stands_still(self, node: str) -> bool:
        return self._nodes.stands_still(node)


class _Stream:
    def __init__(self, stream: RowStream, before: Callable[[], None]) -> None:
        self._stream, self._before = stream, before

    def write(self, tablet: wire.TabletId, batch: pa.RecordBatch) -> None:
        self._before()
        self._stream.write(tablet, batch)

    def finish(self, end: wire.PutEnd) -> wire.PutAnswer:
        self._before()
        return self._stream.finish(end)

    def cancel(self) -> None:
        self._stream.cancel()


def unavailable() -> None:
    raise Unavailable("the connection broke")


def until(wait: Callable[..., object]) -> Callable[[], None]:
    def before() -> None:
        wait(timeout=30)

    return before


def write(writer: LoadWriter, count: int, batch: pa.RecordBatch | None = None) -> None:
    """So many rows, in batches of 100; or the same batch so often."""
    for start in range(0, count, 100 if batch is None else 1):
        writer.write("all", 0, rows(*range(start, start + 100)) if batch is None else batch)


def prepared(nodes: InProcessNodes, txn_id: int) -> dict[str, int]:
    return {
        name: len(node.prepare(wire.Prepare(txn_id, TABLETS)).tablets) for name, node in nodes.nodes.items()
    }


def test_rows_are_prepared_on_all_replicas(nodes: InProcessNodes) -> None:
    writer = LoadWriter(nodes, 7, 1, SCHEMA, REPLICAS, SMALL)
    for start in range(0, 2000, 100):
        writer.write("all", start // 100 % 2, rows(*range(start, start + 100)))
    assert writer.finish() == {ALL}
    assert prepared(nodes, 7) == {"a": 2, "b": 2, "c": 2}
    for node in nodes.nodes.values():
        node.publish(wire.Publish(7, tuple((each, 1) for each in TABLETS)))
        assert sum(len(read(node, each, 1)) for each in TABLETS) == 2000


def test_a_load_without_rows_touches_nothing(nodes: InProcessNodes) -> None:
    assert LoadWriter(nodes, 7, 1, SCHEMA, REPLICAS).finish() == frozenset()
    assert prepared(nodes, 7) == {"a": 0, "b": 0, "c": 0}


@pytest.mark.parametrize("how", ["down", "breaks", "stops"])
def test_a_minority_is_left_behind(nodes: InProcessNodes, how: str) -> None:
    befores: dict[str, Callable[[], None]] = {"breaks": unavailable, "stops": lambda: nodes.stop("b")}
    between = Between(nodes, {"b": befores[how]} if how in befores else {})
    if how == "down":
        nodes.stop("b")
    writer = LoadWriter(between, 7, 1, SCHEMA, REPLICAS, SMALL)
    write(writer, 2000)
    assert writer.finish() == {ALL}
    assert {name: count for name, count in prepared(nodes, 7).items() if name != "b"} == {"a": 2, "c": 2}
    if how == "breaks":
        assert nodes.nodes["b"].status().loading == ()


def test_without_a_majority_it_is_unavailable_and_nothing_stays(nodes: InProcessNodes) -> None:
    writer = LoadWriter(Between(nodes, {"b": unavailable, "c": unavailable}), 7, 1, SCHEMA, REPLICAS, SMALL)
    with pytest.raises(
        Unavailable, match=r"succ replica num 1 < quorum replica num 2.*b,c.*connection broke"
    ):
        write(writer, 100_000)
    writer.abort()
    assert prepared(nodes, 7) == {"a": 0, "b": 0, "c": 0}


def test_a_node_that_has_got_nothing_yet_is_not_a_lost_one(tmp_path: Path) -> None:
    """Of four nodes one is away; another, which shares a tablet with it, has been sent no rows so far."""
    four = InProcessNodes(tmp_path, "abcd")
    try:
        for node in four.nodes.values():
            node.create(wire.CreateTablets(TABLETS, SCHEMA))
        four.stop("a")
        replicas = (*replicas_of([tablet(0)], "abc"), *replicas_of([tablet(1)], "acd"))
        writer = LoadWriter(four, 7, 1, SCHEMA, replicas, SMALL)
        writer.write("all", 1, rows(1))
        write(writer, 2000)  # more than the queue of a node holds: it is known to be away
        assert writer.finish() == {ALL}
        assert prepared(four, 7) == {"b": 1, "c": 2, "d": 1}
    finally:
        four.close()


def test_a_node_that_takes_nothing_does_not_hold_the_others_for_ever(nodes: InProcessNodes) -> None:
    released = threading.Event()
    writer = LoadWriter(Between(nodes, {"c": until(released.wait)}), 7, 1, SCHEMA, REPLICAS, SMALL)
    try:
        write(writer, 5000)
        assert writer.finish() == {ALL}
        assert prepared(nodes, 7)["a"] == 2
    finally:
        released.set()


def test_a_node_that_stands_still_is_left_behind_before_its_stall_is_over(nodes: InProcessNodes) -> None:
    released = threading.Event()
    patient = replace(SMALL, stall_s=600.0, finish_s=600.0, ping_after_s=0.01)
    writer = LoadWriter(Between(nodes, {"c": until(released.wait)}), 7, 1, SCHEMA, REPLICAS, patient)
    nodes.still.add("c")
    try:
        write(writer, 5000)  # more than the queue of a node holds
        assert writer.finish() == {ALL}
        assert prepared(nodes, 7) == {"a": 2, "b": 2, "c": 0}
    finally:
        released.set()


def test_no_node_is_left_behind_in_the_end_before_a_majority_has_all(nodes: InProcessNodes) -> None:
    """However silent they are: on a machine that is short of time all may be."""
    passing = threading.Semaphore(0)
    slow = Between(nodes, {name: until(passing.acquire) for name in "bc"})
    writer = LoadWriter(slow, 7, 1, SCHEMA, REPLICAS, replace(SMALL, stall_s=600.0, ping_after_s=0.01))
    nodes.still.update("bc")
    write(writer, 100)
    ended: list[object] = []
    thread = threading.Thread(target=lambda: ended.append(writer.finish()), daemon=True)
    thread.start()
    thread.join(0.3)
    assert not ended
    for _ in range(100):
        passing.release()
    thread.join(30)
    assert ended == [{ALL}]


def test_a_slow_node_holds_the_writer_back_in_bounded_memory(nodes: InProcessNodes) -> None:
    passing = threading.Semaphore(0)
    slow = Between(nodes, {name: until(passing.acquire) for name in "abc"})
    writer = LoadWriter(slow, 7, 1, SCHEMA, REPLICAS, replace(SMALL, stall_s=30.0))
    done = threading.Event()

    def write_all() -> None:
        write(writer, 3000)
        done.set()

    threading.Thread(target=write_all, daemon=True).start()
    assert not done.wait(0.3), "nobody takes anything, and yet all was written"
    for _ in range(1000):
        passing.release()
    assert done.wait(30)
    assert writer.finish() == {ALL}


def test_what_all_nodes_would_refuse_is_said_at_once(nodes: InProcessNodes) -> None:
    writer = LoadWriter(nodes, 7, 1, SCHEMA, REPLICAS, SMALL)
    with pytest.raises(DefinitionError, match="column id has nulls"):
        write(writer, 100_000, pa.record_batch({"id": pa.array([None], pa.int64()), "note": ["x"]}))
    writer.abort()
    with pytest.raises(DefinitionError, match="knows no partition"):
        LoadWriter(nodes, 8, 1, SCHEMA, REPLICAS).write("p2020", 0, rows(1))
    with pytest.raises(DefinitionError, match="knows no bucket 9 of partition all"):
        writer.write("all", 9, rows(1))


def test_batches_with_other_columns_in_one_load(nodes: InProcessNodes) -> None:
    writer = LoadWriter(nodes, 7, 1, SCHEMA, REPLICAS)
    writer.write("all", 0, rows(1))
    reordered = pa.record_batch(
        {"note": pa.array(["x"]).dictionary_encode(), "id": pa.array([2], pa.int64())}
    )
    writer.write("all", 0, reordered)
    with pytest.raises(DefinitionError, match="different columns"):
        writer.write("all", 0, pa.record_batch({"id": [3]}))
    assert writer.finish() == {ALL}
    assert prepared(nodes, 7) == {"a": 2, "b": 2, "c": 2}


def test_partitions_that_are_made_meanwhile_are_written_to(nodes: InProcessNodes) -> None:
    writer = LoadWriter(nodes, 7, 1, SCHEMA, replicas_of(TABLETS, ("a",)))
    writer.write("all", 0, rows(1))
    late = wire.TabletId(1, "d", "t", "p2020", 0)
    nodes.nodes["b"].create(wire.CreateTablets((late,), SCHEMA))
    writer.add_replicas(replicas_of((*TABLETS, late), ("b",)))
    writer.write("p2020", 0, rows(2))
    assert writer.finish() == {ALL, Partition("d", "t", "p2020")}
    assert prepared(nodes, 7) == {"a": 2, "b": 0, "c": 0}
    assert nodes.nodes["b"].prepare(wire.Prepare(7, (late,))).tablets == (late,)


def test_an_abort_leaves_nothing(nodes: InProcessNodes) -> None:
    writer = LoadWriter(nodes, 7, 1, SCHEMA, REPLICAS, SMALL)
    write(writer, 2000)
    writer.abort()
    assert prepared(nodes, 7) == {"a": 0, "b": 0, "c": 0}
    for node in nodes.nodes.values():
        assert node.status().loading == ()


def test_partial_rows_keep_what_they_do_not_name(nodes: InProcessNodes) -> None:
    before = LoadWriter(nodes, 7, 1, SCHEMA, REPLICAS)
    before.write("all", 0, rows(1, note="old"))
    before.finish()
    partial = LoadWriter(nodes, 8, 1, SCHEMA, REPLICAS, partial=True)
    partial.write("all", 0, rows(1, 2).select(["id"]))
    assert partial.finish() == {ALL}
    for node in nodes.nodes.values():
        for version, txn_id in enumerate((7, 8), 1):
            node.publish(wire.Publish(txn_id, ((tablet(0), version),)))
        assert read(node, tablet(0), 2) == [(1, "old"), (2, None)]
