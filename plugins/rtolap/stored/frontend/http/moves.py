"""Routes of moves of replicas. The app that mounts them checks the cluster's token."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from rtolap.protocols.storage.messages import Drain, Rebalance
from rtolap.protocols.stored_tables.messages import API
from rtolap.stored.frontend.election import Election
from rtolap.stored.frontend.http.messages import RequestId, json_answer, read_body
from rtolap.stored.frontend.moves.requests import MoveRequests


def moves_router(requests: MoveRequests, election: Election) -> APIRouter:
    """Return the routes. The master answers them all: it alone knows for how long it has watched nodes."""
    router = APIRouter(prefix=API)

    @router.get("/storage-moves")
    def status() -> Response:
        election.require()
        return json_answer(requests.status())

    @router.post("/storage-moves/rebalance")
    async def rebalance(request: Request, request_id: RequestId) -> Response:
        body = read_body(await request.body(), Rebalance)
        election.require()
        planned = await run_in_threadpool(requests.rebalance, plan_only=body.plan_only, request_id=request_id)
        return json_answer(planned)

    @router.post("/storage-nodes/{name}/drain")
    async def drain(name: str, request: Request) -> Response:
        body = read_body(await request.body(), Drain)
        election.require()
        await run_in_threadpool(requests.drain, name, undo=body.undo)
        return json_answer({})

    return router
