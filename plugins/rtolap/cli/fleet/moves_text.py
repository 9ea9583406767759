"""The output of `rtolap fleet moves`: a plan's status in words and as a document, and the audit."""

from __future__ import annotations

from rtolap.cli.output import console, print_table, warn
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.standing import PlanStanding
from rtolap.fleet.moves.states import PlanState
from rtolap.fleet.moves.status import MoveStatus, PlanStatus
from rtolap.fleet.moves.store import FleetStore
from rtolap.model.quantities import instant_text, size_text

COLUMNS = ("partition", "state", "brokers", "size_bytes", "copied_bytes", "bytes_per_s", "left_s", "note")
_NAMED_MAX = 5
_AUDIT = ("at_ms", "by", "kind", "plan", "partitions", "reason", "answer")


def print_status(status: PlanStatus, stands: PlanStanding) -> None:
    record = status.record
    for doubt in _doubts(record, stands):
        warn(doubt)
    counted = ", ".join(f"{number} {state}" for state, number in status.counts.items())
    console.print(f"[bold]plan {record.plan_id}[/bold]  {record.state}: {counted}")
    console.print(
        f"{size_text(status.moved_bytes)} of {size_text(status.total_bytes)}; submitted by {record.by}",
    )
    if record.state is not PlanState.ENDED:
        console.print("; ".join(_outlook(status, stands)))
    if status.active:
        print_table(COLUMNS, [_row(move) for move in status.active])
    if status.tail:
        warn(f"the end waits for {', '.join(status.tail)}")
    for held_back in status.held_back:
        warn(str(held_back))
    if status.produce_unread:
        brokers = ", ".join(map(str, status.produce_unread))
        warn(f"produce p99 not read, and so no reason to hold moves back: brokers {brokers}")
    for advice in _advice(status):
        warn(advice)
    for number, reason in record.reasons.items():
        warn(f"move {number}: {reason}")


def _doubts(record: PlanRecord, stands: PlanStanding) -> list[str]:
    """Say what of the status is old, who is away, and what is gone."""
    if record.state is PlanState.ENDED:
        return []
    doubts = []
    as_of = "" if stands.looked_ms is None else f", as of {instant_text(stands.looked_ms)}"
    age = "" if stands.age_ms is None else f", {stands.age_ms // 1000} s ago"
    if stands.mover is None:
        doubts.append(
            f"no mover serves: what follows is what the last one kept{as_of}{age}; Kafka goes on with moves"
            " under way, no other begins, and throttles stay: start `rtolap fleet serve`"
        )
    elif stands.is_stale:
        doubts.append(f"mover {stands.mover} has not looked for long: what follows is old{as_of}{age}")
    if stands.failure:
        doubts.append(f"mover {stands.mover or 'that served last'}: {stands.failure}")
    if stands.brokers_away:
        doubts.append(
            f"brokers that do not serve: {', '.join(map(str, stands.brokers_away))}; their moves wait"
        )
    if stands.partitions_gone:
        doubts.append(
            f"partitions that there are no more: {', '.join(stands.partitions_gone[:_NAMED_MAX])}"
            f"{', …' if len(stands.partitions_gone) > _NAMED_MAX else ''}; their moves will end as failed"
        )
    return doubts


def _outlook(status: PlanStatus, stands: PlanStanding) -> list[str]:
    rate = status.record.rate_bytes_per_s
    told = ["no throttle" if rate is None else f"throttle of {size_text(rate)} a second"]
    if not status.hours_open:
        told.append("outside of its hours")
    end_ms = None if stands.is_stale else status.expected_end_ms
    told.append(f"expected end: {'unknown' if end_ms is None else instant_text(end_ms)}")
    return told


def _advice(status: PlanStatus) -> list[str]:
    """Say why moves that copy all the time do not end, and what would end them."""
    behind = [move for move in status.active if move.behind]
    if not behind:
        return []
    written = ", ".join(f"{move.partition} {size_text(move.written_bytes_per_s)}" for move in behind)
    advice = [f"written as fast as it is copied, a second: {written}"]
    rate, needed = status.record.rate_bytes_per_s, status.throttle_needed_bytes_per_s
    if needed is not None and rate is not None:
        advice.append(
            f"the throttle of {size_text(rate)} a second keeps the plan from its end: `rtolap fleet throttle"
            f" {needed}`, or more, would do"
        )
    return advice


def _row(move: MoveStatus) -> tuple[object, ...]:
    note = "stalls" if move.stalled else "does not gain" if move.behind else ""
    return (
        move.partition,
        str(move.state),
        move.brokers,
        move.size_bytes,
        move.copied_bytes,
        round(move.bytes_per_s),
        move.left_s,
        "; ".join(text for text in (note, move.reason) if text),
    )


def status_document(status: PlanStatus, stands: PlanStanding) -> dict[str, object]:
    record = status.record
    return {
        "plan": record.plan_id,
        "state": record.state,
        "digest": record.digest,
        "by": record.by,
        "counts": status.counts,
        "total_bytes": status.total_bytes,
        "moved_bytes": status.moved_bytes,
        "left_bytes": status.left_bytes,
        "expected_end_ms": None if stands.is_stale else status.expected_end_ms,
        "throttle_bytes_per_s": record.rate_bytes_per_s,
        "throttle_needed_bytes_per_s": status.throttle_needed_bytes_per_s,
        "hours_open": status.hours_open,
        "active": status.active,
        "tail": status.tail,
        "held_back": status.held_back,
        "produce_unread": status.produce_unread,
        "reasons": {str(number): reason for number, reason in record.reasons.items()},
        "history": record.history,
        "mover": stands.mover,
        "mover_trouble": stands.failure,
        "as_of_ms": stands.looked_ms,
        "age_ms": stands.age_ms,
        "brokers_away": stands.brokers_away,
        "partitions_gone": stands.partitions_gone,
    }


def print_audit(fleet_store: FleetStore, as_json: bool) -> None:
    rows = []
    for request in fleet_store.requests():
        answer = request.answer
        told = "" if answer is None else f"{answer.code}: {answer.message}".removeprefix(": ")
        named = ", ".join(f"{topic}:{number}" for topic, number in request.partitions)
        rows.append(
            (request.at_ms, request.by, str(request.kind), request.plan_id, named, request.reason, told)
        )
    print_table(_AUDIT, rows, as_json=as_json)
