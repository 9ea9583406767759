"""Routes of moves of replicas. The app that mounts them checks the cluster's token."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.concurrency import run_in_threadpool

from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError
from rtolap.base.undecodable import UNDECODABLE
from rtolap.protocols.rest.request_ids import HEADER, checked_request_id
from rtolap.protocols.storage.messages import Drain, Rebalance
from rtolap.protocols.stored_tables.messages import API
from rtolap.stored.frontend.election import Election
from rtolap.stored.frontend.moves.requests import MoveRequests

T = TypeVar("T")


def _request_id(value: Annotated[str | None, Header(alias=HEADER)] = None) -> str | None:
    return checked_request_id(value)


def moves_router(requests: MoveRequests, election: Election) -> APIRouter:
    """Return the routes. The master answers them all: it alone knows for how long it has watched nodes."""
    router = APIRouter(prefix=API)

    @router.get("/storage-moves")
    def status() -> Response:
        election.require()
        return _json(requests.status())

    @router.post("/storage-moves/rebalance")
    async def rebalance(
        request: Request, request_id: Annotated[str | None, Depends(_request_id)]
    ) -> Response:
        body = _read(await request.body(), Rebalance)
        election.require()
        planned = await run_in_threadpool(requests.rebalance, plan_only=body.plan_only, request_id=request_id)
        return _json(planned)

    @router.post("/storage-nodes/{name}/drain")
    async def drain(name: str, request: Request) -> Response:
        body = _read(await request.body(), Drain)
        election.require()
        await run_in_threadpool(requests.drain, name, undo=body.undo)
        return _json({})

    return router


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return decode_json(body, kind)
    except UNDECODABLE as error:
        raise DefinitionError("the request cannot be read", found=str(error)) from error


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
