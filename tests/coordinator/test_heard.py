"""What a leader decides on what receivers have said: one that has not heard them waits, and says for whom."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from rtolap.base.errors import NotYet, Refused
from rtolap.cli.cubes import batches as batches_commands
from rtolap.coordinator.heartbeats import SILENT_AFTER_MS, Heartbeats
from rtolap.metadata import paths
from rtolap.metadata.records import WatermarkRecord
from rtolap.metadata.segments import close
from rtolap.metadata.store import Delete
from rtolap.model.segment import SegmentRange, segment_of
from rtolap.protocols.coordinator import operations
from rtolap.protocols.coordinator.messages import (
    Alteration,
    AlterRequest,
    CubeReport,
    HeartbeatRequest,
    PartitionRange,
    PartitionReport,
    ReassignRequest,
)
from rtolap.protocols.coordinator.operations import altered_cube, planned_batch
from typer.testing import CliRunner

from tests.support.cubes.coordinator_harness import CUBE, HOUR_MS, NAME, READ_ALL, Cluster
from tests.support.seeds import notices, so_many

SOURCE = {"format": "parquet", "path": "file:///exports/"}
SETS = {"rs1": ("r1", "r1b"), "rs2": ("r2", "r2b"), "rs3": ("r3",)}
HOURS = 8
DRAWS = 40
BLIND_SEED = 0


def plan(cluster: Cluster, batch: str, hour: int) -> None:
    cluster.client.plan_batch(NAME, batch, hour * HOUR_MS, (hour + 1) * HOUR_MS, SOURCE)


def lead_anew(cluster: Cluster) -> None:
    """Have the leader know what one knows that has just begun to lead."""
    cluster.coordinator.heartbeats.clear()


def die(cluster: Cluster, receiver: str) -> None:
    """Have its session expire."""
    cluster.store.commit([Delete(paths.receiver_live(receiver))])


def say(cluster: Cluster, receiver: str, replica_set: str, report: CubeReport) -> None:
    cluster.client.heartbeat(
        HeartbeatRequest(receiver_id=receiver, replica_set=replica_set, cubes={NAME: report})
    )


def read(cluster: Cluster, replica_set: str, position: int = READ_ALL) -> dict[int, PartitionReport]:
    owned = cluster.metadata.control(NAME).assignment.get(replica_set, ())
    return {p: PartitionReport(position=position, log_end=1000) for p in owned}


@dataclass
class Drawn:
    """A cube that some replica sets own; which of its receivers live, have caught up, and were heard.

    Attributes:
        held: by replica set: hours whose events its receivers answered before, and no history has.
        known: sets of which a living receiver has caught up and reported under the assignment that stands.
        unheard: living receivers of owners that have not reported to this leader, or not lately.
        replaying: those that have, and read their share again.
    """

    held: dict[str, set[int]] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    unheard: set[str] = field(default_factory=set)
    replaying: set[str] = field(default_factory=set)


def draw(cluster: Cluster, rng: random.Random) -> Drawn:
    """Draw a leader that has just begun, and what it hears by now."""
    lead_anew(cluster)
    world, epoch = Drawn(), cluster.metadata.control(NAME).assignment_epoch
    control = cluster.metadata.control(NAME)
    late: list[tuple[str, str, CubeReport]] = []
    names = [receiver for receivers in SETS.values() for receiver in receivers]
    troubled = rng.choice(([], [rng.choice(names)], names))
    for replica_set, receivers in SETS.items():
        owns = bool(control.assignment.get(replica_set))
        held = {hour for hour in range(HOURS) if rng.random() < 0.2} if owns else set()
        world.held[replica_set] = held
        for receiver in receivers:
            is_calm = receiver not in troubled
            if not is_calm and rng.random() < 0.3:
                die(cluster, receiver)
                continue
            state = "CONSUMING" if is_calm else rng.choice(("CONSUMING", "CONSUMING", "REPLAYING", "PAUSED"))
            follows = epoch if is_calm or rng.random() < 0.9 else epoch - 1
            position = rng.choice((READ_ALL, 10)) if state == "PAUSED" else 10
            is_read = follows == epoch and (state == "CONSUMING" or position == READ_ALL)
            active = [segment_of(hour * HOUR_MS, HOUR_MS).name for hour in sorted(held) if is_read]
            report = CubeReport(
                state=state,
                assignment_epoch=follows,
                partitions=read(cluster, replica_set, position),
                active=tuple(active),
            )
            when = "now" if is_calm else rng.choice(("now", "now", "now", "before", "never"))
            if owns and when != "now":
                world.unheard.add(receiver)
            if owns and when == "now" and state == "REPLAYING":
                world.replaying.add(receiver)
            if when == "before":
                say(cluster, receiver, replica_set, report)
            elif when == "now":
                late.append((receiver, replica_set, report))
                if owns and is_read:
                    world.known.add(replica_set)
    cluster.clock.advance_ms(SILENT_AFTER_MS + 1)
    for each in late:
        say(cluster, *each)
    return world


def run(cluster: Cluster, seed: int) -> dict[str, int]:
    """Plan batches of segments without history, and a change that drops segments, at leaders that have heard
    this and that."""
    rng = random.Random(seed)
    for replica_set, receivers in SETS.items():
        for receiver in receivers:
            cluster.receiver(receiver, replica_set)
    cluster.define()
    cluster.client.enable_cube(NAME)
    cluster.metadata.publish_watermark(NAME, WatermarkRecord((HOURS + 1) * HOUR_MS))
    counts = {"planned": 0, "waits": 0, "refused": 0}
    for number in range(DRAWS):
        for receivers in SETS.values():
            for receiver in receivers:
                cluster.metadata.announce_live(receiver, "instance")
        owners = {p: rng.choice(sorted(SETS)) for p in range(4)}
        assignment = {name: tuple(p for p in owners if owners[p] == name) for name in SETS}
        cluster.client.reassign(NAME, ReassignRequest(assignment=assignment, warm_up=False))
        world, hour = draw(cluster, rng), rng.randrange(HOURS)
        is_held = any(hour in hours for hours in world.held.values())
        sure = not world.unheard | world.replaying and world.known == {
            name for name, its in assignment.items() if its
        }
        found = outcome(cluster, f"b{number}", hour)
        counts[found] += 1
        expected = {"refused" if is_held else "planned"}
        if not sure:
            expected = {"waits", "refused"} if is_held else {"waits"}
        assert found in expected, f"seed {seed}: {found} of hour {hour}, expected {expected} in {world}"
        named = {hour for name in world.known for hour in world.held[name]}
        dropped = None if world.unheard else {segment_of(hour * HOUR_MS, HOUR_MS).name for hour in named}
        shown = dropped_by_a_change(cluster)
        assert shown == dropped, f"seed {seed}: {shown} are dropped, expected {dropped} in {world}"
    return counts


def dropped_by_a_change(cluster: Cluster) -> set[str] | None:
    """Return the segments that a plan says that a shorter retention drops; None where it waits."""
    shorter = {**CUBE, "retention": {"after_ms": HOUR_MS}}
    try:
        plan = cluster.client.alter_cube(NAME, AlterRequest(definition=shorter, dry_run=True))
    except NotYet:
        return None
    return set(plan.dropped_segments)


def outcome(cluster: Cluster, batch: str, hour: int) -> str:
    try:
        plan(cluster, batch, hour)
    except NotYet:
        return "waits"
    except Refused:
        return "refused"
    return "planned"


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3, 4)))
def test_no_batch_is_planned_of_what_receivers_may_hold(cluster: Cluster, seed: int) -> None:
    counts = run(cluster, seed)
    assert min(counts.values()) > 0, f"seed {seed}: {counts} proves little"


@pytest.mark.parametrize("blind", ["unheard", "unknown", "check_heard"])
def test_the_runs_notice_a_leader_that_takes_silence_for_an_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, blind: str
) -> None:
    nothing: object = {} if blind == "unheard" else []
    monkeypatch.setattr(Heartbeats, blind, lambda *known, **more: nothing)
    assert notices(lambda seed: run(cluster, seed), BLIND_SEED, "expected", seeds=1)


def test_a_batch_waits_for_the_receivers_and_names_them(cluster: Cluster) -> None:
    cluster.receiver("r1b", "rs1")
    cluster.enabled()
    cluster.report()
    plan(cluster, "b1", 1)
    lead_anew(cluster)
    with pytest.raises(NotYet, match="receiver r1 of rs1 has not reported the cube; receiver r1b of rs1"):
        plan(cluster, "b2", 2)
    plan(cluster, "b1", 1)  # it is planned already
    die(cluster, "r1b")
    say(cluster, "r1", "rs1", CubeReport(state="REPLAYING", assignment_epoch=1, partitions={}))
    with pytest.raises(NotYet, match="no living receiver of rs1 has read partitions"):
        plan(cluster, "b2", 2)
    cluster.report()
    plan(cluster, "b2", 2)


def test_a_batch_waits_for_a_report_that_names_all_segments(cluster: Cluster) -> None:
    cluster.enabled()
    report = CubeReport(state="CONSUMING", assignment_epoch=1, partitions=read(cluster, "rs1"))
    say(cluster, "r1", "rs1", report.model_copy(update={"more_active": True}))
    with pytest.raises(
        NotYet, match="receiver r1 holds events of more open segments than its report can name"
    ):
        plan(cluster, "b1", 1)
    say(cluster, "r1", "rs1", report)
    plan(cluster, "b1", 1)


def test_a_batch_of_history_alone_waits_for_nobody(cluster: Cluster) -> None:
    """Whatever receivers hold of a READY segment lies beyond its vector."""
    cluster.enabled()
    record = cluster.closed(2)
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    plan(cluster, "b1", 2)


def test_who_asks_for_a_batch_asks_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.enabled()
    asked = []

    def hear(_: float) -> None:
        asked.append(1)
        if len(asked) == 3:
            cluster.report()

    monkeypatch.setattr(operations.time, "sleep", hear)
    assert planned_batch(cluster.client, NAME, "b1", 0, HOUR_MS, SOURCE).fresh == 1
    assert len(asked) == 3
    lead_anew(cluster)
    with pytest.raises(NotYet, match="has not reported the cube"):
        planned_batch(cluster.client, NAME, "b2", 0, HOUR_MS, SOURCE, wait_s=0)
    assert len(asked) == 3
    first = cluster.clock.now_ms() // HOUR_MS * HOUR_MS
    with pytest.raises(Refused, match="the stream has not passed it"):
        planned_batch(cluster.client, NAME, "b2", first, first + HOUR_MS, SOURCE)
    assert len(asked) == 3, "time alone does not mend it"


def test_the_command_says_for_whom_it_has_waited(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster.enabled()
    monkeypatch.setattr(cluster.client, "close", lambda: None)
    monkeypatch.setattr(batches_commands, "coordinator_client", lambda: cluster.client)
    source = tmp_path_factory.mktemp("source") / "source.yaml"
    source.write_text("{format: parquet, path: 'file:///exports/'}")
    span = ("--from", "1970-01-01T00:00:00Z", "--to", "1970-01-01T01:00:00Z", "--source", str(source))
    command = ("plan", NAME, "b1", *span, "--wait-s", "0")
    assert isinstance(CliRunner().invoke(batches_commands.app, command).exception, NotYet)
    cluster.report()
    done = CliRunner().invoke(batches_commands.app, command)
    assert "may begin 1 more" in done.stdout


def test_no_loss_is_accepted_while_a_living_receiver_may_hold_the_events(cluster: Cluster) -> None:
    cluster.receiver("r1b", "rs1")
    cluster.enabled()
    window = SegmentRange(2 * HOUR_MS, 3 * HOUR_MS)
    record = cluster.metadata.update_segment(
        NAME, window, lambda each: close(each, {p: 10 * p + 100 for p in range(4)}, now_ms=1, by="rs1")
    )
    lost = PartitionRange(partition=1, start=15, end=40)
    failed = CubeReport(state="FAILED", reason="no longer holds offset 15", assignment_epoch=1, lost=(lost,))

    def accept() -> None:
        cluster.client.accept_loss(NAME, record.name, "ada", "disk burnt")

    say(cluster, "r1", "rs1", failed)
    with pytest.raises(NotYet, match="found none of r1b"):
        accept()
    say(cluster, "r1b", "rs1", CubeReport(state="CONSUMING", partitions=read(cluster, "rs1")))
    with pytest.raises(Refused, match="is not known to wait for lost events"):
        accept()
    cluster.clock.advance_ms(SILENT_AFTER_MS + 1)
    say(cluster, "r1", "rs1", failed)
    with pytest.raises(NotYet, match="found none of r1b"):
        accept()
    assert cluster.metadata.control(NAME).losses == ()
    die(cluster, "r1b")
    accept()
    assert len(cluster.metadata.control(NAME).losses) == 1


def test_a_change_is_not_shown_for_fewer_segments_than_it_drops(cluster: Cluster) -> None:
    cluster.receiver("r1b", "rs1")
    cluster.enabled()
    cluster.metadata.publish_watermark(NAME, WatermarkRecord(6 * HOUR_MS))
    shorter = {**CUBE, "retention": {"after_ms": 3 * HOUR_MS}}
    held = segment_of(2 * HOUR_MS, HOUR_MS).name

    def hear(*receivers: str) -> None:
        for receiver in receivers:
            named = (held,) if receiver == "r1b" else ()
            owned = read(cluster, "rs1")
            report = CubeReport(state="CONSUMING", assignment_epoch=1, partitions=owned, active=named)
            say(cluster, receiver, "rs1", report)

    def alter(**options: bool) -> Alteration:
        return cluster.client.alter_cube(NAME, AlterRequest(definition=shorter, **options))

    hear("r1", "r1b")
    assert alter(dry_run=True).dropped_segments == (held,)
    lead_anew(cluster)
    hear("r1")
    for options in ({"dry_run": True}, {}, {"drop_segments": True}):
        with pytest.raises(NotYet, match="found none of r1b"):
            alter(**options)
    hear("r1b")
    with pytest.raises(Refused, match="drops 1 segments for good"):
        alter()
    lead_anew(cluster)
    hear("r1")
    die(cluster, "r1b")
    assert alter().applied, "who is gone is not waited for"


def test_a_revision_that_begins_behind_all_segments_waits_to_know_them(cluster: Cluster) -> None:
    cluster.enabled()
    wider = {**CUBE, "segment": {"window_ms": 2 * HOUR_MS}}
    held = segment_of(7 * HOUR_MS, HOUR_MS).name

    def follow(**options: Any) -> int | None:
        request = AlterRequest(definition=wider, new_revision=True, dry_run=True, **options)
        return cluster.client.alter_cube(NAME, request).since_ms

    with pytest.raises(NotYet, match="none of r1"):
        follow()
    assert follow(since_ms=4 * HOUR_MS) == 4 * HOUR_MS, "what the caller says is not waited for"
    cluster.report(held=[held])
    assert follow() == 8 * HOUR_MS


def test_who_alters_a_cube_asks_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.enabled()
    waits: list[float] = []

    def hear(wait_s: float) -> None:
        waits.append(wait_s)
        cluster.report()

    monkeypatch.setattr(operations.time, "sleep", hear)
    wider = {**CUBE, "segment": {"window_ms": 2 * HOUR_MS}}
    done = altered_cube(cluster.client, NAME, AlterRequest(definition=wider, new_revision=True))
    assert (done.applied, len(waits)) == (True, 1)


def test_no_move_ends_before_each_living_owner_was_heard(cluster: Cluster) -> None:
    """Of two receivers of a replica set, the other one may have answered further."""
    cluster.receiver("r1b", "rs1")
    cluster.enabled()
    cluster.receiver("r2", "rs2")
    cluster.client.reassign(NAME, ReassignRequest(assignment={"rs2": (0, 1, 2, 3)}, warm_up=True))
    owned = read(cluster, "rs1", 50)
    warm = CubeReport(state="CONSUMING", assignment_epoch=2, partitions=owned)

    def look() -> int:
        for _ in range(2):
            say(cluster, "r1", "rs1", CubeReport(state="CONSUMING", assignment_epoch=1, partitions=owned))
            cluster.client.heartbeat(
                HeartbeatRequest(receiver_id="r2", replica_set="rs2", warming={NAME: warm})
            )
            cluster.ensemble.settle()
            cluster.coordinator.tick()
        return cluster.client.cube(NAME).assignment_epoch

    assert look() == 1
    waits = cluster.client.cube(NAME).move_waits
    assert waits == ("receiver r1b of rs1 has not reported how far it has answered",)
    say(cluster, "r1b", "rs1", CubeReport(state="CONSUMING", assignment_epoch=1, partitions=owned))
    assert look() == 2
