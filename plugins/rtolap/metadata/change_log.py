"""The log of a cube's changes: read first, and written with each change of a segment as one commit.

Whoever has read the log and commits with it knows that no segment of the cube has changed in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from rtolap.base.errors import NotFound
from rtolap.metadata import codec, paths
from rtolap.metadata.records import ChangeLog
from rtolap.metadata.store import MetadataStore, Operation, Put, Versioned
from rtolap.metadata.updates import standing

CHANGES_MAX = 100  # entries of a ChangeLog: a reader further behind reads all that it follows


def change_log(store: MetadataStore, cube: str, cube_id: str | None) -> tuple[ChangeLog, Versioned]:
    """Return the cube's log and its node. `cube_id`: of the creation that is meant; None: of any."""
    log, node = standing(store, paths.cube_changes(cube), ChangeLog, f"cube {cube}")
    _check_creation(cube, log, cube_id)
    return log, node


def logged(cube: str, segment: str, known: tuple[ChangeLog, Versioned], cube_id: str | None) -> Operation:
    """Return the entry of a change in the log, under the requirement that the log is as it was read."""
    return all_logged(cube, (segment,), known, cube_id)


def all_logged(
    cube: str, segments: Sequence[str], known: tuple[ChangeLog, Versioned], cube_id: str | None
) -> Operation:
    """Return the entries of one commit that changes several records.

    Of the records in one page, one name is enough: who follows the log reads the page again.
    """
    log, node = known
    _check_creation(cube, log, cube_id)
    fresh = tuple((log.sequence + number, name) for number, name in enumerate(segments, start=1))
    recent = (*log.recent, *fresh)[-CHANGES_MAX:]
    data = codec.encode(ChangeLog(log.cube_id, log.sequence + len(fresh), recent))
    return Put(paths.cube_changes(cube), data, node.version)


def _check_creation(cube: str, log: ChangeLog, cube_id: str | None) -> None:
    if cube_id not in (None, log.cube_id):
        raise NotFound(
            f"cube {cube} was dropped and recreated", expected=f"cube id {cube_id}", found=log.cube_id
        )
