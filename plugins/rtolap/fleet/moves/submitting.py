"""Sends requests to a mover: submits a plan, and waits for each answer."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from typing import Any

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError, Unanswered, from_dict
from rtolap.fleet.moves.planned import PlannedMove, check_moves, digest_of_moves, encode_moves
from rtolap.fleet.moves.records import Hours
from rtolap.fleet.moves.requests import MoverAnswer, MoveRequest, RequestKind, signed
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.plan_file import plan_digest
from rtolap.fleet.snapshot.model import UNKNOWN

_log = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 60.0
_LOOK_S = 0.2


def planned_moves(plan: Plan) -> tuple[PlannedMove, ...]:
    """Return the plan, partition by partition."""
    before, after, paths = plan.before, plan.after, plan.disks.paths
    names = [plan.topics[row] for row in plan.partition_topics]
    moves = []
    for row, name in enumerate(names):
        was = slice(int(before.first[row]), int(before.first[row + 1]))
        will = slice(int(after.first[row]), int(after.first[row + 1]))
        moves.append(
            PlannedMove(
                name,
                int(plan.partition_numbers[row]),
                tuple(int(broker) for broker in before.brokers[was]),
                tuple(int(broker) for broker in after.brokers[will]),
                tuple(_path(paths, int(at)) for at in before.log_dirs[was]),
                tuple(_path(paths, int(at)) for at in after.log_dirs[will]),
                max(0, int(plan.partition_bytes[row])),
                int(plan.stages[row]),
            )
        )
    return tuple(moves)


def _path(paths: tuple[str, ...], row: int) -> str:
    return "" if row == UNKNOWN else paths[row]


class MoverRequests:
    """Sends requests to the mover of one Kafka cluster, signed with the cluster's token.

    A request without an answer is withdrawn, so that nothing runs later for which nobody waits.
    """

    def __init__(
        self,
        fleet_store: FleetStore,
        clock: Clock,
        token: str,
        by: str,
        *,
        answer_timeout_s: float | None = None,
    ) -> None:
        """Take the stores and the token. `answer_timeout_s` is `ANSWER_TIMEOUT_S` by default."""
        self._answer_timeout_s = ANSWER_TIMEOUT_S if answer_timeout_s is None else answer_timeout_s
        self._fleet_store = fleet_store
        self._clock = clock
        self._token = token
        self._by = by

    def submit(
        self, plan: Plan, *, rate_bytes_per_s: int | None, hours: Hours | None = None, reason: str = ""
    ) -> str:
        """Return the id of the plan, once the mover has taken it. Raises what it was refused for, and what
        `ask` says.

        1. write its moves     crash: pieces that nobody reads, under an id that nobody has
        2. ask                 the mover takes it whole, or refuses it; crash: it refuses it, once the
                               session is over that has asked
        """
        moves = planned_moves(plan)
        check_moves(moves)
        data = encode_moves(moves)
        plan_id = f"{plan.kind.value}-{self._clock.now_ms():013d}-{uuid.uuid4().hex[:6]}"
        self._fleet_store.write_moves(plan_id, data)
        try:
            self.ask(
                RequestKind.SUBMIT,
                reason=reason,
                plan_id=plan_id,
                moves_digest=digest_of_moves(data),
                plan_digest=plan_digest(plan),
                rate_bytes_per_s=rate_bytes_per_s,
                hours=hours,
            )
        except Unanswered:
            self._fleet_store.discard_moves(plan_id)
            raise
        return plan_id

    def ask(self, kind: RequestKind, *, reason: str = "", **values: Any) -> MoverAnswer:
        """Return the answer. Raises Unanswered where no mover has answered within the time: the request is
        withdrawn. Raises what it was refused for, and what the store raises."""
        now_ms = self._clock.now_ms()
        request = MoveRequest(
            f"{now_ms:013d}-{uuid.uuid4().hex[:8]}",
            kind,
            self._fleet_store.cluster_id,
            now_ms,
            self._by,
            reason,
            **values,
        )
        self._fleet_store.ask(signed(request, self._token))
        try:
            answer = self._wait(lambda: self._answer(request.request_id))
        except BaseException:
            self._abandon(request.request_id)
            raise
        answered = self._fleet_store.stop_waiting(request.request_id)
        if answer is None and answered is not None:
            answer = answered.answer  # at the last moment
        if answer is None:
            raise Unanswered(
                f"no mover has answered request {request.request_id} within {self._answer_timeout_s:g} s;"
                " it is withdrawn, and nothing is done",
                action="start `rtolap fleet serve` for this cluster, and ask again",
            )
        if answer.code:
            raise from_dict({"code": answer.code, "message": answer.message})
        return answer

    def _abandon(self, request_id: str) -> None:
        """Withdraw it on the way out. Where that fails the end of the session does."""
        try:
            self._fleet_store.stop_waiting(request_id)
        except RtolapError as error:
            _log.warning("request %s ends with this session: %s", request_id, error)

    def _answer(self, request_id: str) -> MoverAnswer | None:
        request = self._fleet_store.request(request_id)
        return None if request is None else request.answer

    def _wait(self, look: Callable[[], MoverAnswer | None]) -> MoverAnswer | None:
        deadline_s = time.monotonic() + self._answer_timeout_s
        while time.monotonic() < deadline_s:
            answer = look()
            if answer is not None:
                return answer
            time.sleep(_LOOK_S)
        return None
