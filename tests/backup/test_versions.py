"""What a restore finds of each segment's files: versions and vectors that are gone, damaged or newer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.backup.copy_store import CopyStore
from rtolap.backup.restoring import take_backup
from rtolap.backup.versions import SegmentStep, compare_versions
from rtolap.base.errors import Unavailable
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import SegmentRecord
from rtolap.model.segment import SegmentState

from tests.support.cubes.harness import Run

Found = list[tuple[str, str]]


class World:
    """A cluster in process with history; its backup, before and after some of its records."""

    def __init__(self, folder: Path) -> None:
        self.run = Run(1, folder)
        self.cluster = self.run.cluster
        self.run.actions.fault_rate = self.run.actions.kill_rate = 0.0
        for _ in range(6):
            self.run.actions.produce()
            self.run.actions.advance()
        self.empty = self._records()
        self.run.drain()
        self.full = self._records()
        self.store = self.cluster.store
        self.record = next(r for r in self.cluster.records().values() if r.state is SegmentState.READY)
        assert self.record.location is not None
        self.location = self.record.location

    def _records(self) -> dict[str, bytes]:
        return take_backup(
            self.cluster.session, self.cluster.clock, cluster="/c", token="token", program="1"
        )[1]

    def compared(self, records: dict[str, bytes]) -> tuple[Found, list[SegmentStep]]:
        """Return outcome and message of what concerns the segment, and its steps."""
        backup = ClusterMetadata(CopyStore(records), self.cluster.clock, self.store)
        found: Found = []
        steps: list[SegmentStep] = []
        for each in compare_versions(backup, self.store):
            finding = each.finding if isinstance(each, SegmentStep) else each
            subject = getattr(finding, "subject", "")
            if self.record.name in subject:
                found.append((finding.outcome, finding.message))  # type: ignore[union-attr]
                steps += [each] if isinstance(each, SegmentStep) else []
        return found, steps

    def changed(self, step: SegmentStep) -> SegmentRecord:
        metadata = ClusterMetadata(CopyStore(self.full), self.cluster.clock, self.store)
        record = metadata.nodes.segments(self.cluster.cube)[self.record.name]
        return step.change(metadata.whole_segment(record) if step.with_vectors else record, 1)

    def close(self) -> None:
        for asker in self.run.askers:
            asker.close()
        self.cluster.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_files_that_are_there_are_no_finding(world: World) -> None:
    assert world.compared(world.full) == ([], [])


def test_a_newer_version_is_adopted_with_its_vector(world: World) -> None:
    [(outcome, message)], [step] = world.compared(world.empty)
    assert outcome == "taken"
    assert "the backup names no version" in message
    fresh = SegmentRecord(cube=world.cluster.cube, start_ms=world.record.start_ms, end_ms=world.record.end_ms)
    adopted, own = step.change(fresh, 1), world.cluster.metadata.whole_segment(world.record)
    for name in ("state", "version", "location", "covered", "covered_epochs", "begins", "events", "losses"):
        assert getattr(adopted, name) == getattr(own, name), name
    assert step.change(adopted, 1) == adopted, "a repetition leaves it"


def test_an_attempt_that_was_not_promoted_is_left(world: World) -> None:
    world.store.delete_tree(f"{world.location}-vectors")
    assert world.compared(world.empty) == ([], [])


@pytest.mark.parametrize("damage", ["manifest", "file", "vectors"])
def test_a_newer_version_that_is_not_whole_is_named_and_left(world: World, damage: str) -> None:
    paths = {
        "manifest": f"{world.location}/manifest.json",
        "file": next(f.path for f in world.store.list(world.location) if f.path.endswith(".parquet")),
        "vectors": world.store.list(f"{world.location}-vectors")[0].path,
    }
    world.store.write(paths[damage], b"damaged")
    found, steps = world.compared(world.empty)
    assert [(outcome, message.split(":")[0]) for outcome, message in found] == [("lacking", "is not adopted")]
    assert steps == []


def test_vectors_that_are_gone_are_taken_from_the_manifest(world: World) -> None:
    own = world.cluster.metadata.whole_segment(world.record)
    world.store.delete_tree(f"{world.location}-vectors")
    [(outcome, _)], [step] = world.compared(world.full)
    assert outcome == "taken"
    adopted = world.changed(step)
    assert (adopted.version, adopted.covered, adopted.vectors) == (own.version, own.covered, None)


def test_a_version_that_is_gone_is_read_again(world: World) -> None:
    own = world.cluster.metadata.whole_segment(world.record)
    world.store.delete_tree(world.location)
    [(outcome, message)], [step] = world.compared(world.full)
    assert outcome == "lacking"
    assert "read again from Kafka and rebuilt" in message
    changed = world.changed(step)
    assert (changed.base_lost, changed.state, changed.target) == (True, SegmentState.IMMUTABLE, own.covered)


def test_a_version_that_is_gone_with_its_vectors_is_named(world: World) -> None:
    world.store.delete_tree(world.location)
    world.store.delete_tree(f"{world.location}-vectors")
    [(outcome, message)], steps = world.compared(world.full)
    assert (outcome, steps) == ("lacking", [])
    assert "statements of its time are refused" in message
    assert "wait for the vectors once events of it come late" in message


def test_receivers_wait_for_lost_vectors_of_a_segment_that_is_built_until_it_is_purged(world: World) -> None:
    cluster = world.cluster
    cluster.coordinator.builds.requeue(cluster.cube, world.record.name)
    world.full = world._records()
    world.store.delete_tree(world.location)
    world.store.delete_tree(f"{world.location}-vectors")
    [(_, message)], _ = world.compared(world.full)
    assert message.endswith("wait for the vectors")
    receivers = cluster.alive()
    for receiver in receivers:
        receiver.crash()
        with pytest.raises(Unavailable, match="holds the vectors"):
            receiver.look()
    cluster.coordinator.purge.purge(cluster.cube, world.record.end_ms)
    for receiver in receivers:
        receiver.look()
