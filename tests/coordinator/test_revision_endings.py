"""An older revision ends once nothing of its time can be accepted, and is dropped once all of it aged out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import pytest
from rtolap.base.errors import Refused
from rtolap.coordinator.alterations import endings
from rtolap.cubes.format.folders import creation_folder
from rtolap.metadata.publications import Publications
from rtolap.metadata.records import WatermarkRecord
from rtolap.metadata.store import Operation
from rtolap.model.cube import Cube
from rtolap.model.evolution.revision_life import RevisionState
from rtolap.model.evolution.revisions import series_of
from rtolap.protocols.coordinator.messages import AlterRequest, ReassignRequest

from tests.support.cubes.coordinator_harness import CUBE, HOUR_MS, NAME, TABLE, Cluster

SECOND = f"{NAME}_r2"
PAGES = {"dimensions": ["page", "country"]}
COUNTRY = {**TABLE, "columns": [*TABLE["columns"], {"name": "country", "type": "string"}]}
GRACE_MS = 600_000


def followed(cluster: Cluster, *, since: int = 4, **cube: Any) -> None:
    """A cube with a READY segment, and a revision from an hour on."""
    cluster.receiver("r1", "rs1")
    cluster.define(**cube)
    cluster.client.enable_cube(NAME)
    cluster.closed(since - 1)
    cluster.client.promote(NAME, name_of(since - 1), cluster.build(name_of(since - 1)))
    request = AlterRequest(definition={**CUBE, **cube, **PAGES}, table=COUNTRY, new_revision=True)
    assert cluster.alter(NAME, request).since_ms == since * HOUR_MS


def name_of(hour: int) -> str:
    return f"19700101{hour:02d}0000_19700101{hour + 1:02d}0000"


def cube(cluster: Cluster, name: str) -> Cube:
    return msgspec.convert(cluster.client.cube(name).definition, Cube)


def look(cluster: Cluster, name: str = NAME, *, drops: bool = False) -> RevisionState | None:
    return cluster.coordinator._endings.run(name, drops=drops)


def test_one_that_merges_late_events_reads_on_until_all_of_it_is_purged(cluster: Cluster) -> None:
    followed(cluster)
    before = cluster.metadata.control(NAME)
    assert look(cluster) is RevisionState.READING
    cluster.client.purge(NAME, 4 * HOUR_MS - 1)
    assert look(cluster) is RevisionState.READING
    assert cluster.metadata.control(NAME).assignment == before.assignment
    cluster.client.purge(NAME, 4 * HOUR_MS)
    assert look(cluster) is RevisionState.RETIRED
    after = cluster.metadata.control(NAME)
    assert (after.ended, after.assignment, after.assignment_epoch) == (True, {}, before.assignment_epoch + 1)
    assert look(cluster, SECOND) is None
    assert cluster.metadata.control(SECOND).assignment == before.assignment
    assert cluster.client.cube(NAME).ended


def test_one_that_drops_late_events_ends_with_the_last_of_its_segments(cluster: Cluster) -> None:
    followed(cluster, late={"policy": "drop"})
    assert look(cluster) is RevisionState.READING  # an event of any hour without a segment is accepted
    cluster.client.purge(NAME, 2 * HOUR_MS)
    assert look(cluster) is RevisionState.READING
    cluster.client.purge(NAME, 3 * HOUR_MS)
    assert look(cluster) is RevisionState.ENDED
    record = cluster.metadata.segment(NAME, name_of(3))
    assert record is not None
    assert record.version == 1, "it answers on"


def test_one_whose_version_has_to_be_built_again_reads_on(cluster: Cluster) -> None:
    """And ends again, once it is."""
    followed(cluster, late={"policy": "drop"})
    cluster.client.purge(NAME, 3 * HOUR_MS)
    assert look(cluster) is RevisionState.ENDED
    ended = cluster.metadata.control(NAME)
    window = cluster.metadata.segment(NAME, name_of(3))
    assert window is not None
    cluster.metadata.update_segment(
        NAME, window.range, lambda record: msgspec.structs.replace(record, base_lost=True)
    )
    assert look(cluster) is RevisionState.READING
    again = cluster.metadata.control(NAME)
    assert again.assignment == {"rs1": (0, 1, 2, 3)}
    assert again.first_offsets == ended.first_offsets
    assert again.assignment_epoch == ended.assignment_epoch + 1
    cluster.metadata.update_segment(
        NAME, window.range, lambda record: msgspec.structs.replace(record, base_lost=False)
    )
    assert look(cluster) is RevisionState.ENDED


def test_nobody_assigns_one_that_has_ended(cluster: Cluster) -> None:
    followed(cluster)
    cluster.client.purge(NAME, 4 * HOUR_MS)
    look(cluster)
    cluster.topics.logs["clicks"][4] = (0, 0)
    cluster.topics.logs["clicks"][0] = (990, 1000)  # a replay of the newest needs more
    for _ in range(2):
        cluster.coordinator.checks.run(NAME)
    cluster.client.disable_cube(NAME)
    cluster.client.enable_cube(NAME)
    assert cluster.metadata.control(NAME).assignment == {}
    assert cluster.client.cube(NAME).problem is None
    with pytest.raises(Refused, match="has ended"):
        cluster.client.reassign(NAME, ReassignRequest())
    assert 4 in cluster.metadata.control(SECOND).assignment["rs1"]


def test_the_retention_drops_what_has_aged_out_and_everything_goes_on_by_the_name(cluster: Cluster) -> None:
    followed(cluster)
    folder = creation_folder("history", NAME, cluster.metadata.cube_id(NAME))
    assert cluster.files.folders(folder)
    cluster.metadata.publish_watermark(NAME, WatermarkRecord(14 * HOUR_MS))
    cluster.metadata.publish_watermark(SECOND, WatermarkRecord(15 * HOUR_MS))
    first = cluster.client.retention(NAME)
    assert (first.horizon_ms, first.segments, first.dropped) == (4 * HOUR_MS, (name_of(3),), "")
    assert cluster.client.retention(NAME).horizon_ms == 5 * HOUR_MS, "by the newest one's watermark now"
    schemas = {name: cluster.metadata.schema(name) for name in cluster.metadata.cubes()}
    assert [each.cube.name for each in series_of(schemas)[NAME]] == [SECOND]
    cluster.clock.advance_ms(GRACE_MS)
    assert cluster.client.retention(NAME).dropped == NAME
    assert cluster.metadata.cubes() == (SECOND,)
    assert not cluster.files.folders(folder)
    assert cluster.client.retention(NAME).dropped == "", "a repetition is one for what stands"
    assert cluster.client.cube(NAME).name == SECOND
    cluster.client.create_cube({**CUBE, **PAGES})  # as its file declares it
    cluster.client.pause_cube(NAME)
    assert cluster.metadata.control(SECOND).paused
    wider = {**PAGES, "segment": {"window_ms": 2 * HOUR_MS}}
    done = cluster.alter(NAME, AlterRequest(definition={**CUBE, **wider}, new_revision=True))
    assert done.revision == f"{NAME}_r3"
    assert cluster.client.cube(NAME).revisions == (f"{NAME}_r3",)
    with pytest.raises(Refused, match="is a revision of cube"):
        cluster.client.drop_cube(f"{NAME}_r3")
    cluster.client.disable_cube(NAME)
    cluster.client.drop_cube(NAME)
    assert cluster.metadata.cubes() == ()


def test_a_publication_holds_one_that_has_aged_out(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    followed(cluster)
    published = [("prices",)]
    monkeypatch.setattr(
        Publications, "of_cube", lambda self, name: published[0] if published and name == NAME else ()
    )
    cluster.client.purge(NAME, 4 * HOUR_MS)
    assert look(cluster) is RevisionState.RETIRED
    cluster.clock.advance_ms(GRACE_MS)
    assert cluster.client.retention(NAME).dropped == ""
    published.clear()
    assert cluster.client.retention(NAME).dropped == NAME


def test_one_in_the_middle_waits_for_those_before_it(cluster: Cluster) -> None:
    followed(cluster)
    wider = {**CUBE, **PAGES, "segment": {"window_ms": 2 * HOUR_MS}}
    request = AlterRequest(definition=wider, new_revision=True, since_ms=8 * HOUR_MS)
    cluster.alter(NAME, request)
    cluster.coordinator.purge.purge(SECOND, 8 * HOUR_MS)
    assert look(cluster, SECOND) is RevisionState.ENDED
    cluster.client.purge(NAME, 8 * HOUR_MS)
    assert look(cluster) is RevisionState.RETIRED
    assert look(cluster, SECOND) is RevisionState.ENDED
    cluster.clock.advance_ms(GRACE_MS)
    assert look(cluster, drops=True) is RevisionState.DROPPED
    assert look(cluster, SECOND) is RevisionState.RETIRED
    cluster.clock.advance_ms(GRACE_MS)
    assert cluster.client.retention(SECOND).dropped == SECOND
    assert cluster.client.retention(SECOND).dropped == ""
    assert cluster.metadata.cubes() == (f"{NAME}_r3",)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("broken", range(6))
def test_a_broken_commit_anywhere_is_gone_on_with(
    cluster: Cluster, when: Literal["before", "after"], broken: int
) -> None:
    followed(cluster)
    cluster.client.purge(NAME, 4 * HOUR_MS)
    left = [broken]

    def fault(operations: Sequence[Operation]) -> Literal["before", "after"] | None:
        left[0] -= 1
        return when if left[0] == -1 else None

    cluster.ensemble.fault = fault
    look(cluster)
    cluster.clock.advance_ms(GRACE_MS)
    look(cluster, drops=True)
    cluster.ensemble.fault = None
    if NAME in cluster.metadata.cubes():
        look(cluster, drops=True)
    assert cluster.metadata.cubes() == (SECOND,)
    assert cluster.metadata.control(SECOND).enabled


def test_the_leader_looks_by_itself(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    followed(cluster)
    cluster.client.purge(NAME, 4 * HOUR_MS)
    cluster.coordinator._check((NAME, SECOND))
    assert cube(cluster, NAME).revision is not None
    assert cluster.metadata.control(NAME).ended
    cluster.clock.advance_ms(GRACE_MS)
    cluster.coordinator._check((NAME, SECOND))
    assert cluster.metadata.cubes() == (NAME, SECOND), "only a run of the retention drops"
    assert endings.GRACE_MS == GRACE_MS
