"""A merge's life, read off what there is, and what a clean-up does in each state: one pure table.

| step | a crash after it leaves |
|---|---|
| 1. the coordinator writes the plan: members, versions, locations, id | PLANNED: nothing has changed |
| 2. Spark writes the files, and the manifest last | WRITTEN: files that no record names |
| 3. the manifest is compared with the plan and the members' records | as after 2 |
| 4. one commit has all members name the set | before: WRITTEN; after: WHOLE |
| 5. a clean-up deletes the members' other cuboids, then writes a mark | some are gone, which nobody reads |
| 6. a set that is BROKEN, or was never committed, is deleted: its plan last | the next clean-up goes on |

A set is WHOLE while as many records that stand name it as it has members. It is BROKEN for ever when one of
them has another version or is purged: a version never comes back. Nobody reads a set that is not WHOLE.
"""

from __future__ import annotations

from enum import StrEnum


class MergeState(StrEnum):
    PLANNED = "PLANNED"  # a plan, or what a deletion has left
    WRITTEN = "WRITTEN"  # a manifest that not all of its members name: not yet, or no more
    WHOLE = "WHOLE"
    TRIMMED = "TRIMMED"  # whole, and its members have their base cuboids only


class MergeCleanup(StrEnum):
    LEAVE = "LEAVE"
    TRIM_MEMBERS = "TRIM_MEMBERS"
    DELETE = "DELETE"


# By state, and whether all readers and writers of what was before are surely over.
CLEANUPS: dict[tuple[MergeState, bool], MergeCleanup] = {
    (MergeState.PLANNED, False): MergeCleanup.LEAVE,  # Spark may be writing
    (MergeState.PLANNED, True): MergeCleanup.DELETE,
    (MergeState.WRITTEN, False): MergeCleanup.LEAVE,  # it may be committed, or statements still read it
    (MergeState.WRITTEN, True): MergeCleanup.DELETE,
    (MergeState.WHOLE, False): MergeCleanup.LEAVE,  # statements still read the members' cuboids
    (MergeState.WHOLE, True): MergeCleanup.TRIM_MEMBERS,
    (MergeState.TRIMMED, False): MergeCleanup.LEAVE,
    (MergeState.TRIMMED, True): MergeCleanup.LEAVE,
}


def merge_state(*, has_manifest: bool, is_whole: bool, is_trimmed: bool) -> MergeState:
    """Return the state that these facts make."""
    if is_whole:
        return MergeState.TRIMMED if is_trimmed else MergeState.WHOLE
    return MergeState.WRITTEN if has_manifest else MergeState.PLANNED
