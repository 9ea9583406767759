"""Moves that nobody notices: replica sets warm up for the next assignment; it stands once they can answer.

docs/decisions/0074-unnoticed-moves.md has the crash orderings. The plan stands in the cube's control record,
so each leader goes on with it; what receivers report is in memory, and a fresh leader waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from rtolap.base.errors import Refused
from rtolap.base.ids import bound
from rtolap.coordinator.heartbeats import SILENT_AFTER_MS, Heartbeats, ReceivedHeartbeat
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, NextAssignment, move_id
from rtolap.model.offsets import Offsets
from rtolap.protocols.coordinator.messages import CubeReport

log = logging.getLogger(__name__)

CONSUMING = "CONSUMING"
_NOBODY: Mapping[str, Sequence[str]] = {}


class Moves:
    """`tick` on the leader's thread; the rest on any."""

    def __init__(self, metadata: ClusterMetadata, heartbeats: Heartbeats) -> None:
        self._metadata = metadata
        self._heartbeats = heartbeats
        self._answered: dict[str, Offsets] = {}  # by cube: what its receivers had read at the last look

    def clear(self) -> None:
        """Forget what was observed, as a fresh leader begins."""
        self._answered.clear()

    def tick(self, cube: str, control: CubeControl) -> bool:
        """Let the next assignment stand if all that have to warm up for it can answer. Return True then."""
        if control.next is None:
            self._answered.pop(cube, None)
            return False
        answered = self._answered.get(cube)
        self._answered[cube] = positions_read(cube, self._heartbeats.heard())
        if answered is None or self._waits(cube, control, answered):
            return False
        with bound(cube=cube, move=move_id(cube, control.next.epoch)):
            self._stand(cube, control.next)
        return True

    def waits(self, cube: str, control: CubeControl) -> tuple[str, ...]:
        """Return what a running move waits for; nothing while none runs."""
        if control.next is None:  # as mostly: then nothing is asked
            return ()
        return tuple(self._waits(cube, control, self._answered.get(cube, {})))

    def end(self, cube: str, epoch: int) -> None:
        """End the move that was planned with this epoch, if it still runs: the assignment stays as it is."""
        self._end(cube, lambda planned: planned.epoch == epoch)
        _say_ended(cube, epoch)

    def cancel_relief(self, cube: str, replica_set: str) -> bool:
        """End the move that runs if the leader has planned it to relieve this replica set. Return True if it
        had to be ended."""
        ended = self._end(cube, lambda planned: planned.relieves == replica_set)
        if ended is not None:
            _say_ended(cube, ended.epoch)
        return ended is not None

    def cancel(self, cube: str) -> None:
        """End the move that runs: the assignment stays as it is. Raises Refused where none runs."""
        ended = self._end(cube, lambda planned: True)
        if ended is None:
            raise Refused(
                f"no move of cube {cube} runs",
                found=f"assignment {self._metadata.control(cube).assignment_epoch}",
                action="`rtolap receivers rebalance` moves partitions back",
            )
        _say_ended(cube, ended.epoch)

    def _end(self, cube: str, is_meant: Callable[[NextAssignment], bool]) -> NextAssignment | None:
        """Return the move that was ended; None where none runs that is meant."""
        ended: NextAssignment | None = None

        def change(control: CubeControl) -> CubeControl:
            nonlocal ended
            ended = control.next if control.next is not None and is_meant(control.next) else None
            return control if ended is None else msgspec.structs.replace(control, next=None)

        self._metadata.update_control(cube, change)
        return ended

    def _waits(self, cube: str, control: CubeControl, answered: Offsets) -> list[str]:
        members = self._metadata.living_members()
        heartbeats = self._heartbeats.heard()
        now_ms = self._metadata.clock.now_ms()
        heard = {
            name: heartbeat
            for name, heartbeat in heartbeats.items()
            if now_ms - heartbeat.at_ms <= SILENT_AFTER_MS
        }
        reports = {
            name: heartbeat.request.warming[cube]
            for name, heartbeat in heard.items()
            if cube in heartbeat.request.warming
        }
        unheard = self._heartbeats.unheard(cube, control, members, within_ms=None)
        return not_warm(control, members, reports, answered, unheard)

    def _stand(self, cube: str, planned: NextAssignment) -> None:
        def change(control: CubeControl) -> CubeControl:
            if control.next is None or control.next.epoch != planned.epoch:
                return control  # it stands already, or was cancelled meanwhile
            return msgspec.structs.replace(
                control,
                assignment=planned.assignment,
                assignment_epoch=planned.epoch,
                next=None,
                moved_from=control.assignment,
                assigned_because=planned.reason,
            )

        self._metadata.update_control(cube, change)
        log.info("cube %s: %s, epoch %d", cube, planned.assignment, planned.epoch)


def _say_ended(cube: str, epoch: int) -> None:
    with bound(cube=cube, move=move_id(cube, epoch)):
        log.info("cube %s: the move for epoch %d is ended, its assignment stays", cube, epoch)


def positions_read(cube: str, heard: Mapping[str, ReceivedHeartbeat]) -> Offsets:
    """Return, by partition, how far the receivers that serve it have read: no answer held more."""
    furthest: Offsets = {}
    for heartbeat in heard.values():
        report = heartbeat.request.cubes.get(cube)
        for partition, read in report.partitions.items() if report is not None else ():
            furthest[partition] = max(read.position, furthest.get(partition, 0))
    return furthest


def not_warm(
    control: CubeControl,
    members: Mapping[str, Collection[str]],
    reports: Mapping[str, CubeReport],
    answered: Offsets,
    unheard: Mapping[str, Sequence[str]] = _NOBODY,
) -> list[str]:
    """Return why the next assignment may not stand yet, a line for each receiver; empty: it may. Pure.

    `members`: the living receivers of each replica set; `reports`: what they report of warming up;
    `answered`: positions that the present owners had read before these reports; `unheard`: living receivers
    of theirs that this leader has never heard, by replica set.
    """
    waits = _unheard(control, members, answered, unheard)
    for name in sorted(control.next.assignment if control.next is not None else ()):
        planned = control.warms(name)
        if planned is None:
            continue
        if not members.get(name):
            waits.append(f"replica set {name} has no living receiver")
        for receiver in sorted(members.get(name, ())):
            why = _not_warm(planned.assignment[name], planned.epoch, reports.get(receiver), answered)
            if why:
                waits.append(f"receiver {receiver} of {name} {why}")
    return waits


def _unheard(
    control: CubeControl,
    members: Mapping[str, Collection[str]],
    answered: Offsets,
    unheard: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return living owners of which it is not known how far they have answered: a fresh leader waits.

    Of two receivers of a replica set, the one that was not heard may have answered further.
    """
    waits: list[str] = []
    for name, partitions in sorted(control.assignment.items() if control.next is not None else ()):
        unknown = sorted(set(partitions) - answered.keys())
        if unknown and members.get(name):
            waits.append(f"replica set {name} has not reported how far partitions {unknown} were answered")
        elif partitions:
            waits += [
                f"receiver {receiver} of {name} has not reported how far it has answered"
                for receiver in unheard.get(name, ())
            ]
    return waits


def _not_warm(
    partitions: Collection[int], epoch: int, report: CubeReport | None, answered: Offsets
) -> str | None:
    if report is None or report.assignment_epoch != epoch:
        return "has not begun to warm up"
    if report.state != CONSUMING:
        return f"is {report.state} {report.reason}".rstrip()
    if report.behind:
        return f"is behind what was promised: {report.behind}"
    for partition in sorted(partitions):
        read = report.partitions.get(partition)
        if read is None:
            return f"has not begun with partition {partition}"
        if read.position < answered.get(partition, 0):
            return f"is at {read.position} of {answered[partition]} in partition {partition}"
    return None
