"""One node: streams, votes, versions, tables that come and go, what is there after a restart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.base.errors import (
    Corrupted,
    DefinitionError,
    NotFound,
    NotYet,
    Refused,
    StaleSnapshot,
    Unavailable,
)
from rtolap.model.predicate import Compare
from rtolap.model.schema_changes import add_column, rename_column
from rtolap.model.stored.table import StoredColumn
from rtolap.protocols.storage import messages as wire
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.node.node import LocalNode
from rtolap.stored.node.process import node_metrics
from rtolap.stored.node.settings import StorageSettings
from rtolap.stored.node.tablet_replicas import Compaction

from tests.support.cubes.services import wait_for
from tests.support.stored.storage_nodes import InProcessNodes
from tests.support.stored.storage_rows import SCHEMA, read, rows, tablet


def load(node: LocalNode, txn_id: int, **batches: pa.RecordBatch) -> wire.PutAnswer:
    """`b0`, `b1`: rows of these buckets; both end."""
    stream = node.put(wire.PutHead(txn_id, SCHEMA), rows().schema)
    for name, batch in batches.items():
        stream.write(tablet(int(name[1:])), batch)
    counts = {int(name[1:]): batch.num_rows for name, batch in batches.items()}
    return stream.finish(wire.PutEnd(tuple(wire.TabletRows(tablet(at), counts.get(at, 0)) for at in (0, 1))))


def publish(node: LocalNode, txn_id: int, version: int) -> tuple[wire.TabletId, ...]:
    wanted = tuple((tablet(at), version) for at in (0, 1))
    return node.publish(wire.Publish(txn_id, wanted)).tablets


@pytest.fixture
def node(nodes: InProcessNodes) -> LocalNode:
    return nodes.nodes["a"]


def test_rows_are_prepared_when_their_stream_ends_and_visible_when_published(node: LocalNode) -> None:
    assert load(node, 7, b0=rows(1, 2)).prepared == (tablet(0), tablet(1))
    assert node.prepare(wire.Prepare(7, (tablet(0), tablet(1)))).tablets == (tablet(0), tablet(1))
    assert read(node, tablet(0), 0) == []
    with pytest.raises(NotYet):
        node.scan(wire.ScanRequest(tablet(0), SCHEMA, 1))
    assert publish(node, 7, 1) == (tablet(0), tablet(1))
    assert publish(node, 7, 1) == (tablet(0), tablet(1))  # again, harmless
    assert read(node, tablet(0), 1) == [(1, "x"), (2, "x")]
    assert read(node, tablet(1), 1) == []


def test_a_stream_that_does_not_end_as_announced_leaves_nothing(node: LocalNode) -> None:
    stream = node.put(wire.PutHead(7, SCHEMA), rows().schema)
    stream.write(tablet(0), rows(1, 2))
    with pytest.raises(Refused, match="rows are missing"):
        stream.finish(wire.PutEnd((wire.TabletRows(tablet(0), 3),)))
    given_up = node.put(wire.PutHead(8, SCHEMA), rows().schema)
    given_up.write(tablet(0), rows(1))
    given_up.cancel()
    assert node.prepare(wire.Prepare(7, (tablet(0),))).tablets == ()
    assert node.prepare(wire.Prepare(8, (tablet(0),))).tablets == ()
    assert node.status().load_memory_bytes == 0
    assert node.status().loading == ()


def test_what_is_prepared_survives_a_restart_and_what_was_coming_in_does_not(nodes: InProcessNodes) -> None:
    load(nodes.nodes["a"], 7, b0=rows(1))
    open_stream = nodes.nodes["a"].put(wire.PutHead(8, SCHEMA), rows().schema)
    open_stream.write(tablet(0), rows(2))
    nodes.stop("a")
    nodes.start("a")
    node = nodes.nodes["a"]
    assert node.prepare(wire.Prepare(7, (tablet(0), tablet(1)))).tablets == (tablet(0), tablet(1))
    assert node.prepare(wire.Prepare(8, (tablet(0),))).tablets == ()
    assert publish(node, 7, 1) == (tablet(0), tablet(1))
    assert read(node, tablet(0), 1) == [(1, "x")]


def test_an_aborted_transaction_is_gone_and_its_late_rows_are_refused(node: LocalNode) -> None:
    load(node, 7, b0=rows(1))
    running = node.put(wire.PutHead(8, SCHEMA), rows().schema)
    running.write(tablet(0), rows(2))
    for txn_id in (7, 8, 8):
        node.abort(wire.Abort(txn_id))
    assert publish(node, 7, 1) == ()
    with pytest.raises(Refused, match="aborted"):
        running.write(tablet(0), rows(3))
    with pytest.raises(Refused, match="aborted"):
        node.put(wire.PutHead(7, SCHEMA), rows().schema)
    load(node, 9, b0=rows(4))
    publish(node, 9, 1)
    node.abort(wire.Abort(9))  # too late: what is visible stays
    assert read(node, tablet(0), 1) == [(4, "x")]


def test_a_version_that_others_come_before_has_to_wait(node: LocalNode) -> None:
    load(node, 7, b0=rows(1))
    assert publish(node, 7, 2) == ()
    assert publish(node, 8, 1) == ()  # nobody sent it here
    assert publish(node, 7, 1) == (tablet(0), tablet(1))
    assert publish(node, 8, 1) == ()  # it is another one's


def test_tablets_of_a_later_table_take_the_place_of_an_earlier_one(node: LocalNode) -> None:
    load(node, 7, b0=rows(1))
    publish(node, 7, 1)
    node.create(wire.CreateTablets((tablet(0, table_id=2),), SCHEMA))
    assert read(node, tablet(0, table_id=2), 0) == []
    with pytest.raises(NotFound, match="table 2"):
        node.scan(wire.ScanRequest(tablet(0), SCHEMA, 1))
    for late in (tablet(0, table_id=1),):  # told late of the old table
        node.create(wire.CreateTablets((late,), SCHEMA))
        node.drop(wire.DropTablets((late,)))
    assert read(node, tablet(0, table_id=2), 0) == []
    node.drop(wire.DropTablets((tablet(0, table_id=2),)))
    node.drop(wire.DropTablets((tablet(0, table_id=2),)))
    with pytest.raises(NotFound):
        node.scan(wire.ScanRequest(tablet(0, table_id=2), SCHEMA, 0))
    assert [report.tablet for report in node.status().tablets] == [tablet(1)]


def test_rows_of_an_unknown_tablet_are_refused(node: LocalNode) -> None:
    stream = node.put(wire.PutHead(7, SCHEMA), rows().schema)
    with pytest.raises(NotFound):
        stream.write(tablet(5), rows(1))
    assert node.status().loading == ()


def test_columns_change_while_a_load_runs_and_readers_name_theirs(node: LocalNode) -> None:
    load(node, 7, b0=rows(1))
    publish(node, 7, 1)
    running = node.put(wire.PutHead(8, SCHEMA), rows().schema)
    running.write(tablet(0), rows(2))
    later = rename_column(add_column(SCHEMA, StoredColumn("n", "int", default="5")), "note", "text")
    node.change_schema(wire.ChangeSchema(1, "d", "t", later))
    running.write(tablet(0), rows(3))
    running.finish(wire.PutEnd((wire.TabletRows(tablet(0), 2), wire.TabletRows(tablet(1), 0))))
    newer = node.put(wire.PutHead(9, later), rows().schema)
    newer.write(tablet(0), pa.record_batch({"id": [4], "text": ["y"], "n": pa.array([6], pa.int32())}))
    newer.finish(wire.PutEnd((wire.TabletRows(tablet(0), 1), wire.TabletRows(tablet(1), 0))))
    publish(node, 8, 2)
    publish(node, 9, 3)
    assert read(node, tablet(0), 3, later) == [(1, "x", 5), (2, "x", 5), (3, "x", 5), (4, "y", 6)]
    assert read(node, tablet(0), 3) == [(1, "x"), (2, "x"), (3, "x"), (4, "y")]


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_tablet_keeps_no_other_from_its_schema_its_abort_or_its_end(
    node: LocalNode, tmp_path: Path, damaged: int
) -> None:
    load(node, 7, b0=rows(1), b1=rows(2))
    publish(node, 7, 1)
    load(node, 8, b0=rows(3), b1=rows(4))
    whole = node._slots.get(tablet(1 - damaged))
    _damage_in_place(next((tmp_path / "a" / "tablets" / f"1.all.{damaged}").rglob("v1/*.rows")))
    node.scrubber.run_once()
    assert list(node.status().broken) == [f"1.all.{damaged}"]
    changed = add_column(SCHEMA, StoredColumn("extra", "int"))
    with pytest.raises(Corrupted):
        node.change_schema(wire.ChangeSchema(1, "d", "t", changed))
    assert whole.open().schema == changed
    node.abort(wire.Abort(8))
    assert whole.open().status().prepared == ()
    node.drop(wire.DropTablets((tablet(0), tablet(1))))
    assert node._slots.all() == ()


def test_a_scan_gives_the_columns_and_rows_asked_for(node: LocalNode) -> None:
    load(node, 7, b0=rows(1, 2, 3))
    publish(node, 7, 1)
    request = wire.ScanRequest(tablet(0), SCHEMA, 1, ("id",), Compare("id", "ge", 2))
    found = pa.Table.from_batches(list(node.scan(request)))
    assert found.to_pydict() == {"id": [2, 3]}


def test_compaction_passes_versions_that_nobody_has_pinned(tmp_path: Path) -> None:
    settings = StorageSettings(tablet=TabletSettings(compaction_files_min=3))
    with LocalNode("a", tmp_path, lambda address: pytest.fail("nobody to ask"), settings) as node:
        node.create(wire.CreateTablets((tablet(0), tablet(1)), SCHEMA))
        for version in range(1, 4):
            load(node, version, b0=rows(version))
            publish(node, version, version)
        pinned = node.scan(wire.ScanRequest(tablet(0), SCHEMA, 2))
        waiting, idle = node.status().tablets
        assert (waiting.files, waiting.rowsets, waiting.pending_files) == (3, 3, 3)
        assert (idle.pending_files, idle.compacted_ms) == (0, None)
        for slot in node._slots.all():
            node.compactor.compact(slot)
        assert node.compactor.runs == 1
        done, idle = node.status().tablets
        assert (done.files, done.rowsets, done.pending_files, done.rows) == (1, 1, 0, 3)
        assert (done.compacting_since_ms, done.compaction_problem) == (None, "")
        assert done.compacted_ms is not None
        assert idle.compacted_ms is None
        with pytest.raises(StaleSnapshot):
            node.scan(wire.ScanRequest(tablet(0), SCHEMA, 2))
        assert sum(batch.num_rows for batch in pinned) == 2
        assert read(node, tablet(0), 3) == [(1, "x"), (2, "x"), (3, "x")]


class _Faulty:
    """The place of a tablet whose compaction meets a fault of the program."""

    id = tablet(1)

    def __init__(self) -> None:
        self.tries = 0
        self.compaction = Compaction()

    def open(self) -> _Faulty:
        return self

    def compact(self) -> bool:
        self.tries += 1
        assert self.compaction.running_since_ms is not None
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")


def test_a_tablet_that_cannot_be_compacted_stops_no_other_and_no_guard(tmp_path: Path) -> None:
    settings = StorageSettings(tablet=TabletSettings(compaction_files_min=3), compact_every_s=0.02)
    with LocalNode("a", tmp_path, lambda address: pytest.fail("nobody to ask"), settings) as node:
        node.create(wire.CreateTablets((tablet(0), tablet(1)), SCHEMA))
        faulty, looks = _Faulty(), []
        node._loads.give_up_silent = lambda: looks.append(1) or 0  # type: ignore[method-assign, func-returns-value]
        node.compactor.start()
        node.compactor.notice(faulty)  # type: ignore[arg-type]
        wait_for("the faulty one was tried", lambda: node.compactor.failures == 1, 10)
        for version in range(1, 4):
            load(node, version, b0=rows(version))
            publish(node, version, version)
        wait_for("the other one is compacted", lambda: node.compactor.runs == 1, 10)
        looked = len(looks)
        wait_for("silent loads are looked for", lambda: len(looks) > looked, 10)
        assert faulty.tries == 1
        assert faulty.compaction.running_since_ms is None
        assert faulty.compaction.problem.startswith("ArrowInvalid: offset overflow")
        assert "rtolap_storage_compaction_failures_total 1.0" in node_metrics(node).render()[0].decode()


def test_memory_of_all_loads_is_bounded_by_writing_early(tmp_path: Path) -> None:
    settings = StorageSettings(load_memory_bytes_max=40_000, loads_max=4)
    with LocalNode("a", tmp_path, lambda address: pytest.fail("nobody to ask"), settings) as node:
        node.create(wire.CreateTablets((tablet(0), tablet(1)), SCHEMA))
        streams = [node.put(wire.PutHead(txn, SCHEMA), rows().schema) for txn in range(4)]
        peak = 0
        for start in range(0, 20_000, 500):
            for stream in streams:
                stream.write(tablet(0), rows(*range(start, start + 500)))
                peak = max(peak, node.status().load_memory_bytes)
        assert peak <= 2 * 40_000
        with pytest.raises(Unavailable, match="too many loads"):
            node.put(wire.PutHead(9, SCHEMA), rows().schema)
        end = wire.PutEnd((wire.TabletRows(tablet(0), 20_000), wire.TabletRows(tablet(1), 0)))
        for txn, stream in enumerate(streams):
            stream.finish(end)
            publish(node, txn, txn + 1)
        assert len(read(node, tablet(0), 4)) == 20_000
        assert node.status().load_memory_bytes == 0


def test_a_batch_that_is_too_large_is_refused(tmp_path: Path) -> None:
    settings = StorageSettings(batch_bytes_max=1000)
    with LocalNode("a", tmp_path, lambda address: pytest.fail("nobody to ask"), settings) as node:
        node.create(wire.CreateTablets((tablet(0),), SCHEMA))
        with pytest.raises(DefinitionError, match="too large"):
            node.put(wire.PutHead(7, SCHEMA), rows().schema).write(tablet(0), rows(*range(1000)))


def test_no_load_is_begun_on_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    settings = StorageSettings(disk_free_bytes_min=1 << 60)
    with (
        LocalNode("a", tmp_path, lambda address: pytest.fail("nobody to ask"), settings) as node,
        pytest.raises(Unavailable, match="the disk is nearly full"),
    ):
        node.put(wire.PutHead(7, SCHEMA), rows().schema)


def test_a_data_folder_has_one_process_and_keeps_its_id(nodes: InProcessNodes, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="another process"):
        LocalNode("a", tmp_path / "a", nodes.at)
    known = nodes.nodes["a"].folder.node_id
    nodes.stop("a")
    nodes.start("a")
    assert nodes.nodes["a"].folder.node_id == known


def test_what_a_crash_left_of_making_and_dropping_is_removed(nodes: InProcessNodes, tmp_path: Path) -> None:
    nodes.stop("a")
    tablets = tmp_path / "a" / "tablets"
    shutil.copytree(tablets / "1.all.0", tablets / "1.all.7.making")
    shutil.copytree(tablets / "1.all.0", tablets / "1.all.8.dropping")
    (tablets / "1.all.0" / "g2.making").mkdir()
    nodes.start("a")
    assert sorted(path.name for path in tablets.iterdir()) == ["1.all.0", "1.all.1"]
    assert sorted(path.name for path in (tablets / "1.all.0").iterdir()) == ["about.json", "g1"]


def test_a_folder_that_nobody_knows_the_tablet_of_does_not_stop_the_others(
    nodes: InProcessNodes, tmp_path: Path
) -> None:
    nodes.stop("a")
    (tmp_path / "a" / "tablets" / "1.all.0" / "about.json").write_bytes(b"{}")
    nodes.start("a")
    assert list(nodes.nodes["a"].status().broken) == ["1.all.0"]
    assert read(nodes.nodes["a"], tablet(1), 0) == []


def test_a_tablet_with_damaged_bytes_is_set_aside_and_the_others_serve(
    nodes: InProcessNodes, tmp_path: Path
) -> None:
    load(nodes.nodes["a"], 7, b0=rows(1), b1=rows(2))
    publish(nodes.nodes["a"], 7, 1)
    nodes.stop("a")
    file = next((tmp_path / "a" / "tablets" / "1.all.0").rglob("*.rows"))
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    nodes.start("a")
    node = nodes.nodes["a"]
    assert list(node.status().broken) == ["1.all.0"]
    assert read(node, tablet(1), 1) == [(2, "x")]
    with pytest.raises(Unavailable, match="cannot be opened here"):
        node.scan(wire.ScanRequest(tablet(0), SCHEMA, 1))
    load(nodes.nodes["b"], 7, b0=rows(1), b1=rows(2))
    publish(nodes.nodes["b"], 7, 1)
    reached = node.catch_up(wire.CatchUp(tablet(0), SCHEMA, (wire.Missed(1, 7),), ("b",)))
    assert reached.version == 1
    assert read(node, tablet(0), 1) == [(1, "x")]
    assert node.status().broken == {}


def test_a_tablet_whose_bytes_are_damaged_while_it_is_open_is_set_aside_by_its_compaction(
    nodes: InProcessNodes, tmp_path: Path
) -> None:
    node, versions = nodes.nodes["a"], TabletSettings().compaction_files_min
    for version in range(1, versions + 1):
        for name in ("a", "b"):
            load(nodes.nodes[name], version, b0=rows(version), b1=rows(version))
            publish(nodes.nodes[name], version, version)
    _damage_in_place(min((tmp_path / "a" / "tablets" / "1.all.0").rglob("v*/*.rows")))
    slot = node._slots.get(tablet(0))
    node.compactor.compact(slot)
    assert "wrong checksum" in slot.compaction.problem
    assert list(node.status().broken) == ["1.all.0"]
    assert "wrong checksum" in node.status().broken["1.all.0"]
    with pytest.raises(Corrupted, match="wrong checksum"):
        node.scan(wire.ScanRequest(tablet(0), SCHEMA, versions))
    assert [report.tablet for report in node.status().tablets] == [tablet(1)], "it counts as lost"
    missed = (wire.Missed(versions, versions),)
    reached = node.catch_up(wire.CatchUp(tablet(0), SCHEMA, missed, ("b",)))
    assert reached.version == versions
    assert read(node, tablet(0), versions) == read(nodes.nodes["b"], tablet(0), versions)
    assert node.status().broken == {}
    assert list((tmp_path / "a" / "broken").iterdir()), "its bytes are kept"


def _damage_in_place(file: Path) -> None:
    """Change a byte of what is mapped."""
    with file.open("r+b") as opened:
        opened.seek(64)
        byte = opened.read(1)
        opened.seek(64)
        opened.write(bytes([byte[0] ^ 1]))
