"""Receivers as processes, on real Kafka and ZooKeeper: exact before, during and after a kill -9."""

from __future__ import annotations

import io
import shutil
import signal
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from rtolap.base.errors import Unauthorized, Unavailable
from rtolap.cubes.format.staged import read_staged_manifest
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.producer import KafkaAdmin
from rtolap.model.segment import SegmentState
from rtolap.object_store.store import open_store

from tests.support.cubes.builders import START_MS, WINDOW_MS
from tests.support.cubes.receiver_world import ReceiverWorld
from tests.support.cubes.recount import Answer, from_table, merge_into, recount
from tests.support.cubes.services import wait_for
from tests.support.hostile.damage import damage_count

pytestmark = pytest.mark.integration


def test_two_receivers_stay_exact_while_their_leader_is_killed(world: ReceiverWorld) -> None:
    world.assign()
    world.start("r0")
    wait_for("r0 leads", lambda: world.metadata.replica_set_leader("left") == "r0")
    world.start("r1")
    world.produce(1500)
    for receiver in ("r0", "r1"):
        answer, positions = world.ask(receiver, world.ends())
        assert positions == world.ends()
        assert answer == world.expected(positions)

    world.end("r0", signal.SIGKILL)
    world.produce(500)
    answer, positions = world.ask("r1", world.ends())
    assert answer == world.expected(world.ends())

    wait_for("r1 leads", lambda: world.metadata.replica_set_leader("left") == "r1")
    world.start("r0")
    answer, _ = world.ask("r0", world.ends())
    assert answer == world.expected(world.ends()), "after a crash: checkpoint and replay"

    before_ms = START_MS + 100 * WINDOW_MS
    world.metadata.update_control(
        world.cube, lambda c: msgspec.structs.replace(c, close_before_ms=before_ms, close_epoch=1)
    )
    segments = {e.segment_ms for es in world.log.values() for e in es if e is not None}

    def persisted() -> bool:
        records = world.metadata.segments(world.cube).values()
        return len(records) == len(segments) and all(
            r.state is SegmentState.REMOTE_PERSISTED for r in records
        )

    wait_for("all parts are uploaded", persisted)
    _assert_parts_equal_their_recount(world)

    assert world.end("r1", signal.SIGTERM) == 0
    world.start("r1")
    for receiver in ("r0", "r1"):
        assert world.ask(receiver, world.ends())[0] == world.expected(world.ends())


def _assert_parts_equal_their_recount(world: ReceiverWorld) -> None:
    store = open_store((world.folder / "store").as_uri())
    for record in world.metadata.segments(world.cube).values():
        if record.state is SegmentState.REMOTE_PERSISTED:
            pieces = {(at.partition, at.start, at.end) for part in record.parts for at in part.ranges}
            assert pieces == {(partition, 0, end) for partition, end in record.target.items()}
        for part in record.parts:
            staged: Answer = {}
            for entry in read_staged_manifest(store, part.path).files:
                data = store.read(f"{part.path}/{entry.name}")
                merge_into(staged, from_table(pq.read_table(io.BytesIO(data))))
            events = [e for piece in part.ranges for e in world.log[piece.partition][piece.start : piece.end]]
            assert staged == recount(e for e in events if e is not None and e.segment_ms == record.start_ms)


def test_refused_records_are_kept_with_their_origin(world: ReceiverWorld) -> None:
    world.assign()
    world.start("r0")
    world.produce(400)
    world.ask("r0", world.ends())
    with world.client("r0") as client:
        client.action("checkpoint", {"cube": world.cube})
    malformed = {
        f"{world.cube}/{p}/{at}" for p, es in world.log.items() for at, e in enumerate(es) if e is None
    }
    assert malformed
    state = world.state("r0")
    assert state is not None
    assert sum(sum(p.rejected.values()) for p in state.partitions) == len(malformed)
    consumer = KafkaConsumer(world.kafka, world.schema.table.dead_letter_topic)
    try:
        consumer.assign(dict.fromkeys(consumer.partitions(), 0))
        count = 0

        def all_there() -> bool:
            nonlocal count
            count += len(consumer.poll(1000, 1.0))
            return count >= len(malformed)

        wait_for("the dead letters are readable", all_there)
        assert count == len(malformed)
    finally:
        consumer.close()


def test_a_wrong_token_is_refused(world: ReceiverWorld) -> None:
    world.assign()
    world.start("r0")
    with world.client("r0", "another") as client, pytest.raises(Unauthorized):
        client.stats()


def test_offsets_gone_by_retention_are_a_visible_failure(world: ReceiverWorld) -> None:
    world.produce(300)
    admin = KafkaAdmin(world.kafka)
    try:
        admin.delete_records(world.cube, world.ends())
    finally:
        admin.close()
    world.assign()
    world.start("r0")
    wait_for("FAILED", lambda: (s := world.state("r0")) is not None and s.state == "FAILED")
    state = world.state("r0")
    assert state is not None
    assert "no longer holds offset 0" in state.reason


def test_a_pause_is_visible_and_ends(world: ReceiverWorld) -> None:
    world.assign()
    world.start("r0")
    with world.client("r0") as client:
        client.action("pause", {"cube": world.cube})
        wait_for("PAUSED", lambda: (s := world.state("r0")) is not None and s.state == "PAUSED")
        client.action("resume", {"cube": world.cube})
    world.produce(50)
    assert world.ask("r0", world.ends())[0] == world.expected(world.ends())


def test_of_a_fragment_damaged_while_the_receiver_was_down_nothing_is_answered(world: ReceiverWorld) -> None:
    """A start does not read all bytes: statements do, of what they need, and the worker of the rest."""
    world.assign()
    world.start("r0")
    world.produce(400)
    assert world.exact("r0")
    with world.client("r0") as client:
        client.action("checkpoint", {"cube": world.cube})
    world.end("r0", signal.SIGKILL)
    damaged = _damage_fragments(world)
    world.start("r0")
    for _ in range(3):
        with pytest.raises(Unavailable):
            world.ask("r0", world.ends())
    wait_for("FAILED", lambda: (s := world.state("r0")) is not None and s.state == "FAILED")
    state = world.state("r0")
    assert state is not None
    assert "wrong checksum" in state.reason
    assert any(str(path) in state.reason for path in damaged)
    with pytest.raises(Unavailable):
        world.ask("r0", world.ends())
    world.end("r0", signal.SIGKILL)
    shutil.rmtree(world.folder / "r0" / "cubes")
    world.start("r0")
    assert world.exact("r0"), "replayed from Kafka"


def _damage_fragments(world: ReceiverWorld) -> list[Path]:
    """Damage the first number of events in each."""
    files = list((world.folder / "r0").glob("cubes/*/*/fragments/*.arrow"))
    assert files
    for path in files:
        damage_count(path)
    return files


def test_a_fragment_damaged_after_it_was_opened_does_not_reach_history(world: ReceiverWorld) -> None:
    """It is mapped and was whole when it was opened: what is uploaded or merged is checked again."""
    world.assign()
    world.start("r0")
    wait_for("r0 leads", lambda: world.metadata.replica_set_leader("left") == "r0")
    world.produce(400)
    assert world.exact("r0")
    with world.client("r0") as client:
        client.action("checkpoint", {"cube": world.cube})
    _damage_fragments(world)
    before_ms = START_MS + 100 * WINDOW_MS
    world.metadata.update_control(
        world.cube, lambda c: msgspec.structs.replace(c, close_before_ms=before_ms, close_epoch=1)
    )
    wait_for("FAILED", lambda: (s := world.state("r0")) is not None and s.state == "FAILED")
    state = world.state("r0")
    assert state is not None
    assert "was damaged after it was opened" in state.reason
    # A segment whose window was over while its events came may have been uploaded before the damage.
    _assert_parts_equal_their_recount(world)

    world.end("r0", signal.SIGKILL)
    shutil.rmtree(world.folder / "r0" / "cubes")
    world.start("r0")
    assert world.exact("r0"), "replayed from Kafka"

    def persisted() -> bool:
        records = world.metadata.segments(world.cube).values()
        return bool(records) and all(r.state is SegmentState.REMOTE_PERSISTED for r in records)

    wait_for("all parts are uploaded", persisted)
    _assert_parts_equal_their_recount(world)
