"""The Kafka fleet: disks of brokers, the plan that is carried out, brokers that are slow, and a plan's disks.

Pure: looks of `fleet.operations` → the answers of the routes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rtolap.airflow.page.answers import Asked
from rtolap.airflow.page.fleet_messages import (
    Broker,
    Disk,
    Fleet,
    FleetPlan,
    Move,
    PlannedDisk,
    PlannedDisks,
    PlanStage,
    SlowBroker,
)
from rtolap.base.addresses import host_port
from rtolap.base.decoding import convert, copied

if TYPE_CHECKING:
    from rtolap.fleet.moves.status import MoveStatus
    from rtolap.fleet.operations.look import FleetLook, PlanLook
    from rtolap.fleet.operations.slow_watch import SlowLook
    from rtolap.fleet.planning.plan import Plan

MOVES_MAX = 500  # those with most time left; a mover carries out a few of each broker at once
REASONS_MAX = 20
NO_SOURCES = "no sources of brokers' metrics are declared: name a file of them in RTOLAP_FLEET_SOURCES"


def fleet_of(
    cluster: str,
    clusters: tuple[str, ...],
    looked: Asked[FleetLook],
    slow: Asked[SlowLook | None],
    *,
    now_ms: int,
) -> Fleet:
    """Return the answer; either look may be missing, and the other stands."""
    look, watched = looked.answer, slow.answer
    slow_error = slow.error or (NO_SOURCES if watched is None else "")
    return Fleet(
        now_ms=now_ms,
        cluster=cluster,
        clusters=tuple(sorted({*clusters, cluster})),
        brokers=() if look is None else _brokers(look),
        disks=() if look is None else _disks(look),
        plan=None if look is None or look.plan is None else _plan(look.plan),
        slow=() if watched is None else _slow(watched),
        slow_from_ms=None if watched is None or watched.window is None else watched.window.from_ms,
        slow_missing=()
        if watched is None
        else tuple(f"{each.source}: {each.reason}" for each in watched.missing),
        error=looked.error,
        slow_error=slow_error,
    )


def planned_disks(digest: str, plan: Plan) -> PlannedDisks:
    disks = plan.disks
    before, after = disks.utilisation(disks.before_bytes), disks.utilisation(disks.after_bytes)
    return PlannedDisks(
        digest=digest,
        kind=str(plan.kind),
        why=plan.why[:REASONS_MAX],
        taken_at_ms=plan.taken_at_ms,
        partitions=len(plan),
        stages=plan.stage_count,
        moved_bytes=plan.moved_bytes,
        throttle_bytes_per_s=plan.throttle_bytes_per_s,
        expected_s=plan.copy_time.expected_s,
        disks=tuple(
            PlannedDisk(
                broker=int(disks.brokers[row]),
                path=path,
                total_bytes=known(int(disks.total_bytes[row])),
                before=share(float(before[row])),
                after=share(float(after[row])),
            )
            for row, path in enumerate(disks.paths)
        ),
    )


def known(size_bytes: int) -> int | None:
    return size_bytes if size_bytes >= 0 else None


def share(value: float) -> float | None:
    return None if math.isnan(value) else value


def _brokers(look: FleetLook) -> tuple[Broker, ...]:
    return tuple(
        Broker(
            broker=each.broker_id,
            host=host_port(each.host, each.port),
            rack=each.rack or "",
            state="FENCED" if each.fenced else "SERVING",
            error=look.missing.get(each.broker_id, ""),
        )
        for each in look.brokers
    )


def _disks(look: FleetLook) -> tuple[Disk, ...]:
    return tuple(
        copied(
            Disk,
            each,
            used=None
            if each.used_bytes is None or not each.total_bytes
            else each.used_bytes / each.total_bytes,
        )
        for each in look.disks
    )


def _plan(look: PlanLook) -> FleetPlan:
    status = look.status
    record = status.record
    return copied(
        FleetPlan,
        status,
        plan_id=record.plan_id,
        digest=record.digest,
        state=str(record.state),
        by=record.by,
        submitted_ms=record.submitted_ms,
        throttle_bytes_per_s=record.rate_bytes_per_s,
        expected_end_ms=None if look.standing.is_stale else status.expected_end_ms,
        stages=tuple(copied(PlanStage, each) for each in look.stages),
        moves=tuple(_move(each) for each in status.active[:MOVES_MAX]),
        warnings=tuple(_warnings(look)),
    )


def _move(each: MoveStatus) -> Move:
    note = "stalls" if each.stalled else "does not gain on what is written" if each.behind else ""
    return copied(
        Move, each, state=str(each.state), note="; ".join(text for text in (note, each.reason) if text)
    )


def _warnings(look: PlanLook) -> Iterable[str]:
    status, standing = look.status, look.standing
    if str(status.record.state) != "ended":
        if standing.mover is None:
            yield "No mover serves: nothing new begins. Start `rtolap fleet serve`"
        elif standing.is_stale:
            yield f"Mover {standing.mover} has not looked for long: what is shown of moves is old"
        if standing.failure:
            yield f"The mover's last step failed: {standing.failure}"
        if not status.hours_open:
            yield "No move begins outside of the plan's hours"
        if status.throttle_needed_bytes_per_s is not None:
            needed = status.throttle_needed_bytes_per_s
            yield f"Its throttle keeps it from its end: {needed} bytes a second would do"
        yield from _named("Brokers that do not serve: {}; their moves wait", map(str, standing.brokers_away))
        yield from _named("Partitions that are gone: {}; their moves will fail", standing.partitions_gone)
        yield from (str(each) for each in status.held_back)
        yield from _named("The end waits for {}", status.tail)
    yield from (
        f"Move {number}: {reason}" for number, reason in list(status.record.reasons.items())[:REASONS_MAX]
    )


def _named(text: str, names: Iterable[str]) -> Iterable[str]:
    found = list(names)
    if found:
        more = f" and {len(found) - REASONS_MAX} more" if len(found) > REASONS_MAX else ""
        yield text.format(", ".join(found[:REASONS_MAX]) + more)


def _slow(look: SlowLook) -> tuple[SlowBroker, ...]:
    """Return the judged brokers, those that are not well first."""
    rows = convert(look.documents(), list[SlowBroker])
    return tuple(sorted(rows, key=lambda each: (not each.is_slow, each.state == "NORMAL", each.broker)))
