"""Routes of storage nodes on a front end: heartbeats, and the list of nodes. The cluster's token."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool

from rtolap.protocols.storage.messages import Heartbeat
from rtolap.protocols.stored_tables.messages import API
from rtolap.stored.frontend.http.messages import json_answer, read_body
from rtolap.stored.frontend.storage_nodes import StorageNodes


def nodes_router(nodes: StorageNodes, authorize: Callable[[Request], None]) -> APIRouter:
    """Return the routes of heartbeats. Any endpoint takes them: they go to the ledger, and change nothing
    that is the master's.

    `authorize` raises Unauthorized unless the request has the cluster's token.
    """
    router = APIRouter(prefix=f"{API}/storage-nodes", dependencies=[Depends(authorize)])

    @router.post("/{name}/heartbeat")
    async def heartbeat(name: str, request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(beat, name, body)

    def beat(name: str, body: bytes) -> Response:
        return json_answer(nodes.heartbeat(name, read_body(body, Heartbeat, "the heartbeat")))

    @router.get("")
    def listed() -> Response:
        return json_answer(nodes.all_nodes())

    return router
