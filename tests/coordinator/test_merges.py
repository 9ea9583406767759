"""Merges at the coordinator: what is planned, what each crash leaves, and what is cleaned up when."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
import pytest
from rtolap.base.errors import CommitUnknown, Corrupted, NotFound, NotYet, Refused
from rtolap.coordinator.merging.leftovers import TRIMMED_NAME
from rtolap.coordinator.merging.merges import COMMITTED_MS, KEPT_MS
from rtolap.coordinator.merging.states import CLEANUPS, MergeState, merge_state
from rtolap.coordinator.purge import GRACE_MS
from rtolap.cubes.format.history import check_base
from rtolap.cubes.format.manifest import MANIFEST_NAME, CuboidEntry, FileEntry
from rtolap.cubes.format.merge_inputs import declared_members, finish_set
from rtolap.metadata.change_log import change_log
from rtolap.metadata.merging.units import history_units, whole_sets
from rtolap.metadata.records import SegmentRecord, WatermarkRecord, standing
from rtolap.model.merging.specs import MergeSpec
from rtolap.model.publication import IcebergCatalog, Publication
from rtolap.protocols.coordinator.messages import PlannedMerge
from rtolap.publish.operations import create_publication

from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster

DAY = 24  # hours
ALL = ("hour_start", "day_start", "page")
GROUPS = [{"include": ["page"]}]


@pytest.fixture
def merging(cluster: Cluster) -> Cluster:
    """A cube of hours that merges to days and months, and two days of history, three hours each."""
    cluster.receiver("r1", "rs1")
    cluster.define(
        retention={}, merge={"to": ["day", "month"], "after_ms": HOUR_MS}, aggregation_groups=GROUPS
    )
    cluster.client.enable_cube(NAME)
    for hour in (1, 2, 5, DAY + 1, DAY + 2, DAY + 3):
        ready(cluster, hour)
    passed(cluster, 2 * DAY + 1)
    cluster.client.cleanup(NAME)  # of staged files
    return cluster


def passed(cluster: Cluster, hour: int) -> None:
    cluster.metadata.publish_watermark(NAME, WatermarkRecord(hour * HOUR_MS))


def ready(cluster: Cluster, hour: int, cube: str = NAME) -> str:
    record = cluster.closed(hour, cube=cube)
    version = record.version + 1
    spec_location = f"v{version}"
    entries = cuboids(f"{hour} {spec_location}")
    build_id = cluster.build(record.name, of=cube, cuboids=entries)
    build = cluster.client.segment(cube, record.name).build
    assert build is not None
    location = f"history/{cube}/{cluster.metadata.cube_id(cube)}/{record.name}/v{version}-{build_id}"
    for entry in entries:
        for file in entry.files:
            cluster.files.write(f"{location}/{file.name}", content(f"{hour} {spec_location}", entry.name))
    cluster.client.promote(cube, record.name, build_id)
    return record.name


def content(what: str, cuboid: str) -> bytes:
    return f"rows of {what}, {cuboid}".encode()


def cuboids(what: str) -> tuple[CuboidEntry, ...]:
    entries = []
    for dimensions in (ALL, ("page",), ()):
        name = "+".join(dimensions) or "_all"
        data = content(what, name)
        file = FileEntry(f"{name}/part-0.parquet", 1, len(data), hashlib.sha256(data).hexdigest())
        entries.append(CuboidEntry(name, dimensions, 1, (file,)))
    return tuple(entries)


def plan(cluster: Cluster, *levels: str) -> list[PlannedMerge]:
    return list(cluster.client.plan_merges(NAME, to=levels).merges)


def write(cluster: Cluster, planned: PlannedMerge) -> MergeSpec:
    """Do the work of Spark."""
    spec = msgspec.convert(planned.spec, MergeSpec)
    assert declared_members(cluster.files, spec).events == spec.events
    entries = cuboids(spec.merge)
    for entry in entries:
        for file in entry.files:
            cluster.files.write(f"{spec.location}/{file.name}", content(spec.merge, entry.name))
    finish_set(cluster.files, spec, entries)
    return spec


def merged(cluster: Cluster, *levels: str) -> list[MergeSpec]:
    specs = [write(cluster, planned) for planned in plan(cluster, *levels)]
    for spec in specs:
        assert cluster.client.commit_merge(NAME, spec.merge).committed
    return specs


def records(cluster: Cluster, cube: str = NAME) -> dict[str, SegmentRecord]:
    return cluster.metadata.nodes.segments(cube)


def whole(cluster: Cluster) -> set[str]:
    return set(whole_sets(standing(cluster.metadata.control(NAME), records(cluster))))


def folders(cluster: Cluster, record: SegmentRecord) -> list[str]:
    return sorted(cluster.files.folders(str(record.location)))


def later(cluster: Cluster, ms: int) -> None:
    cluster.clock.advance_ms(ms)


# -- plans ------------------------------------------------------------------------------------------------


def test_a_plan_names_the_intervals_that_the_watermark_has_passed(merging: Cluster) -> None:
    found = merging.client.plan_merges(NAME)
    assert [(each.level, each.segments, each.events) for each in found.merges] == [("day", 3, 15)] * 2
    assert (found.levels, found.too_new, found.left, found.merged) == (("day", "month"), 1, 0, 0)
    ready(merging, 2 * DAY + 3)
    passed(merging, 3 * DAY)
    assert merging.client.plan_merges(NAME).too_new == 2, "an hour behind the end of the day is not over"
    passed(merging, 3 * DAY + 1)
    found = merging.client.plan_merges(NAME)
    assert (len(found.merges), found.too_new) == (2, 1), "a day of one segment is left as it is"


def test_a_dry_run_says_the_same_and_writes_nothing(merging: Cluster) -> None:
    found = merging.client.plan_merges(NAME, to=["day"], dry_run=True)
    assert [(each.interval, each.merge, each.spec) for each in found.merges] == [
        ("19700101000000_19700102000000", "", {}),
        ("19700102000000_19700103000000", "", {}),
    ]
    assert found.dry_run
    assert not merging.files.folders("merged")


def test_a_segment_that_is_not_ready_is_named_and_its_interval_waits(merging: Cluster) -> None:
    name = merging.closed(2).name
    found = merging.client.plan_merges(NAME, to=["day"])
    assert [each.interval for each in found.merges] == ["19700102000000_19700103000000"]
    assert [each.reason for each in found.refused] == [f"{name} is REMOTE_PERSISTED"]


def test_a_cube_that_declares_no_level_is_merged_on_request_only(cluster: Cluster) -> None:
    cluster.enabled()
    with pytest.raises(Refused, match="does not say to what its segments are merged"):
        cluster.client.plan_merges(NAME)
    assert not cluster.client.plan_merges(NAME, to=["day"]).merges


def test_an_interval_that_the_purge_cuts_is_not_merged(merging: Cluster) -> None:
    merging.client.purge(NAME, 2 * HOUR_MS)
    found = merging.client.plan_merges(NAME, to=["day"])
    assert [each.interval for each in found.merges] == ["19700102000000_19700103000000"]
    assert [each.reason for each in found.refused] == ["the purge horizon is in it"]


def test_a_publication_of_a_cuboid_that_members_lose_stands_in_the_way(merging: Cluster) -> None:
    catalog = IcebergCatalog(kind="sqlite", address="/tmp/catalog.db", warehouse="file:///tmp/warehouse")
    everything = Publication(name="everything", cube=NAME, catalog=catalog, table="sales.clicks")
    create_publication(merging.metadata, everything)
    assert plan(merging, "day")
    pages = msgspec.structs.replace(everything, name="pages", table="sales.pages", cuboid=("page",))
    create_publication(merging.metadata, pages)
    with pytest.raises(Refused, match="publication pages names files of cuboids that a merge would delete"):
        merging.client.plan_merges(NAME)


def test_merged_segments_are_published_by_their_base_only(merging: Cluster) -> None:
    merged(merging, "day")
    catalog = IcebergCatalog(kind="sqlite", address="/tmp/catalog.db", warehouse="file:///tmp/warehouse")
    everything = Publication(name="everything", cube=NAME, catalog=catalog, table="sales.clicks")
    create_publication(merging.metadata, everything)
    pages = msgspec.structs.replace(everything, name="pages", table="sales.pages", cuboid=("page",))
    with pytest.raises(Refused, match="names files that merged segments of clicks_by_page lack"):
        create_publication(merging.metadata, pages)


# -- commits ----------------------------------------------------------------------------------------------


def test_a_committed_set_is_named_by_all_of_its_members_and_changes_nothing_else(merging: Cluster) -> None:
    before = records(merging)
    specs = merged(merging, "day")
    after = records(merging)
    for name, record in after.items():
        assert [each.level for each in record.merged] == ["day"]
        assert merging.client.segment(NAME, name).merged == ("day",)
        same = msgspec.structs.replace(record, merged=(), state_history=before[name].state_history)
        assert same == before[name]
    assert {unit.location for unit in history_units(after.values())} == {spec.location for spec in specs}
    assert not merging.client.commit_merge(NAME, specs[0].merge).committed, "a repetition changes nothing"
    assert records(merging) == after
    assert not plan(merging, "day"), "all is merged"


def test_days_stay_below_their_month_and_answer_where_it_cannot(merging: Cluster) -> None:
    days = merged(merging, "day")
    passed(merging, 32 * DAY)
    (month,) = merged(merging, "month")
    assert [unit.location for unit in history_units(records(merging).values())] == [month.location]
    late = ready(merging, 2)
    units = history_units(records(merging).values())
    assert [(unit.level, unit.records[0].name) for unit in units if unit.level] == [
        ("day", days[1].members[0].segment)
    ]
    alone = [unit for unit in units if not unit.level]
    assert [(unit.is_base_only, unit.records[0].name == late) for unit in alone] == [
        (True, False),
        (False, True),
        (True, False),
    ]


@pytest.mark.parametrize("what", ["version", "build", "purge"])
def test_a_member_that_has_changed_since_the_plan_is_refused_and_nothing_changes(
    merging: Cluster, what: str
) -> None:
    spec = write(merging, plan(merging, "day")[0])
    name = spec.members[1].segment
    if what == "version":
        ready(merging, 2)
    elif what == "build":
        merging.client.requeue(NAME, name)
    else:
        merging.client.purge(NAME, 3 * HOUR_MS)
    before = records(merging)
    with pytest.raises(Refused, match="has changed since its merge was planned"):
        merging.client.commit_merge(NAME, spec.merge)
    assert records(merging) == before


def test_a_set_of_other_events_or_members_is_not_committed(merging: Cluster) -> None:
    spec = write(merging, plan(merging, "day")[0])
    fewer = msgspec.structs.replace(spec, members=spec.members[:2])
    manifest = f"{spec.location}/{MANIFEST_NAME}"
    merging.files.delete(manifest)
    finish_set(merging.files, fewer, cuboids(spec.merge))
    with pytest.raises(Corrupted, match="is not of its plan; expected 3 members with 15 events; found 2"):
        merging.client.commit_merge(NAME, spec.merge)
    merging.files.delete(manifest)
    finish_set(merging.files, spec, cuboids(spec.merge)[1:])
    with pytest.raises(Corrupted, match="has no base cuboid"):
        merging.client.commit_merge(NAME, spec.merge)


def test_what_nobody_planned_is_not_found(merging: Cluster) -> None:
    with pytest.raises(NotFound, match="has no merge 0000"):
        merging.client.commit_merge(NAME, "0" * 32)


# -- crashes, by the steps of `states` ----------------------------------------------------------------------


def test_after_1_a_plan_has_changed_nothing_and_goes_when_nobody_may_write_it(merging: Cluster) -> None:
    before = records(merging)
    first, second = plan(merging, "day")
    folder = str(first.spec["folder"])
    assert records(merging) == before
    with pytest.raises(NotYet, match="is not written"):
        merging.client.commit_merge(NAME, first.merge)
    later(merging, KEPT_MS - 1)
    assert not merging.client.cleanup(NAME).folders
    later(merging, 1)
    assert set(merging.client.cleanup(NAME).folders) == {folder, str(second.spec["folder"])}


@pytest.mark.parametrize("with_manifest", [False, True])
def test_after_2_and_3_files_that_no_record_names_go(merging: Cluster, with_manifest: bool) -> None:
    before = records(merging)
    planned = plan(merging, "day")[0]
    spec = write(merging, planned)
    if not with_manifest:
        merging.files.delete_tree(f"{spec.location}/manifest.json")
    assert records(merging) == before
    later(merging, COMMITTED_MS)
    with pytest.raises(Refused, match="too old to be committed"):
        merging.client.commit_merge(NAME, spec.merge)
    assert not merging.client.cleanup(NAME).folders
    later(merging, KEPT_MS - COMMITTED_MS)
    assert spec.folder in merging.client.cleanup(NAME).folders
    assert records(merging) == before


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_4_no_member_names_the_set_or_all_do(
    merging: Cluster, when: Literal["before", "after"], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write(merging, plan(merging, "day")[0])
    before = records(merging)
    broken = [when]

    def fault(operations: object) -> Literal["before", "after"] | None:
        return broken[0] if broken else None

    monkeypatch.setattr("rtolap.metadata.updates.ATTEMPTS_MAX", 1)
    merging.ensemble.fault = fault  # type: ignore[assignment]
    with pytest.raises(CommitUnknown):
        merging.coordinator.merges.commit(NAME, spec.merge)
    broken.clear()
    naming = [record for record in records(merging).values() if record.merged]
    assert len(naming) == (0 if when == "before" else 3)
    if when == "before":
        assert records(merging) == before
    assert merging.client.commit_merge(NAME, spec.merge).committed is (when == "before")
    assert whole(merging) == {spec.location}


def test_after_5_members_have_their_bases_and_vectors_whatever_was_killed(
    merging: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = merged(merging, "day")
    members = list(records(merging).values())
    assert not merging.client.cleanup(NAME).folders, "statements that began before may read them"
    later(merging, GRACE_MS)
    killed_after(merging, 3, monkeypatch)
    assert not all(merging.files.exists(f"{spec.folder}/{TRIMMED_NAME}") for spec in specs)
    assert any(len(folders(merging, each)) < 3 for each in members)
    merging.client.cleanup(NAME)
    assert all(merging.files.exists(f"{spec.folder}/{TRIMMED_NAME}") for spec in specs)
    for each in members:
        assert folders(merging, each) == ["+".join(ALL)]
        check_base(merging.files, str(each.location), read_all=False)
        assert merging.metadata.whole_segment(each).covered
    assert not merging.client.cleanup(NAME).folders, "there is nothing left to do"


def test_after_6_a_set_that_a_late_event_has_broken_goes_after_the_grace_time(
    merging: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = merged(merging, "day")
    later(merging, KEPT_MS)
    merging.client.cleanup(NAME)
    late = ready(merging, 2)
    record = records(merging)[late]
    assert (record.version, record.merged) == (2, ())
    assert whole(merging) == {second.location}
    merging.client.cleanup(NAME)
    assert merging.files.exists(f"{first.location}/manifest.json"), "statements that began before read it"
    later(merging, GRACE_MS)
    killed_after(merging, 1, monkeypatch)
    merging.client.cleanup(NAME)
    assert not list(merging.files.list(first.folder))
    assert merging.files.exists(f"{second.location}/manifest.json")
    again = merged(merging, "day")
    assert [len(spec.members) for spec in again] == [3]
    assert whole(merging) == {second.location, again[0].location}


def killed_after(cluster: Cluster, deletions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a clean-up end after that many deletions."""
    store = cluster.coordinator.purge._store
    left, delete = [deletions], store.delete_tree

    def delete_some(path: str) -> None:
        if not left[0]:
            raise KilledError
        left[0] -= 1
        delete(path)

    with monkeypatch.context() as patched:
        patched.setattr(store, "delete_tree", delete_some)
        try:
            cluster.coordinator.purge.cleanup(NAME)
        except KilledError:
            return


class KilledError(Exception):
    """The process is gone."""


# -- what else happens to members ---------------------------------------------------------------------------


def test_a_member_is_built_again_from_its_own_base_and_leaves_the_set(merging: Cluster) -> None:
    spec = merged(merging, "day")[0]
    later(merging, GRACE_MS)
    merging.client.cleanup(NAME)
    name = spec.members[0].segment
    merging.client.requeue(NAME, name)
    assert whole(merging) >= {spec.location}, "the version answers, and its set with it, until the next one"
    build = merging.client.start_build(NAME, name)
    assert build.previous_location == spec.members[0].location
    check_base(merging.files, str(build.previous_location), read_all=False)


def test_a_purged_member_leaves_the_others_to_their_bases(merging: Cluster) -> None:
    first, second = merged(merging, "day")
    merging.client.purge(NAME, 2 * HOUR_MS)
    assert whole(merging) == {second.location}
    left = history_units(standing(merging.metadata.control(NAME), records(merging)))
    assert [(unit.level, unit.is_base_only) for unit in left] == [("", True), ("", True), ("day", False)]
    later(merging, KEPT_MS)
    assert first.folder in merging.client.cleanup(NAME).folders


def test_the_sets_of_a_dropped_cube_go_with_it(merging: Cluster) -> None:
    merged(merging, "day")
    merging.client.disable_cube(NAME)
    merging.client.drop_cube(NAME)
    assert not merging.files.folders("merged") or not list(merging.files.list(f"merged/{NAME}"))


def test_every_state_of_a_merge_has_its_cleanup() -> None:
    assert {state for state, _ in CLEANUPS} == set(MergeState)
    assert len(CLEANUPS) == 2 * len(MergeState)
    made: set[MergeState] = {
        merge_state(has_manifest=manifest, is_whole=is_whole, is_trimmed=trimmed)
        for manifest in (False, True)
        for is_whole in (False, True)
        for trimmed in (False, True)
    }
    assert made == set(MergeState)


def test_the_commit_of_a_month_of_hours_is_one_that_a_log_of_changes_holds(cluster: Cluster) -> None:
    """Who follows the records reads the pages that were changed, not all that there are."""
    cluster.receiver("r1", "rs1")
    cluster.define(retention={}, merge={"to": ["month"]})
    cluster.client.enable_cube(NAME)
    for hour in range(0, 31 * DAY, 5):
        ready(cluster, hour)
    passed(cluster, 40 * DAY)
    (spec,) = [write(cluster, planned) for planned in plan(cluster)]
    before, _ = change_log(cluster.store, NAME, None)
    cluster.client.commit_merge(NAME, spec.merge)
    after, _ = change_log(cluster.store, NAME, None)
    assert len(spec.members) > 100 > after.sequence - before.sequence > 1
    assert after.sequence - before.sequence <= 7, "one name a page"
    assert len({record.merged for record in records(cluster).values()}) == 1
