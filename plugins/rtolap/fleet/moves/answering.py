"""Answers the requests to the mover, each in the commit that carries it out.

A plan is accepted only if it fits the present state of the cluster, and one plan at a time.
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
from rtolap.fleet.moves.look import describe
from rtolap.fleet.moves.metrics import MoverMetrics
from rtolap.fleet.moves.planned import PlannedMove, check_moves
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.requests import MoverAnswer, MoveRequest, RequestKind, check_request
from rtolap.fleet.moves.states import MoveEvent, MoveState, PlanEvent, PlanState
from rtolap.fleet.moves.store import FleetStore
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
    """Answers requests to the mover.

    `lease` returns the fence of the mover's lease, or raises where there is none. `moves_of` returns the
    moves of a plan.
    """

    def __init__(
        self,
        administration: FleetAdministration,
        fleet_store: FleetStore,
        clock: Clock,
        token: str,
        lease: Callable[[], str],
        moves_of: Callable[[PlanRecord], Sequence[PlannedMove]],
        metrics: MoverMetrics,
    ) -> None:
        self._administration = administration
        self._fleet_store = fleet_store
        self._clock = clock
        self._token = token
        self._lease = lease
        self._moves_of = moves_of
        self._metrics = metrics
        self._answered: set[str] = set()

    def answer_all(self) -> None:
        """Answer all open requests. Raises an error that prevents an answer now; the next call retries."""
        for request, version in self._fleet_store.open_requests(self._answered):
            self._answer(request, version)

    def forget(self) -> None:
        """Read all requests again, because another mover may have answered meanwhile."""
        self._answered.clear()

    def _answer(self, request: MoveRequest, version: int) -> None:
        now_ms = self._clock.now_ms()
        operations: list[Operation] = []
        try:
            check_request(request, self._token, self._fleet_store.cluster_id, now_ms)
            if not self._fleet_store.is_waited_for(request.request_id):
                raise Refused(
                    f"nobody waits for request {request.request_id} any more, so nothing is done",
                    action="ask again",
                )
            operations, message = self._taken(request, now_ms)
            answer = MoverAnswer(now_ms, "", message)
        except (Refused, NotFound) as error:
            answer = MoverAnswer(now_ms, error.code, str(error))
        except RtolapError as error:
            if error.http_status >= 500 and error.code != "corrupted":
                raise  # no answer yet: it is asked again
            answer = MoverAnswer(now_ms, error.code, str(error))
        answered = msgspec.structs.replace(request, answer=answer)
        required: list[Operation] = [Check(self._lease(), -1)]
        if not answer.code:
            required.append(self._fleet_store.waited_for(request.request_id))
        self._fleet_store.store.commit(
            [*required, *operations, self._fleet_store.put_answer(answered, version)]
        )
        self._metrics.answered(request.kind, answer.code)
        if request.kind is RequestKind.SUBMIT and answer.code:
            self._fleet_store.forget_refused(request.plan_id, self._lease())
        _log.info(
            "request %s by %s: %s %s: %s",
            *(request.request_id, request.by, request.kind, request.plan_id, answer.message or "done"),
        )

    def _taken(self, request: MoveRequest, now_ms: int) -> tuple[list[Operation], str]:
        if request.kind is RequestKind.SUBMIT:
            return self._submit(request, now_ms)
        stored = self._fleet_store.current()
        if stored is None or (request.plan_id and stored.record.plan_id != request.plan_id):
            raise NotFound("no such plan is carried out", found=request.plan_id or "none")
        record = stored.record
        if request.kind is RequestKind.CANCEL and request.partitions:
            record, message = self._cancel_some(record, request, now_ms)
        else:
            event = PlanEvent(request.kind.value)
            record = record.with_plan(event, now_ms, f"{request.by}: {request.reason}".rstrip(": "))
            message = f"plan {record.plan_id}: {record.state}"
        if request.kind is RequestKind.THROTTLE:
            record, message = self._throttle(record, request)
        operations = [self._fleet_store.put_plan(record, stored.version)]
        if record.state is PlanState.ENDED:
            operations.append(self._fleet_store.end_plan())
        return operations, message

    def _submit(self, request: MoveRequest, now_ms: int) -> tuple[list[Operation], str]:
        current = self._fleet_store.current()
        if current is not None:
            raise Refused(
                f"plan {current.record.plan_id} is being carried out", action="wait for its end, or cancel it"
            )
        if self._fleet_store.plan(request.plan_id) is not None:
            raise Refused(f"plan {request.plan_id} was submitted before")
        moves = self._fleet_store.read_moves(request.plan_id, request.moves_digest)
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
        return self._fleet_store.begin_plan(record), f"plan {request.plan_id}: {len(moves)} moves"

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
        """Store another throttle, which the mover sets before it looks at moves again."""
        rate = request.rate_bytes_per_s
        _check_rate(rate)
        throttle = record.throttle
        if record.state is not PlanState.QUEUED:  # its start reads what stands there
            throttle = changed_throttle(self._administration, self._moves_of(record), throttle, rate)
        record = msgspec.structs.replace(record, rate_bytes_per_s=rate, throttle=throttle)
        described = "no throttle" if rate is None else f"throttle of {rate:,} bytes a second"
        return record, f"plan {record.plan_id}: {described}"


def _check_rate(rate_bytes_per_s: int | None) -> None:
    if rate_bytes_per_s is not None and rate_bytes_per_s <= 0:
        raise DefinitionError("a throttle that lets nothing pass", found=rate_bytes_per_s)


def check_rights(administration: FleetAdministration, moves: Sequence[PlannedMove]) -> None:
    """Raise Forbidden where a right is missing that the moves will need. Such a plan could neither go on nor
    end."""
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
    """Raise PlanOutdated where the cluster has changed since the plan was made, and PlanRefused for a broken
    rule."""
    racks = {broker: each.rack for broker, each in administration.describe_cluster().serving.items()}
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
