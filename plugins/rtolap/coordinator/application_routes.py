"""The routes below `/api/v1/applications`, whose messages are in `protocols.watermark.messages`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from rtolap.base.errors import DefinitionError
from rtolap.base.undecodable import UNDECODABLE
from rtolap.coordinator.applications.limits import INSTANT_MAX_MS
from rtolap.coordinator.assembly import Coordinator
from rtolap.coordinator.routes import RequestId
from rtolap.protocols.coordinator.messages import CompletenessInfo, Definition
from rtolap.protocols.watermark import messages as wire

_JSON = "application/json"
_BATCH_PACKED = msgspec.msgpack.Decoder(wire.ReportBatch)
_BATCH_JSON = msgspec.json.Decoder(wire.ReportBatch)


async def _body(request: Request) -> bytes | None:
    """Return None if there is more than `REPORT_BYTES_MAX`; the rest of it is not read."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > wire.REPORT_BYTES_MAX:
            return None
    return bytes(data)


def add_application_routes(api: APIRouter, coordinator: Coordinator, leading: Callable[[], None]) -> None:
    """Add the routes of one application, which its owner answers, the leader or not."""
    path = "/applications/{application}"

    @api.get("/applications")
    def names() -> list[str]:
        return coordinator.applications.names()

    @api.post("/applications", dependencies=[Depends(leading)])
    def create(body: Definition) -> None:
        coordinator.applications.create(body)

    @api.get(path)
    def info(application: str) -> wire.ApplicationInfo:
        return coordinator.applications.info(application)

    @api.put(path)
    def change(application: str, body: Definition) -> None:
        coordinator.applications.change(application, body)

    @api.delete(path)
    def drop(application: str, request_id: RequestId) -> None:
        coordinator.owned_requests.once(
            request_id,
            ("application", application),
            lambda note: coordinator.applications.drop(application, note),
        )

    @api.post(path + "/reports", response_class=Response)
    def report(application: str, request: Request, body: Annotated[bytes | None, Depends(_body)]) -> Response:
        running = coordinator.applications.running(application)
        if body is None:
            running.count("oversized_batches")
            raise DefinitionError(
                "the report is too large",
                expected=f"at most {wire.REPORT_BYTES_MAX} bytes",
                action="report fewer partitions in one batch",
            )
        packed = request.headers.get("content-type", _JSON).partition(";")[0].strip() == wire.MSGPACK
        try:
            batch = (_BATCH_PACKED if packed else _BATCH_JSON).decode(body)
        except UNDECODABLE as error:
            running.count("refused_batches")
            raise DefinitionError(
                "not a batch of reports", expected=f"msgpack ({wire.MSGPACK}) or JSON", found=str(error)
            ) from error
        answer = running.report(batch)
        if packed:
            return Response(msgspec.msgpack.encode(answer), media_type=wire.MSGPACK)
        return Response(msgspec.json.encode(answer), media_type=_JSON)

    @api.get(path + "/watermarks")
    def watermarks(application: str) -> wire.ApplicationWatermarks:
        return coordinator.applications.watermarks(application)

    @api.get(path + "/hosts")
    def hosts(
        application: str,
        level: Annotated[str | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 20,
    ) -> wire.HostsInfo:
        return coordinator.applications.hosts(application, level, limit)

    @api.post(path + "/hosts")
    def change_hosts(application: str, body: wire.HostsChange) -> wire.HostsChanged:
        return coordinator.applications.running(application).change_hosts(body)

    @api.get(path + "/units")
    def units(
        application: str,
        level: Annotated[str | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=20_000)] = 100,
    ) -> wire.UnitsInfo:
        return coordinator.applications.units(application, level, limit)

    @api.get(path + "/history")
    def history(
        application: str,
        level: Annotated[str | None, Query()] = None,
        since_ms: Annotated[int | None, Query(ge=0)] = None,
        until_ms: Annotated[int | None, Query(ge=0)] = None,
        samples: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
    ) -> wire.ApplicationHistory:
        return coordinator.applications.history(application, level, since_ms, until_ms, samples)

    @api.get(path + "/explain")
    def explain(
        application: str, window_end_ms: Annotated[int, Query(ge=0, le=INSTANT_MAX_MS)]
    ) -> wire.Explanation:
        return coordinator.applications.explain(application, window_end_ms)

    @api.get(path + "/completeness")
    def completeness(
        application: str,
        cube: Annotated[str, Query()],
        window_end_ms: Annotated[int, Query(ge=0, le=INSTANT_MAX_MS)],
    ) -> CompletenessInfo:
        return coordinator.completeness(application, cube, window_end_ms)

    @api.post(path + "/approvals")
    def approve(application: str, body: wire.ApprovalRequest) -> wire.ApplicationInfo:
        coordinator.applications.running(application).approve(body)
        return coordinator.applications.info(application)
