"""Answers what people ask of the mover, each request in the commit that does what it asks for.

A plan is taken only if it fits the cluster as it is, and one plan at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.errors import (
    DefinitionError,
    Forbidden,
    IllegalTransition,
    NotFound,
    PlanOutdated,
    PlanRefused,
    Refused,
    RtolapError,
)
from rtolap.fleet.moves.kept import KeptFleet
from rtolap.fleet.moves.look import describe
from rtolap.fleet.moves.metrics import MoverMetrics
from rtolap.fleet.moves.planned import PlannedMove, check_moves
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.requests import Answer, MoveRequest, RequestKind, check_request
from rtolap.fleet.moves.states import MoveEvent, MoveState, PlanEvent, PlanState
from rtolap.fleet.moves.throttles import changed_throttle
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.kafka.administration.values import Partition, Right
from rtolap.metadata.store import Check, Operation

_log = logging.getLogger(__name__)
_NAMED_MAX = 5
_ON_CLUSTER = (Right.ALTER, Right.DESCRIBE, Right.ALTER_CONFIGS, Right.DESCRIBE_CONFIGS)
_ON_TOPICS = (Right.DESCRIBE, Right.ALTER_CONFIGS, Right.DESCRIBE_CONFIGS)
_STOPPED = frozenset((PlanState.RELEASING, PlanState.ENDED))


class Answering:
    """`lease`: the fence of the mover's lease, raises where it has none. `moves_of`: what a plan asks for."""

    def __init__(
        self,
        administration: FleetAdministration,
        kept: KeptFleet,
        clock: Clock,
        token: str,
        lease: Callable[[], str],
        moves_of: Callable[[PlanRecord], Sequence[PlannedMove]],
        metrics: MoverMetrics,
    ) -> None:
        self._administration = administration
        self._kept = kept
        self._clock = clock
        self._token = token
        self._lease = lease
        self._moves_of = moves_of
        self._metrics = metrics
        self._answered: set[str] = set()

    def answer_all(self) -> None:
        """Raises what it cannot answer now: it is asked again."""
        for request, version in self._kept.open_requests(self._answered):
            self._answer(request, version)

    def forget(self) -> None:
        """Look at all requests again: another mover has answered meanwhile."""
        self._answered.clear()

    def _answer(self, request: MoveRequest, version: int) -> None:
        now_ms = self._clock.now_ms()
        operations: list[Operation] = []
        try:
            check_request(request, self._token, self._kept.cluster_id, now_ms)
            if not self._kept.is_waited_for(request.request_id):
                raise Refused(
                    f"nobody waits for request {request.request_id} any more, so nothing is done",
                    action="ask again",
                )
            operations, message = self._taken(request, now_ms)
            answer = Answer(now_ms, "", message)
        except (Refused, NotFound) as error:
            answer = Answer(now_ms, error.code, str(error))
        except RtolapError as error:
            if error.http_status >= 500 and error.code != "corrupted":
                raise  # no answer yet: it is asked again
            answer = Answer(now_ms, error.code, str(error))
        answered = msgspec.structs.replace(request, answer=answer)
        required: list[Operation] = [Check(self._lease(), -1)]
        if not answer.code:
            required.append(self._kept.waited_for(request.request_id))
        self._kept.store.commit([*required, *operations, self._kept.put_answer(answered, version)])
        self._metrics.answered(request.kind, answer.code)
        if request.kind is RequestKind.SUBMIT and answer.code:
            self._kept.forget_refused(request.plan_id, self._lease())
        _log.info(
            "request %s by %s: %s %s: %s",
            *(request.request_id, request.by, request.kind, request.plan_id, answer.message or "done"),
        )

    def _taken(self, request: MoveRequest, now_ms: int) -> tuple[list[Operation], str]:
        if request.kind is RequestKind.SUBMIT:
            return self._submit(request, now_ms)
        kept = self._kept.current()
        if kept is None or (request.plan_id and kept.record.plan_id != request.plan_id):
            raise NotFound("no such plan is carried out", found=request.plan_id or "none")
        record = kept.record
        if request.kind is RequestKind.CANCEL and request.partitions:
            record, message = self._cancel_some(record, request, now_ms)
        else:
            event = PlanEvent(request.kind.value)
            record = record.with_plan(event, now_ms, f"{request.by}: {request.reason}".rstrip(": "))
            message = f"plan {record.plan_id}: {record.state}"
        if request.kind is RequestKind.THROTTLE:
            record, message = self._throttle(record, request)
        operations = [self._kept.put_plan(record, kept.version)]
        if record.state is PlanState.ENDED:
            operations.append(self._kept.end_plan())
        return operations, message

    def _submit(self, request: MoveRequest, now_ms: int) -> tuple[list[Operation], str]:
        current = self._kept.current()
        if current is not None:
            raise Refused(
                f"plan {current.record.plan_id} is being carried out", action="wait for its end, or cancel it"
            )
        if self._kept.plan(request.plan_id) is not None:
            raise Refused(f"plan {request.plan_id} was submitted before")
        moves = self._kept.read_moves(request.plan_id, request.moves_digest)
        check_moves(moves)
        _check_rate(request.rate_bytes_per_s)
        check_fleet(self._administration, moves)
        check_rights(self._administration, moves)
        record = PlanRecord(
            request.plan_id,
            request.cluster_id,
            request.plan_digest,
            PlanState.QUEUED,
            now_ms,
            request.by,
            "." * len(moves),
            rate_bytes_per_s=request.rate_bytes_per_s,
            hours=request.hours,
            moves_digest=request.moves_digest,
        )
        return self._kept.begin_plan(record), f"plan {request.plan_id}: {len(moves)} moves"

    def _cancel_some(self, record: PlanRecord, request: MoveRequest, now_ms: int) -> tuple[PlanRecord, str]:
        if record.state in _STOPPED:
            raise IllegalTransition(f"plan {record.plan_id} has no moves any more", found=record.state)
        wanted = {Partition(topic, number) for topic, number in request.partitions}
        numbers = [number for number, move in enumerate(self._moves_of(record)) if move.partition in wanted]
        cancelled = 0
        for number in numbers:
            if record.move_state(number) in (MoveState.PENDING, MoveState.SUBMITTING, MoveState.COPYING):
                reason = f"{request.by}: {request.reason}".rstrip(": ")
                record = record.cancelling(number, now_ms, MoveEvent.RESTORED, reason)
                cancelled += 1
        if not cancelled:
            raise NotFound("no such partition is still to be moved", found=sorted(map(str, wanted)))
        return record, f"{cancelled} moves"

    def _throttle(self, record: PlanRecord, request: MoveRequest) -> tuple[PlanRecord, str]:
        """Keep another throttle, which the mover sets before it looks at moves again."""
        rate = request.rate_bytes_per_s
        _check_rate(rate)
        throttle = record.throttle
        if record.state is not PlanState.QUEUED:  # its start reads what stands there
            throttle = changed_throttle(self._administration, self._moves_of(record), throttle, rate)
        record = msgspec.structs.replace(record, rate_bytes_per_s=rate, throttle=throttle)
        told = "no throttle" if rate is None else f"throttle of {rate:,} bytes a second"
        return record, f"plan {record.plan_id}: {told}"


def _check_rate(rate_bytes_per_s: int | None) -> None:
    if rate_bytes_per_s is not None and rate_bytes_per_s <= 0:
        raise DefinitionError("a throttle that lets nothing pass", found=rate_bytes_per_s)


def check_rights(administration: FleetAdministration, moves: Sequence[PlannedMove]) -> None:
    """Raises Forbidden where a right is missing that carrying the moves out will need: without it a plan
    would begin, and neither go on nor end."""
    topics = {move.topic for move in moves}
    missing = administration.missing_rights(_ON_CLUSTER, _ON_TOPICS, topics)
    if missing:
        others = f" and {len(missing) - _NAMED_MAX} others" if len(missing) > _NAMED_MAX else ""
        raise Forbidden(
            "the mover may not carry the plan out",
            expected=f"the rights {', '.join(missing[:_NAMED_MAX])}{others}",
            action="grant them to the mover's user (kafka-acls --add)",
        )


def check_fleet(administration: FleetAdministration, moves: Sequence[PlannedMove]) -> None:
    """Raises PlanOutdated or PlanRefused where the cluster is not as the plan takes it to be, or rules would
    be broken."""
    racks = {
        broker.broker_id: broker.rack
        for broker in administration.describe_cluster().brokers
        if not broker.fenced
    }
    found = describe(administration, [move.partition for move in moves])
    first = {move.partition: move for move in reversed(moves)}  # a later one goes on where it has come to
    for move in moves:
        described = found.get(move.partition)
        is_first = first[move.partition] is move
        if described is None or (is_first and tuple(described.replicas) != move.before):
            raise PlanOutdated(
                f"{move.partition} is not where the plan takes it to be",
                expected=list(move.before),
                found="nothing" if described is None else list(described.replicas),
                action="make the plan of a new snapshot",
            )
        gone = [broker for broker in move.after if broker not in racks]
        if set(gone) - set(move.before):
            raise PlanRefused(f"broker {gone[0]}, to which {move.partition} is to go, does not serve")
        before, after = ({racks.get(broker) for broker in side} for side in (move.before, move.after))
        if len(after) < len(before - {None}):
            raise PlanRefused(f"{move.partition} would be in fewer racks", found=list(move.after))
    running = administration.running_reassignments([move.partition for move in moves])
    for partition in running:
        raise PlanRefused(f"{partition} is being reassigned already", action="wait for its end, or cancel it")
