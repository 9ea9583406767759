"""The folders of one cube's receiver: the one that counts, and those of runners that are ahead of it.

    <base>/checkpoint.json, fragments/   where no slot counts
    <base>/current                       name of the slot that counts; absent: <base> itself
    <base>/restored              id of the restore that this state follows; absent: none
    <base>/ahead-<epoch>/                a slot: what a runner has read for an assignment that is prepared

Every slot is exact under every assignment: it states offsets, and what a receiver does not own is dropped
when it is recovered. A crash may cost reading, never an answer (docs/decisions/0074-unnoticed-moves.md).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from rtolap.base.files import read_from_disk, write_atomic
from rtolap.cubes.receiver.local.checkpoint import FRAGMENTS, NAME

_CURRENT = "current"
_RESTORED = "restored"
_AHEAD = "ahead-"
_ACTION = "move the cube's folder away: the receiver then replays from Kafka"


class StateSlots:
    def __init__(self, base: Path) -> None:
        self.base = base

    def follow_restore(self, restored: str) -> None:
        """Delete the state unless it was made under the cluster state that this restore has brought back.

        The state may lack what was in history since the backup, and history of the restored cluster may not
        hold it: everything is read again from Kafka. "" stands for a cluster that was never restored.
        """
        marker = self.base / _RESTORED
        with read_from_disk(marker, action=_ACTION):
            if (marker.read_text() if marker.exists() else "") == restored:
                return
        shutil.rmtree(self.base, ignore_errors=True)  # a crash before the marker is written repeats this
        self.base.mkdir(parents=True, exist_ok=True)
        write_atomic(marker, restored.encode())

    def current(self) -> Path:
        """Return the folder that counts."""
        try:
            with read_from_disk(self.base / _CURRENT, action=_ACTION):
                name = (self.base / _CURRENT).read_text()
        except FileNotFoundError:
            return self.base
        return self.base / name

    def ahead(self, epoch: int) -> Path:
        """Return the folder of a runner that is ahead, for the assignment of that epoch."""
        return self.base / f"{_AHEAD}{epoch}"

    def begin(self, epoch: int) -> Path:
        """Return the folder to begin with under the assignment of this epoch.

        A process that ended between the assignment and `promote` goes on with the slot of that assignment.
        """
        if (self.ahead(epoch) / NAME).exists():
            self.promote(self.ahead(epoch))
        return self.current()

    def promote(self, slot: Path) -> None:
        """Let a slot count from now on, by one atomic write. `clean` deletes the one before."""
        write_atomic(self.base / _CURRENT, slot.name.encode())

    def clean(self, keep_epoch: int | None = None) -> None:
        """Delete what does not count, but for the slot of `keep_epoch`. No runner may have it open."""
        current = self.current()
        kept = {current} if keep_epoch is None else {current, self.ahead(keep_epoch)}
        for slot in self.base.glob(f"{_AHEAD}*"):
            if slot not in kept:
                shutil.rmtree(slot, ignore_errors=True)
        if current != self.base:
            (self.base / NAME).unlink(missing_ok=True)
            shutil.rmtree(self.base / FRAGMENTS, ignore_errors=True)
