"""The decisions of loads over REST; see `stream_load.decision_messages`. Only the master answers.

The app that mounts it checks the bearer token and turns errors into answers: NotLeader into a redirect to the
master. Decisions wait for nodes and for other transactions, so they have threads of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from rtolap.base.errors import LabelUsed, NotFound
from rtolap.base.ids import CarryingPool
from rtolap.stored.frontend.catalogue.tables import Catalogue
from rtolap.stored.frontend.election import Election
from rtolap.stored.frontend.http.messages import json_answer, read_body
from rtolap.stored.frontend.transactions.publishing import Visibility
from rtolap.stored.frontend.transactions.requests import TransactionManager
from rtolap.stored.metastore.records import BeginRequest
from rtolap.stored.stream_load import decision_messages as wire

DECISIONS_MAX = 64  # at once: as many bodies as one process takes by default
WAITS_MAX = 64  # they hold a thread each, for `WAIT_S_MAX` at most

B = TypeVar("B", bound=msgspec.Struct)


class Decisions:
    """The master's answers to other processes that take bodies."""

    def __init__(self, catalogue: Catalogue, manager: TransactionManager, visibility: Visibility) -> None:
        self._catalogue, self._manager, self._visibility = catalogue, manager, visibility

    def table(self, request: wire.TableRequest) -> msgspec.Struct:
        return self._catalogue.table_to_load(request.db, request.table)

    def partitions(self, request: wire.PartitionsRequest) -> msgspec.Struct:
        return self._catalogue.ensure_partitions(request.db, request.table, request.instants_ms)

    def can_take(self, request: wire.CanTakeRequest) -> msgspec.Struct:
        entry = self._catalogue.table(request.db, request.table)
        if entry.table_id != request.table_id:
            raise NotFound(f"table {request.db}.{request.table} was recreated while a load of it ran")
        return wire.CanTakeAnswer(self._catalogue.can_take(entry, request.partitions))

    def begin(self, wanted: BeginRequest) -> msgspec.Struct:
        try:
            transaction = self._manager.begin(wanted)
        except LabelUsed as used:
            found = wire.UsedLabel(used.message, used.txn_id, used.existing_job_status)
            return wire.BeginAnswer(None, found)
        return wire.BeginAnswer(transaction)

    def precommit(self, request: wire.CommitRequest) -> msgspec.Struct:
        return self._manager.precommit(
            request.db, request.txn_id, request.partitions, figures=request.figures
        )

    def commit(self, request: wire.CommitRequest) -> msgspec.Struct:
        return self._manager.commit(request.db, request.txn_id, request.partitions, figures=request.figures)

    def abort(self, request: wire.AbortRequest) -> msgspec.Struct:
        return self._manager.abort(request.db, request.txn_id, request.reason, figures=request.figures)

    def transaction(self, request: wire.TransactionRequest) -> msgspec.Struct:
        return self._manager.get(request.db, request.txn_id)

    def wait(self, request: wire.WaitRequest) -> msgspec.Struct:
        timeout_s = min(request.timeout_s, wire.WAIT_S_MAX)
        return wire.WaitAnswer(self._visibility.wait(request.db, request.txn_id, timeout_s))


def decisions_router(decisions: Decisions, election: Election) -> APIRouter:
    router = APIRouter(prefix=wire.PREFIX)
    deciding = CarryingPool(DECISIONS_MAX, thread_name_prefix="decision")
    waiting = CarryingPool(WAITS_MAX, thread_name_prefix="wait")

    def route(
        path: str,
        kind: type[B],
        decide: Callable[[B], msgspec.Struct],
        pool: CarryingPool = deciding,
    ) -> None:
        @router.post(f"/{path}")
        async def answer(request: Request) -> Response:
            election.require()
            body = read_body(await request.body(), kind, "the request of a load")
            decided = await asyncio.get_running_loop().run_in_executor(pool, decide, body)
            return json_answer(decided)

    route("table", wire.TableRequest, decisions.table)
    route("partitions", wire.PartitionsRequest, decisions.partitions)
    route("can-take", wire.CanTakeRequest, decisions.can_take)
    route("begin", BeginRequest, decisions.begin)
    route("precommit", wire.CommitRequest, decisions.precommit)
    route("commit", wire.CommitRequest, decisions.commit)
    route("abort", wire.AbortRequest, decisions.abort)
    route("transaction", wire.TransactionRequest, decisions.transaction)
    route("wait", wire.WaitRequest, decisions.wait, waiting)
    return router
