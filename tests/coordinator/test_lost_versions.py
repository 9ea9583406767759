"""READY versions that have lost what builds start from: their events are read again from Kafka, and built."""

from __future__ import annotations

import hashlib

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rtolap.base.errors import Corrupted
from rtolap.cli.cubes import segments as segments_commands
from rtolap.cubes.format.manifest import MANIFEST_NAME, CuboidEntry, FileEntry
from rtolap.metadata import segments
from rtolap.metadata.records import SegmentRecord
from rtolap.model.offsets import PartRange
from rtolap.model.segment import SegmentState
from typer.testing import CliRunner, Result

from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"page": ["/"]}), sink)
    return bytes(sink.getvalue().to_pybytes())


DATA = parquet()
ACCEPTED = ("ada", "nobody has the files")


def cuboid(name: str, dimensions: tuple[str, ...]) -> CuboidEntry:
    digest = hashlib.sha256(DATA).hexdigest()
    return CuboidEntry(name, dimensions, 1, (FileEntry(f"{name}/part-0.parquet", 1, len(DATA), digest),))


def ready(cluster: Cluster, hour: int = 2, events: int = 5) -> SegmentRecord:
    """A version of events of offsets from ten beyond where each partition begins."""
    record = cluster.closed(hour, events=events)
    cuboids = (cuboid("base", ("page",)), cuboid("total", ()))
    info = cluster.client.promote(NAME, record.name, cluster.build(record.name, cuboids=cuboids))
    cluster.files.write(f"{info.location}/base/part-0.parquet", DATA)
    return stored(cluster, record.name)


def stored(cluster: Cluster, segment: str) -> SegmentRecord:
    found = cluster.metadata.segment(NAME, segment)
    assert found is not None
    return found


def lose(cluster: Cluster, record: SegmentRecord, how: str = "missing") -> None:
    manifest = f"{record.location}/{MANIFEST_NAME}"
    match how:
        case "manifest missing":
            cluster.files.delete_tree(str(record.location))
        case "manifest damaged":
            cluster.files.write(manifest, cluster.files.read(manifest)[:-9])
        case "missing":
            cluster.files.delete_tree(f"{record.location}/base")
        case "shorter":
            cluster.files.write(f"{record.location}/base/part-0.parquet", DATA[:-1])
        case _:
            cluster.files.write(f"{record.location}/base/part-0.parquet", bytes(len(DATA)))


def upload(cluster: Cluster, segment: str, events: int) -> SegmentRecord:
    """Return what the receivers of the one replica set do: all of the segment, up to the target."""
    record = stored(cluster, segment)
    first = cluster.metadata.control(NAME).first_offsets
    ranges = tuple(PartRange(p, first[p], record.target[p]) for p in first)
    part = cluster.stage(segment, record.version + 1, ranges, events, "again")
    return cluster.metadata.update_segment(
        NAME,
        record.range,
        lambda before: segments.add_part(before, part, partitions=first, first=first, now_ms=1),
    )


def note_begins(cluster: Cluster, record: SegmentRecord, beyond: int = 10) -> None:
    first = cluster.metadata.control(NAME).first_offsets
    begins = {p: offset + beyond for p, offset in first.items()}
    cluster.metadata.update_segment(
        NAME, record.range, lambda before: msgspec.structs.replace(before, begins=begins)
    )


def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    monkeypatch.setattr(cluster.client, "close", lambda: None)
    monkeypatch.setattr(segments_commands, "coordinator_client", lambda: cluster.client)
    return CliRunner().invoke(segments_commands.app, arguments, env={"COLUMNS": "300"})


@pytest.mark.parametrize("how", ["manifest missing", "manifest damaged", "missing", "shorter"])
def test_a_version_that_lost_what_builds_start_from_is_rebuilt_of_all_its_events(
    cluster: Cluster, how: str
) -> None:
    cluster.enabled()
    record = ready(cluster)
    lose(cluster, record, how)
    asked = cluster.client.requeue(NAME, record.name)
    assert (asked.state, asked.base_lost, asked.version, asked.location) == (
        "IMMUTABLE",
        True,
        1,
        record.location,
    ), "the version that is there goes on answering"
    assert "read again from Kafka" in (cluster.client.cube(NAME).problem or "")
    assert cluster.client.requeue(NAME, record.name).state == "IMMUTABLE", "a repetition changes nothing"
    assert upload(cluster, record.name, 5).state is SegmentState.REMOTE_PERSISTED
    spec = cluster.client.start_build(NAME, record.name)
    assert (spec.base_lost, spec.previous_location, spec.previous_covered) == (True, None, {})
    assert (spec.covered, spec.version) == (record.covered, 2)
    info = cluster.client.promote(
        NAME, record.name, cluster.build(record.name, events=5, late_events=0, late_ppm=0)
    )
    assert (info.state, info.version, info.events, info.late_events, info.base_lost) == (
        "READY",
        2,
        5,
        0,
        False,
    )
    assert info.covered == record.covered
    assert not cluster.client.cube(NAME).problem


def test_a_build_of_late_events_finds_that_the_base_cuboid_is_damaged(cluster: Cluster) -> None:
    cluster.enabled()
    record = ready(cluster)
    lose(cluster, record, "other bytes")
    late = cluster.closed(2, by=10, events=2)
    spec = cluster.client.start_build(NAME, record.name)
    cluster.client.fail_build(NAME, record.name, spec.build_id, "its base cuboid is damaged")
    lost = stored(cluster, record.name)
    assert (lost.state, lost.base_lost, lost.parts, lost.target) == (
        SegmentState.IMMUTABLE,
        True,
        (),
        late.target,
    )
    upload(cluster, record.name, 7)
    info = cluster.client.promote(NAME, record.name, cluster.build(record.name, events=7))
    assert (info.events, info.late_events, info.covered) == (7, 2, late.target)


def test_a_build_that_fails_for_another_reason_keeps_its_base(cluster: Cluster) -> None:
    cluster.enabled()
    record = ready(cluster)
    cluster.closed(2, by=10, events=2)
    spec = cluster.client.start_build(NAME, record.name)
    cluster.client.fail_build(NAME, record.name, spec.build_id, "out of memory")
    kept = stored(cluster, record.name)
    assert (kept.state, kept.base_lost) == (SegmentState.REMOTE_PERSISTED, False)


def test_a_version_that_lacks_events_of_the_one_before_is_not_promoted(cluster: Cluster) -> None:
    cluster.enabled()
    record = ready(cluster)
    lose(cluster, record)
    cluster.client.requeue(NAME, record.name)
    upload(cluster, record.name, 4)
    with pytest.raises(Corrupted, match="lacks events"):
        cluster.client.promote(NAME, record.name, cluster.build(record.name, events=4))
    cluster.files.write(f"{record.location}/base/part-0.parquet", DATA)
    assert cluster.client.requeue(NAME, record.name).state == "REMOTE_PERSISTED", "what it advises works"
    info = cluster.client.promote(NAME, record.name, cluster.build(record.name))
    assert (info.version, info.events) == (2, 5)


@pytest.mark.parametrize("late", [False, True])
def test_files_that_are_restored_are_built_on_again(cluster: Cluster, late: bool) -> None:
    cluster.enabled()
    record = ready(cluster)
    if late:
        cluster.closed(2, by=10, events=2)
    lose(cluster, record)
    cluster.client.requeue(NAME, record.name)
    cluster.files.write(f"{record.location}/base/part-0.parquet", DATA)
    asked = cluster.client.requeue(NAME, record.name)
    assert (asked.state, asked.base_lost) == ("IMMUTABLE" if late else "REMOTE_PERSISTED", False)
    if not late:
        assert cluster.client.start_build(NAME, record.name).previous_location == record.location


def test_what_kafka_no_longer_holds_is_named_and_can_be_accepted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.enabled()
    record = ready(cluster)
    note_begins(cluster, record)
    lose(cluster, record)
    cluster.topics.logs["clicks"][1] = (40, 1000)  # it begins at 10, the segment's events at 20
    said = run(cluster, monkeypatch, "requeue", NAME, record.name)
    assert said.exit_code == 0, said.output
    assert f"20–40 of partition 1, which nobody holds any more: `rtolap segments accept-loss {NAME}" in (
        said.stdout
    )
    listed = run(cluster, monkeypatch, "list", NAME).stdout
    assert "IMMUTABLE, base cuboid lost, events lost" in listed
    problem = cluster.client.cube(NAME).problem or ""
    assert f"restore the files of {record.location}" in problem
    assert f"accept-loss {NAME} {record.name} --reason" in problem
    accepted = cluster.client.accept_loss(NAME, record.name, *ACCEPTED)
    assert accepted.lost == ()
    (loss,) = accepted.losses
    assert ([one.model_dump() for one in loss.ranges], loss.by) == (
        [{"partition": 1, "start": 20, "end": 40}],
        "ada",
    )
    cluster.client.accept_loss(NAME, record.name, *ACCEPTED)
    control = cluster.metadata.control(NAME)
    assert (len(control.version_losses), control.losses) == (1, ()), "others lack nothing"
    upload(cluster, record.name, 3)
    info = cluster.client.promote(NAME, record.name, cluster.build(record.name, events=3))
    assert (info.version, info.events, info.late_events) == (2, 3, None)
    assert info.losses == accepted.losses


def test_a_purged_segment_is_no_problem_any_more(cluster: Cluster) -> None:
    cluster.enabled()
    record = ready(cluster)
    lose(cluster, record)
    cluster.client.requeue(NAME, record.name)
    assert record.name in (cluster.client.cube(NAME).problem or "")
    cluster.client.purge(NAME, record.end_ms)
    assert not cluster.client.cube(NAME).problem
    assert not cluster.client.segment(NAME, record.name).base_lost


def test_a_log_that_begins_before_the_segment_has_all_of_it(cluster: Cluster) -> None:
    cluster.enabled()
    record = ready(cluster)
    note_begins(cluster, record)
    lose(cluster, record)
    cluster.topics.logs["clicks"][1] = (20, 1000)
    assert cluster.client.requeue(NAME, record.name).lost == ()


def test_a_loss_of_one_version_is_none_of_other_segments(cluster: Cluster) -> None:
    cluster.enabled()
    record = ready(cluster)
    other = cluster.closed(3)
    lose(cluster, record)
    cluster.topics.logs["clicks"][1] = (40, 1000)
    cluster.client.requeue(NAME, record.name)
    cluster.client.accept_loss(NAME, record.name, *ACCEPTED)
    assert cluster.client.segment(NAME, other.name).losses == ()
    assert other.start_ms == 3 * HOUR_MS
