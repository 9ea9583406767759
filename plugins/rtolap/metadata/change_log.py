"""The log of a cube's changes: read first, and written with each change of a segment as one commit.

Whoever has read the log and commits with it knows that no segment of the cube has changed in between.
"""

from __future__ import annotations

from rtolap.base.errors import NotFound
from rtolap.metadata import codec, paths
from rtolap.metadata.records import ChangeLog
from rtolap.metadata.store import MetadataStore, Operation, Put, Versioned

CHANGES_MAX = 100  # entries of a ChangeLog: a reader further behind reads all that it follows


def change_log(store: MetadataStore, cube: str, cube_id: str | None) -> tuple[ChangeLog, Versioned]:
    """Return the cube's log and its node. `cube_id`: of the creation that is meant; None: of any."""
    path = paths.cube_changes(cube)
    node = store.get(path)
    if node is None:
        raise NotFound(f"cube {cube} does not exist")
    log = codec.decode(node.data, ChangeLog, path)
    _check_creation(cube, log, cube_id)
    return log, node


def logged(cube: str, segment: str, known: tuple[ChangeLog, Versioned], cube_id: str | None) -> Operation:
    """Return the entry of a change in the log, under the requirement that the log is as it was read."""
    log, node = known
    _check_creation(cube, log, cube_id)
    sequence = log.sequence + 1
    recent = (*log.recent, (sequence, segment))[-CHANGES_MAX:]
    data = codec.encode(ChangeLog(log.cube_id, sequence, recent))
    return Put(paths.cube_changes(cube), data, node.version)


def _check_creation(cube: str, log: ChangeLog, cube_id: str | None) -> None:
    if cube_id not in (None, log.cube_id):
        raise NotFound(
            f"cube {cube} was dropped and recreated", expected=f"cube id {cube_id}", found=log.cube_id
        )
