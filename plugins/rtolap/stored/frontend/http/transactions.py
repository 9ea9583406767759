"""Requests about transactions: the second phase, the state of a label, its closing, its acknowledgement.

An endpoint that is not master sends what changes something on to the master, by 307; what only reads is
answered from the ledger by any front end.
"""

from __future__ import annotations

import logging

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError, NotLeader, RtolapError, Unavailable
from rtolap.base.undecodable import UNDECODABLE
from rtolap.protocols.stream_load.messages import AcknowledgeRequest, LoadState, StateAnswer, TwoPhaseAnswer
from rtolap.stored.frontend.election import Election
from rtolap.stored.frontend.transactions.publishing import Visibility
from rtolap.stored.frontend.transactions.requests import TransactionManager
from rtolap.stored.stream_load import messages
from rtolap.stored.stream_load.authentication import Guard

log = logging.getLogger(__name__)

LABELS_AT_ONCE_MAX = 10_000


def transaction_routes(
    manager: TransactionManager,
    visibility: Visibility,
    election: Election,
    guard: Guard,
    publish_timeout_s: float,
) -> APIRouter:
    router = APIRouter()

    @router.put("/api/{db}/_stream_load_2pc")
    @router.put("/api/{db}/{table}/_stream_load_2pc")
    async def two_phase(request: Request, db: str) -> Response:
        user = guard.loader(request)
        election.require()
        return _json(await run_in_threadpool(second_phase, request, db, user))

    def second_phase(request: Request, db: str, user: str) -> TwoPhaseAnswer:
        try:
            return operate(request, db, user)
        except NotLeader:
            raise
        except RtolapError as error:
            return TwoPhaseAnswer("Fail", messages.on_the_wire(str(error)))

    def operate(request: Request, db: str, user: str) -> TwoPhaseAnswer:
        operation = request.headers.get("txn_operation", "").strip().lower()
        if operation not in ("commit", "abort"):
            raise DefinitionError("transaction operation should be 'commit' or 'abort'")
        txn_id = _txn_id(request, manager, db)
        guard.owns(user, manager.get(db, txn_id))
        if operation == "abort":
            # in the words for what was aborted already, which is no error for who repeats it here
            manager.abort(db, txn_id, "User Abort")
        else:
            manager.commit_precommitted(db, txn_id)
            try:
                visibility.wait(db, txn_id, publish_timeout_s)
            except RtolapError as error:
                log.warning("transaction %d is committed; whether it is visible: %s", txn_id, error)
        return TwoPhaseAnswer("Success", messages.done(txn_id, operation))

    @router.get("/api/{db}/get_load_state")
    async def load_state(request: Request, db: str, label: str = "") -> Response:
        guard.user(request)
        if not label:
            return _json(StateAnswer("the parameter label is missing", code=1))
        transaction = await run_in_threadpool(manager.find, db, label)
        state = LoadState.UNKNOWN if transaction is None else LoadState(transaction.state.value)
        return _json(StateAnswer(data=state.value))

    @router.put("/api/{db}/_close_label")
    async def close_label(request: Request, db: str, label: str = "") -> Response:
        user = guard.loader(request)
        election.require()
        if not label:
            return _json(StateAnswer("the parameter label is missing", code=1))
        return _json(await run_in_threadpool(closed, db, label, user))

    def closed(db: str, label: str, user: str) -> StateAnswer:
        try:
            transaction = manager.close_label(db, label, user, lambda holder: guard.owns(user, holder))
        except (NotLeader, Unavailable):
            raise
        except RtolapError as error:
            return StateAnswer(messages.on_the_wire(str(error)), code=1)
        return StateAnswer(data=LoadState(transaction.state.value).value)

    @router.put("/api/{db}/_acknowledge_labels")
    async def acknowledge(request: Request, db: str) -> Response:
        user = guard.loader(request)
        election.require()
        wanted = await _labels(request)
        return _json(await run_in_threadpool(acknowledged, db, wanted, user))

    def acknowledged(db: str, labels: tuple[str, ...], user: str) -> TwoPhaseAnswer:
        try:
            for label in labels:
                transaction = manager.find(db, label)
                if transaction is not None:
                    guard.owns(user, transaction)
                manager.acknowledge(db, label)
        except NotLeader:
            raise
        except RtolapError as error:
            return TwoPhaseAnswer("Fail", messages.on_the_wire(str(error)))
        return TwoPhaseAnswer("Success", f"{len(labels)} labels")

    return router


def _txn_id(request: Request, manager: TransactionManager, db: str) -> int:
    written = request.headers.get("txn_id", "").strip()
    if written:
        if not written.isascii() or not written.isdecimal() or len(written) > 18:
            raise DefinitionError(f"convert txn_id [{written[:40]}] failed")
        return int(written)
    label = request.headers.get("label", "").strip()
    if not label:
        raise DefinitionError("either txn_id or label must be given")
    return manager.by_label(db, label).txn_id


async def _labels(request: Request) -> tuple[str, ...]:
    body = await request.body()  # how long it may be is bounded by the guard
    try:
        labels = decode_json(body, AcknowledgeRequest).labels
    except UNDECODABLE as error:
        raise DefinitionError("the body cannot be read", expected='{"labels": […]}', found=error) from error
    if len(labels) > LABELS_AT_ONCE_MAX:
        raise DefinitionError("too many labels", expected=f"at most {LABELS_AT_ONCE_MAX}", found=len(labels))
    return labels


def _json(answer: TwoPhaseAnswer | StateAnswer) -> Response:
    return Response(msgspec.json.encode(answer) + b"\n", media_type="application/json")
