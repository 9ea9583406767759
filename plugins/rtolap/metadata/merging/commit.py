"""The commit of a merged set: the records of all its members change together."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rtolap.base.errors import Refused
from rtolap.metadata import paths
from rtolap.metadata.change_log import all_logged, change_log
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import MergedSet, SegmentRecord
from rtolap.metadata.segment_events import take_event
from rtolap.metadata.segment_format.pages import encode_page, page_of
from rtolap.metadata.store import Operation, Put
from rtolap.metadata.updates import retried
from rtolap.model.merging.intervals import LEVELS
from rtolap.model.merging.specs import MergeMember
from rtolap.model.segment import SegmentEvent, SegmentRange, SegmentState, parse_segment_name

COMMIT_BYTES_MAX = 700_000  # of all pages of one commit: a request to ZooKeeper may have a megabyte


def check_member(record: SegmentRecord | None, member: MergeMember, cube: str) -> SegmentRecord:
    """Return the record of a planned member that still is what was planned. Raises Refused."""
    found = None if record is None else (record.state, record.version, record.location)
    if record is None or found != (SegmentState.READY, member.version, member.location):
        raise Refused(
            f"{cube}/{member.segment} has changed since its merge was planned",
            expected=f"READY at version {member.version}, {member.location}",
            found="no record" if found is None else f"{found[0].value} at version {found[1]}, {found[2]}",
            action="plan the merge again; nothing was changed",
        )
    return record


def join_set(record: SegmentRecord, merged: MergedSet, *, now_ms: int) -> SegmentRecord:
    """Note that a set holds the rows of the READY version too. It takes the place of one of its level.

    A record that names the set already is returned as it is.
    """
    if merged in record.merged:
        return record
    others = [each for each in record.merged if each.level != merged.level]
    ordered = tuple(sorted((*others, merged), key=lambda each: LEVELS.index(each.level)))
    note = f"with {merged.members - 1} others to a {merged.level}"
    return msgspec.structs.replace(take_event(record, SegmentEvent.MERGE, now_ms, note), merged=ordered)


def commit_set(
    metadata: ClusterMetadata,
    cube: str,
    members: Sequence[MergeMember],
    merged: MergedSet,
    *,
    cube_id: str | None = None,
) -> bool:
    """Have all members name the set, in one commit. Return False where they do already.

    1. settle members that have nodes of their own    crash: they stand in pages, as others do
    2. commit all pages and the change log as one     crash before: no member names the set; after: all do,
                                                      and the repetition has nothing to write

    Raises Refused where a member is not what was planned, or the pages do not fit into one commit.
    """
    windows = {member.segment: parse_segment_name(member.segment) for member in members}
    for name in windows.keys() & set(metadata.nodes.open_names(cube)):
        metadata.nodes.settle(cube, windows[name])
    now_ms = metadata.clock.now_ms()

    @retried
    def commit() -> bool:
        log = change_log(metadata.store, cube, cube_id)  # first: nothing changes between it and the commit
        operations: list[Operation] = []
        names: list[str] = []
        size = 0
        for page, of_page in _by_page(members, windows).items():
            records, node = metadata.nodes.page(cube, page)
            known = {each.segment: check_member(records.get(each.segment), each, cube) for each in of_page}
            fresh = {name: join_set(record, merged, now_ms=now_ms) for name, record in known.items()}
            if fresh == known:
                continue
            assert node is not None, "its records were found there"
            data = encode_page({**records, **fresh})
            size += len(data)
            operations.append(Put(paths.history_page(cube, page.name), data, node.version))
            names.append(of_page[0].segment)
        if not operations:
            return False
        if size > COMMIT_BYTES_MAX:
            raise Refused(
                f"{len(members)} segments of {cube} are too many for one merge",
                expected=f"records of {COMMIT_BYTES_MAX} bytes together",
                found=size,
                action="merge to shorter intervals",
            )
        metadata.store.commit([*operations, all_logged(cube, names, log, cube_id)])
        return True

    return commit()


def _by_page(
    members: Sequence[MergeMember], windows: dict[str, SegmentRange]
) -> dict[SegmentRange, list[MergeMember]]:
    pages: dict[SegmentRange, list[MergeMember]] = {}
    for member in members:
        pages.setdefault(page_of(windows[member.segment]), []).append(member)
    return pages
