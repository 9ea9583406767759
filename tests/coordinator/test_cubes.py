from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rtolap.base.errors import DefinitionError, NotFound, Refused
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.protocols.coordinator.messages import CubeReport, HeartbeatRequest, PartitionReport

from tests.support.cubes.coordinator_harness import (
    CUBE,
    HOUR_MS,
    NAME,
    TABLE,
    Cluster,
    assert_columns_as_listed,
)

WINDOW = "19700101000000_19700101010000"


def test_definitions_are_created_read_listed_and_dropped(cluster: Cluster) -> None:
    cluster.define()
    lookup = {"name": "pages", "file": "pages.csv", "columns": [{"name": "page", "type": "string"}]}
    cluster.client.create_lookup(lookup)
    assert cluster.client.tables() == ["clicks"]
    assert cluster.client.lookups() == ["pages"]
    assert cluster.client.table("clicks")["topic"] == "clicks"
    assert cluster.client.lookup("pages")["file"] == "pages.csv"
    assert cluster.client.cube(NAME).definition["dimensions"] == ["page"]
    assert [status.name for status in cluster.client.cubes()] == [NAME]
    with pytest.raises(Refused, match=NAME):
        cluster.client.drop_table("clicks")
    cluster.client.drop_cube(NAME)
    cluster.client.drop_table("clicks")
    cluster.client.drop_lookup("pages")
    assert cluster.client.cubes() == []
    with pytest.raises(NotFound):
        cluster.client.cube(NAME)
    with pytest.raises(NotFound):
        cluster.client.table("clicks")


def test_cubes_are_listed_by_name_without_one_that_is_dropped_meanwhile(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{NAME}_{letter}" for letter in "dcba"]
    for name in names:
        cluster.define(name=name)
    listed = (*sorted(names), f"{NAME}_gone")
    monkeypatch.setattr(ClusterMetadata, "cubes", lambda _metadata: listed)
    found = cluster.client.cubes()
    assert [status.name for status in found] == sorted(names)
    assert found == [cluster.client.cube(name) for name in sorted(names)]


def test_creating_the_same_again_changes_nothing_and_another_is_refused(cluster: Cluster) -> None:
    cluster.define()
    cluster.define()
    with pytest.raises(Refused, match="another definition"):
        cluster.client.create_cube({**CUBE, "dimensions": []})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"table": "nothing"}, "does not exist"),
        ({"dimensions": ["colour"]}, "colour"),
        ({"unknown_key": 1}, "unknown"),
        ({"name": "../x"}, "name"),
    ],
)
def test_a_wrong_cube_is_told_why(cluster: Cluster, wrong: dict[str, Any], says: str) -> None:
    cluster.client.create_table(TABLE)
    with pytest.raises(DefinitionError, match=says):
        cluster.client.create_cube({**CUBE, **wrong})
    assert cluster.client.cubes() == []


def test_enabling_needs_a_receiver_and_a_topic(cluster: Cluster) -> None:
    cluster.define()
    with pytest.raises(Refused, match="receiver"):
        cluster.client.enable_cube(NAME)
    cluster.receiver("r1", "rs1")
    logs = cluster.topics.logs.pop("clicks")
    with pytest.raises(NotFound, match=r"expected the topic clicks; .*--topic clicks --partitions 4"):
        cluster.client.enable_cube(NAME)
    assert cluster.client.cube(NAME).enabled is False
    cluster.topics.logs["clicks"] = logs
    assert cluster.client.enable_cube(NAME).enabled is True


@pytest.mark.parametrize(("start", "first"), [("earliest", 10), ("latest", 1000)])
def test_enabling_fixes_assignment_and_first_offsets_once(cluster: Cluster, start: str, first: int) -> None:
    for name, replica_set in (("r1", "rs1"), ("r2", "rs1"), ("r3", "rs2")):
        cluster.receiver(name, replica_set)
    cluster.define(start=start)
    status = cluster.client.enable_cube(NAME)
    assert status.assignment == {"rs1": (0, 2), "rs2": (1, 3)}
    assert status.first_offsets[1] == first
    cluster.topics.logs["clicks"] = dict.fromkeys(range(4), (500, 2000))
    cluster.client.disable_cube(NAME)
    again = cluster.client.enable_cube(NAME)
    assert (again.assignment, again.first_offsets) == (status.assignment, status.first_offsets)
    assert again.assignment_epoch == status.assignment_epoch


def test_the_assigner_can_be_chosen(cluster: Cluster) -> None:
    for name in ("rs1", "rs2", "rs3", "rs4"):
        cluster.receiver(f"r-{name}", name)
    cluster.define()
    status = cluster.client.enable_cube(NAME, "round_robin")
    assert status.assignment == {"rs1": (0,), "rs2": (1,), "rs3": (2,), "rs4": (3,)}
    with pytest.raises(DefinitionError, match="assigner"):
        cluster.client.enable_cube(NAME, "nonsense")


def test_an_added_partition_is_noticed_and_begins_at_zero(cluster: Cluster) -> None:
    cluster.receiver("r1", "rs1")
    cluster.receiver("r2", "rs2")
    cluster.define(consumer_tasks_max=2)
    cluster.client.enable_cube(NAME)
    cluster.topics.logs["clicks"].update({4: (0, 0), 5: (7, 9)})
    cluster.coordinator.checks.run(NAME)
    status = cluster.client.cube(NAME)
    assert status.assignment == {"rs1": (0, 2, 4), "rs2": (1, 3, 5)}
    assert (status.first_offsets[4], status.first_offsets[5]) == (0, 0)
    assert status.assignment_epoch == 2
    assert "begins at offset 7" in str(status.problem)


def test_a_topic_that_is_gone_is_a_visible_problem_and_passes(cluster: Cluster) -> None:
    cluster.enabled()
    assert cluster.client.cube(NAME).problem is None
    logs = cluster.topics.logs.pop("clicks")
    cluster.coordinator.checks.run(NAME)
    assert "topic clicks is missing" in str(cluster.client.cube(NAME).problem)
    cluster.topics.logs["clicks"] = logs
    cluster.coordinator.checks.run(NAME)
    assert cluster.client.cube(NAME).problem is None


def test_a_topic_that_was_recreated_is_a_problem_of_the_cube_and_changes_nothing(cluster: Cluster) -> None:
    cluster.enabled()
    before = cluster.metadata.control(NAME)
    assert (before.topic_id, cluster.client.cube(NAME).topic_id) == ("id-1", "id-1")
    cluster.topics.ids["clicks"] = "id-2"
    cluster.topics.logs["clicks"][9] = (0, 100)
    cluster.coordinator.checks.run(NAME)
    problem = str(cluster.client.cube(NAME).problem)
    assert problem.startswith("topic_recreated: ")
    assert "rtolap drop" in problem
    with pytest.raises(Refused, match="topic_recreated"):
        cluster.client.enable_cube(NAME)
    assert cluster.metadata.control(NAME) == before


def test_a_cube_of_an_older_version_adopts_the_id_of_its_topic(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.metadata.update_control(NAME, lambda control: msgspec.structs.replace(control, topic_id=""))
    cluster.coordinator.checks.run(NAME)
    assert cluster.client.cube(NAME).topic_id == "id-1"


def test_kafka_retention_beyond_replay_from_is_an_alarm(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.metadata.set_replay_from(NAME, "rs1", {0: 40, 1: 50, 2: 60, 3: 70})
    cluster.coordinator.checks.run(NAME)
    assert cluster.client.cube(NAME).replay_from == {0: 40, 1: 50, 2: 60, 3: 70}
    assert cluster.client.cube(NAME).problem is None
    cluster.topics.logs["clicks"][2] = (61, 1000)
    cluster.coordinator.checks.run(NAME)
    assert "clicks/2 begins at offset 61, but a replay needs 60" in str(cluster.client.cube(NAME).problem)


def test_pause_resume_and_disable_are_switches(cluster: Cluster) -> None:
    cluster.enabled()
    assert cluster.client.pause_cube(NAME).paused is True
    assert cluster.client.resume_cube(NAME).paused is False
    with pytest.raises(Refused, match=r"disable it before it is dropped: `rtolap drop \w+ --disable`"):
        cluster.client.drop_cube(NAME)
    assert cluster.client.disable_cube(NAME).enabled is False
    cluster.client.drop_cube(NAME)


def test_who_has_turned_a_switch_stays_until_it_is_turned_again(cluster: Cluster) -> None:
    cluster.enabled()
    first = cluster.client.cube(NAME).switched
    assert first is not None
    assert (first.to, first.by) == ("enable", "")
    client = cluster.client
    for turn, asked, to, by in (
        (client.pause_cube, "ada", "pause", "ada"),
        (client.pause_cube, "late", "pause", "ada"),
        (client.resume_cube, "bob", "resume", "bob"),
        (client.resume_cube, "late", "resume", "bob"),
        (client.disable_cube, "ann", "disable", "ann"),
        (client.disable_cube, "late", "disable", "ann"),
        (client.enable_cube, "eve", "enable", "eve"),
        (client.enable_cube, "late", "enable", "eve"),
    ):
        status = turn(NAME, by=asked, reason=f"of {asked}")
        assert status.switched is not None
        assert (status.switched.to, status.switched.by) == (to, by)
        assert status.switched.reason == f"of {by}"
        assert status.switched.at_ms == cluster.metadata.clock.now_ms()


def test_forced_closing_is_written_for_the_leaders_and_never_shrinks(cluster: Cluster) -> None:
    cluster.enabled()
    later = "19700101010000_19700101020000"
    assert cluster.client.close_segment(NAME, later).state == "ACTIVE"
    cluster.client.close_segment(NAME, WINDOW)
    control = cluster.metadata.control(NAME)
    assert (control.close_before_ms, control.close_epoch) == (2 * HOUR_MS, 2)
    with pytest.raises(NotFound):
        cluster.client.close_segment(NAME, "19700101000000_19700101000001")
    with pytest.raises(DefinitionError):
        cluster.client.close_segment(NAME, "yesterday")


def test_segments_without_a_record_are_seen_through_heartbeats(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(1)
    report = CubeReport(
        state="CONSUMING",
        partitions={0: PartitionReport(position=5, watermark_ms=7)},
        active=(WINDOW, record.name),
    )
    cluster.client.heartbeat(HeartbeatRequest(receiver_id="r1", replica_set="rs1", cubes={NAME: report}))
    assert [(s.segment, s.state) for s in cluster.client.segments(NAME)] == [
        (WINDOW, "ACTIVE"),
        (record.name, "REMOTE_PERSISTED"),
    ]
    assert [s.segment for s in cluster.client.segments(NAME, state="ACTIVE")] == [WINDOW]
    assert_columns_as_listed(cluster.client, NAME)
    assert [s.segment for s in cluster.client.segments(NAME, start_ms=HOUR_MS)] == [record.name]
    assert [s.segment for s in cluster.client.segments(NAME, end_ms=HOUR_MS)] == [WINDOW]
    assert cluster.client.cube(NAME).segments["ACTIVE"] == 1
    with pytest.raises(DefinitionError):
        cluster.client.segments(NAME, state="SLEEPY")


def test_replay_from_is_the_furthest_word_of_any_replica_set(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.metadata.set_replay_from(NAME, "old", {0: 3, 1: 900})
    cluster.metadata.set_replay_from(NAME, "rs1", {0: 40})
    assert cluster.metadata.replay_from(NAME) == {0: 40, 1: 900, 2: 20, 3: 30}


def test_what_a_replica_set_said_of_a_partition_outlives_its_giving_it_away(cluster: Cluster) -> None:
    """The new owner begins there, not where the cube did: Kafka may hold nothing older."""
    cluster.enabled()
    cluster.metadata.set_replay_from(NAME, "rs1", {0: 40, 1: 900})
    cluster.metadata.set_replay_from(NAME, "rs1", {0: 41})
    cluster.metadata.set_replay_from(NAME, "rs1", {0: 30})
    assert cluster.metadata.replay_from(NAME) == {0: 41, 1: 900, 2: 20, 3: 30}
