"""The last heartbeats of the receivers, in memory, and the health that follows from them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping

import msgspec

from rtolap.base.clock import Clock, ClockSteps
from rtolap.base.errors import NotYet
from rtolap.coordinator.watermark import Observation
from rtolap.metadata.records import CubeControl, ReceiverRecord
from rtolap.model.instants import utc_text
from rtolap.model.offsets import PartRange
from rtolap.model.segment import parse_segment_name
from rtolap.protocols.coordinator.messages import (
    CubeReport,
    HeartbeatRequest,
    PartitionReport,
    PartitionWatermark,
    ReceiverHealth,
)

SILENT_AFTER_MS = 5_000
_NAMES_MAX = 5  # of receivers in an error
LAG_WARN_MS = 300_000  # event time behind the replica that is furthest


class ReceivedHeartbeat(msgspec.Struct, frozen=True):
    request: HeartbeatRequest
    at_ms: int


class Heartbeats:
    """Bounded by the number of registered receivers: `keep_only` forgets the others. Thread-safe.

    Reports are indexed by cube: a question about one cube looks at the receivers that report it only.
    """

    def __init__(self, clock: Clock) -> None:
        self._steps = ClockSteps(clock)
        self._lock = threading.RLock()
        self._since_ms = clock.now_ms()
        self._heard: dict[str, ReceivedHeartbeat] = {}
        self._receivers_by_cube: dict[str, set[str]] = {}

    def clear(self) -> None:
        """Forget everything, as a fresh leader begins."""
        with self._lock:
            self._heard.clear()
            self._receivers_by_cube.clear()
            self._since_ms = self._now_ms()

    def record(self, request: HeartbeatRequest) -> None:
        with self._lock:
            self._replace(request.receiver_id, ReceivedHeartbeat(request, self._now_ms()))

    def keep_only(self, receivers: Mapping[str, ReceiverRecord]) -> None:
        with self._lock:
            for name in [name for name in self._heard if name not in receivers]:
                self._replace(name, None)

    def forget(self, cube: str) -> None:
        """Forget what was reported of a dropped cube: it counts for none that is made of its name."""
        with self._lock:
            for name in tuple(self._receivers_by_cube.get(cube, ())):
                heard = self._heard[name]
                others = {other: report for other, report in heard.request.cubes.items() if other != cube}
                request = heard.request.model_copy(update={"cubes": others})
                self._replace(name, msgspec.structs.replace(heard, request=request))

    def _now_ms(self) -> int:
        """Return the time. When the clock was set, the times of heartbeats move with it."""
        with self._lock:
            now_ms, step_ms = self._steps.look()
            if step_ms:
                self._since_ms += step_ms
                for name, heard in self._heard.items():
                    self._heard[name] = msgspec.structs.replace(heard, at_ms=heard.at_ms + step_ms)
            return now_ms

    def _replace(self, name: str, heard: ReceivedHeartbeat | None) -> None:
        before = self._heard.pop(name, None)
        for cube in before.request.cubes if before else ():
            reporting = self._receivers_by_cube[cube]
            reporting.discard(name)
            if not reporting:
                del self._receivers_by_cube[cube]
        if heard is not None:
            self._heard[name] = heard
            for cube in heard.request.cubes:
                self._receivers_by_cube.setdefault(cube, set()).add(name)

    def _reports(self, cube: str) -> list[tuple[str, ReceivedHeartbeat, CubeReport]]:
        """Return the receivers that report the cube, by name, with their last heartbeat and report."""
        with self._lock:
            heard = [(name, self._heard[name]) for name in sorted(self._receivers_by_cube.get(cube, ()))]
        return [(name, heartbeat, heartbeat.request.cubes[cube]) for name, heartbeat in heard]

    def heard(self) -> dict[str, ReceivedHeartbeat]:
        """Return the last heartbeats by receiver, their times as the clock counts now."""
        with self._lock:
            self._now_ms()
            return dict(self._heard)

    def observations(self, cube: str) -> dict[int, list[Observation]]:
        now_ms = self._now_ms()
        observations: dict[int, list[Observation]] = {}
        for _, heartbeat, report in self._reports(cube):
            fresh = now_ms - heartbeat.at_ms <= SILENT_AFTER_MS
            for partition, partition_report in report.partitions.items():
                seen = Observation(
                    partition_report.position, partition_report.watermark_ms, partition_report.idle, fresh
                )
                observations.setdefault(partition, []).append(seen)
        return observations

    def partitions(self, cube: str) -> dict[int, PartitionWatermark]:
        """Return, for people, per partition the report of the receiver that has read furthest."""
        watermarks: dict[int, PartitionWatermark] = {}
        for receiver_id, heartbeat, report in self._reports(cube):
            for partition, partition_report in report.partitions.items():
                if partition not in watermarks or partition_report.position > watermarks[partition].position:
                    watermarks[partition] = PartitionWatermark(
                        watermark_ms=partition_report.watermark_ms,
                        idle=partition_report.idle,
                        position=partition_report.position,
                        log_end=partition_report.log_end,
                        receiver_id=receiver_id,
                        reported_ms=heartbeat.at_ms,
                    )
        return dict(sorted(watermarks.items()))

    def refused(self, cube: str) -> tuple[dict[str, int], dict[str, str]]:
        """Return the number of refused records by reason, and an example of each reason. The number is a
        lower bound: each receiver counts since it began to read a partition, and the highest count of a
        partition is taken."""
        most: dict[int, dict[str, int]] = {}
        example: dict[str, str] = {}
        for _, _, report in self._reports(cube):
            example.update(report.refused_example)
            for partition, partition_report in report.partitions.items():
                if sum(partition_report.refused.values()) > sum(most.get(partition, {}).values()):
                    most[partition] = partition_report.refused
        counts: Counter[str] = Counter()
        for by_reason in most.values():
            counts.update(by_reason)
        return dict(sorted(counts.items())), {
            reason: example[reason] for reason in counts if reason in example
        }

    def failures(self, cube: str) -> list[str]:
        """Return receivers that have given up on the cube, with their reasons."""
        return [
            f"receiver {name} has failed: {report.reason}"
            for name, _, report in self._reports(cube)
            if report.state == "FAILED"
        ]

    def blocked(self, cube: str, control: CubeControl) -> list[str]:
        """Return receivers that something keeps from reading what arrives, why and since when, and what they
        owe to statements that wait. A pause that a person has asked for is named only where something is
        owed.
        """
        now_ms = self._now_ms()
        blocked: list[str] = []
        for name, heartbeat, report in self._reports(cube):
            if report.held_since_ms is None or now_ms - heartbeat.at_ms > SILENT_AFTER_MS:
                continue
            owed = "; ".join(
                f"partition {partition} is at offset {report.partitions[partition].position} of {promised}"
                for partition, promised in sorted(report.behind.items())
                if partition in report.partitions
            )
            if owed or not control.paused:
                waiting = f"; statements wait for what was answered before: {owed}" if owed else ""
                since = utc_text(report.held_since_ms)
                blocked.append(f"receiver {name} is held since {since}: {report.reason}{waiting}")
        return blocked

    def lost(self, cube: str, control: CubeControl) -> dict[int, tuple[PartRange, str]]:
        """Partition → offsets that Kafka no longer holds and a receiver has to read, and its replica set. Not
        where another receiver of the set has read beyond them: that one holds them."""
        now_ms = self._now_ms()
        reports = self._reports(cube)
        positions: dict[tuple[str, int], int] = {}
        for _, heartbeat, report in reports:
            if report.state != "FAILED" and now_ms - heartbeat.at_ms <= SILENT_AFTER_MS:
                for partition, part in report.partitions.items():
                    key = (heartbeat.request.replica_set, partition)
                    positions[key] = max(part.position, positions.get(key, 0))
        lost_ranges: dict[int, tuple[PartRange, str]] = {}
        for _, heartbeat, report in reports:
            replica_set = heartbeat.request.replica_set
            for piece in report.lost if report.state == "FAILED" else ():
                owned = piece.partition in control.assignment.get(replica_set, ())
                if owned and positions.get((replica_set, piece.partition), 0) < piece.end:
                    known = lost_ranges.get(piece.partition)
                    start = min(piece.start, known[0].start) if known else piece.start
                    end = max(piece.end, known[0].end) if known else piece.end
                    lost_ranges[piece.partition] = (PartRange(piece.partition, start, end), replica_set)
        return lost_ranges

    def catching_up(self, cube: str, control: CubeControl) -> tuple[int, ...]:
        """Return assigned partitions that no receiver of their replica set consumes, under this assignment,
        by now."""
        now_ms = self._now_ms()
        served: set[int] = set()
        for _, heartbeat, report in self._reports(cube):
            if (
                now_ms - heartbeat.at_ms <= SILENT_AFTER_MS
                and report.state == "CONSUMING"
                and report.assignment_epoch == control.assignment_epoch
            ):
                served |= set(control.assignment.get(heartbeat.request.replica_set, ())) & set(
                    report.partitions
                )
        assigned = {p for held in control.assignment.values() for p in held}
        return tuple(sorted(assigned - served)) if control.enabled and not control.paused else ()

    def active_segments(self, cube: str) -> set[str]:
        """Return the segments without history whose events receivers hold, as far as they were heard: see
        `unknown`."""
        return {name for _, _, report in self._reports(cube) for name in report.active}

    def named_before_ms(self, cube: str) -> int | None:
        """Return the moment from which on `active_segments` may lack some, although all receivers were heard;
        None: it lacks none."""
        names = [report.active[-2:-1] for _, _, report in self._reports(cube) if report.more_active]
        return min((parse_segment_name(last[0]).end_ms if last else 0 for last in names), default=None)

    def unheard(
        self,
        cube: str,
        control: CubeControl,
        members: Mapping[str, Collection[str]],
        *,
        within_ms: int | None = SILENT_AFTER_MS,
    ) -> dict[str, list[str]]:
        """Return, by replica set, the living receivers of the cube's owners that have not reported it.

        A fresh leader has heard nobody: that nothing was reported says nothing then. One whose session has
        expired is not waited for.

        Args:
            members: the living receivers of each replica set.
            within_ms: how old a report may be; None: as old as this leader.
        """
        now_ms = self._now_ms()
        heard = {
            name
            for name, heartbeat, _ in self._reports(cube)
            if within_ms is None or now_ms - heartbeat.at_ms <= within_ms
        }
        owners = sorted(replica_set for replica_set, owned in control.assignment.items() if owned)
        unheard = {owner: sorted(set(members.get(owner, ())) - heard) for owner in owners}
        return {owner: receivers for owner, receivers in unheard.items() if receivers}

    def check_heard(
        self, cube: str, control: CubeControl, members: Mapping[str, Collection[str]], unknown: str
    ) -> None:
        """Raise NotYet where a living receiver of the cube's owners has not reported it: what others do not
        name, it may hold. A fresh leader hears all of them within seconds.

        Args:
            members: the living receivers of each replica set.
            unknown: what is not known then, for the message.
        """
        names = [name for receivers in self.unheard(cube, control, members).values() for name in receivers]
        if names:
            raise NotYet(
                f"it is not known yet {unknown}",
                expected=f"reports of all living receivers that own {cube}",
                found=f"none of {', '.join(names[:_NAMES_MAX])}",
                action="ask again in some seconds; stop a receiver that stays silent",
            )

    def unknown(self, cube: str, control: CubeControl, members: Mapping[str, Collection[str]]) -> list[str]:
        """Return why it is not known of which segments receivers hold events, a line for each reason; empty:
        `active_segments` is all.

        Each assigned partition needs a receiver of its owner that follows this assignment and has read it to
        the log's end: what others read before it, it holds. One that reads its share again may have answered
        more before than its peers have read, and is waited for.

        Args:
            members: the living receivers of each replica set.
        """
        now_ms = self._now_ms()
        reasons: list[str] = []
        read: set[tuple[str, int]] = set()
        for name, heartbeat, report in self._reports(cube):
            replica_set = heartbeat.request.replica_set
            if report.more_active:
                reasons.append(f"receiver {name} holds events of more open segments than its report can name")
            is_fresh = now_ms - heartbeat.at_ms <= SILENT_AFTER_MS and name in members.get(replica_set, ())
            if is_fresh and control.assignment.get(replica_set) and report.state == "REPLAYING":
                reasons.append(f"receiver {name} of {replica_set} reads its partitions again")
            if is_fresh and report.assignment_epoch == control.assignment_epoch:
                read |= {(replica_set, p) for p, each in report.partitions.items() if _is_read(report, each)}
        reasons += [
            f"receiver {receiver} of {owner} has not reported the cube"
            for owner, receivers in self.unheard(cube, control, members).items()
            for receiver in receivers
        ]
        for owner, owned in sorted(control.assignment.items()):
            unread = sorted(p for p in owned if (owner, p) not in read)
            if unread:
                reasons.append(f"no living receiver of {owner} has read partitions {unread} to their ends")
        return reasons

    def healths(
        self, records: Mapping[str, ReceiverRecord], live: Container[str], controls: Mapping[str, CubeControl]
    ) -> dict[str, tuple[ReceiverHealth, str]]:
        """Return by name HEALTHY, WARN (with the reason), UNREACHABLE (its session lives, it is silent) or
        DOWN.

        Each report is looked at twice, however many receivers and cubes there are.
        """
        heard = self.heard()
        furthest, rules = _furthest(heard), _zone_rules(heard)
        assigned: dict[str, list[str]] = {}  # replica set → cubes
        for cube, control in sorted(controls.items()):
            for replica_set, partitions in control.assignment.items() if control.enabled else ():
                if partitions:
                    assigned.setdefault(replica_set, []).append(cube)

        def reasons(request: HeartbeatRequest) -> Iterator[str]:
            for cube in assigned.get(request.replica_set, ()):
                yield from _cube_reasons(cube, controls[cube], request, furthest.get(cube, {}))
                yield from _zone_reasons(cube, request, rules.get(cube, {}))

        return {name: self._health(heard.get(name), name in live, reasons) for name in records}

    def _health(
        self,
        heartbeat: ReceivedHeartbeat | None,
        is_live: bool,
        reasons_of: Callable[[HeartbeatRequest], Iterable[str]],
    ) -> tuple[ReceiverHealth, str]:
        now_ms = self._now_ms()
        if heartbeat is None or now_ms - heartbeat.at_ms > SILENT_AFTER_MS:
            if not is_live:
                return "DOWN", "no session and no heartbeat"
            if heartbeat is None and now_ms - self._since_ms <= SILENT_AFTER_MS:
                return "WARN", "this coordinator has just begun to lead and waits for a heartbeat"
            return "UNREACHABLE", f"no heartbeat for {SILENT_AFTER_MS} ms although its session lives"
        reasons = [] if is_live else ["its ZooKeeper session is lost"]
        reasons += reasons_of(heartbeat.request)
        return ("WARN", "; ".join(reasons)) if reasons else ("HEALTHY", "")


def _is_read(report: CubeReport, part: PartitionReport) -> bool:
    """Return True if the receiver has been at the partition's end under the assignment that it follows."""
    return report.state == "CONSUMING" or (part.log_end is not None and part.position >= part.log_end)


def _furthest(heard: Mapping[str, ReceivedHeartbeat]) -> dict[str, dict[int, PartitionReport]]:
    """Return, by cube and partition, the report of the receiver that has read furthest."""
    furthest: dict[str, dict[int, PartitionReport]] = {}
    for _, heartbeat in sorted(heard.items()):
        for cube, report in heartbeat.request.cubes.items():
            of_cube = furthest.setdefault(cube, {})
            for partition, mine in report.partitions.items():
                best = of_cube.get(partition)
                if best is None or mine.position > best.position:
                    of_cube[partition] = mine
    return furthest


def _zone_rules(heard: Mapping[str, ReceivedHeartbeat]) -> dict[str, dict[str, str]]:
    """Return, by cube, the different rules of its time zone, each with a receiver that has them."""
    rules: dict[str, dict[str, str]] = {}
    for name, heartbeat in sorted(heard.items()):
        for cube, report in heartbeat.request.cubes.items():
            if report.zone_rules:
                rules.setdefault(cube, {}).setdefault(report.zone_rules, name)
    return rules


def _zone_reasons(cube: str, heartbeat: HeartbeatRequest, rules: Mapping[str, str]) -> Iterator[str]:
    """Replicas with different rules give the same event different hours."""
    report = heartbeat.cubes.get(cube)
    for others, receiver in rules.items() if report is not None and report.zone_rules else ():
        if report is not None and others != report.zone_rules:
            yield (
                f"{cube}: its machine has other rules of the time zone than that of {receiver}: "
                "install the same version of the package tzdata on both, and start them again"
            )


def _cube_reasons(
    cube: str, control: CubeControl, heartbeat: HeartbeatRequest, furthest: Mapping[int, PartitionReport]
) -> list[str]:
    """Return what is not as it should be with a cube that is assigned to the receiver."""
    assigned = set(control.assignment[heartbeat.replica_set])
    report = heartbeat.cubes.get(cube)
    if report is None:
        return [f"{cube}: assigned, but not consumed"]
    reasons = []
    if report.state == "FAILED" or (report.state == "PAUSED" and not control.paused):
        reasons.append(f"{cube}: {report.state} {report.reason}".rstrip())
    if report.partitions and set(report.partitions) != assigned:
        reasons.append(f"{cube}: consumes {sorted(report.partitions)} where {sorted(assigned)} are assigned")
    for partition, mine in sorted(report.partitions.items()):
        best_ms = furthest[partition].watermark_ms
        if (
            best_ms is not None
            and mine.watermark_ms is not None
            and best_ms - mine.watermark_ms >= LAG_WARN_MS
        ):
            reasons.append(f"{cube}/{partition}: {best_ms - mine.watermark_ms} ms behind its replica")
    return reasons
