"""Requests of Doris' clients beside loads: columns, backends, health; and the rejected rows of a load.

Everything wants Basic credentials, except `/` and `/health`, which reveal nothing, and error files, whose
names nobody can guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from starlette.concurrency import run_in_threadpool

from rtolap.base.errors import NotFound
from rtolap.model.stored.schema import SchemaColumn, StoredSchema
from rtolap.model.stored.table import StoredColumn, TableModel
from rtolap.protocols.stream_load import messages as wire
from rtolap.stored.frontend.election import Election
from rtolap.stored.frontend.http.messages import json_answer
from rtolap.stored.stream_load.authentication import Guard
from rtolap.stored.stream_load.error_files import ErrorFiles

SERVICE = "rtolap stream-load"
_KEYS_TYPES: dict[TableModel, str] = {
    "duplicate": "DUP_KEYS",
    "aggregate": "AGG_KEYS",
    "unique": "UNIQUE_KEYS",
}
_TYPES = {
    "string": "STRING",
    "boolean": "BOOLEAN",
    "int": "INT",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "date": "DATEV2",
    "timestamp": "DATETIMEV2",
}
_DECIMALS = {9: "DECIMAL32", 18: "DECIMAL64", 38: "DECIMAL128"}  # by the most digits
_SKETCHES = {"hll": "HLL", "bitmap": "BITMAP"}
_MICROSECONDS = "6"


def public_routes(
    schema_of: Callable[[str, str], StoredSchema],
    election: Election,
    guard: Guard,
    error_files: ErrorFiles,
    body_urls: Callable[[], tuple[str, ...]],
) -> APIRouter:
    """Return the public routes. `schema_of(db, table)` raises NotFound. `body_urls` returns the addresses to
    which loads are redirected."""
    router = APIRouter()

    @router.get("/")
    async def root() -> Response:
        return json_answer(wire.ServerInfo(SERVICE, keeps_labels=True))

    @router.get("/health")
    async def health() -> Response:
        return json_answer({"status": "ok", "role": "stream-load", "master": election.leading})

    @router.get("/api/health")
    async def doris_health(request: Request) -> Response:
        guard.user(request)
        online = len(await run_in_threadpool(body_urls))
        return _data({"online_backend_num": online, "total_backend_num": online})

    @router.get("/api/backends")
    async def backends(request: Request) -> Response:
        guard.user(request)
        return _data({"backends": _backends(await run_in_threadpool(body_urls))})

    @router.get("/rest/v2/manager/node/frontends")
    async def frontends(request: Request) -> Response:
        guard.user(request)
        return _data(_frontends(election))

    @router.get("/api/{db}/{table}/_schema")
    async def schema(request: Request, db: str, table: str) -> Response:
        guard.user(request)
        try:
            schema_and_version = await run_in_threadpool(schema_of, db, table)
        except NotFound as error:
            return json_answer(wire.SchemaAnswer(str(error), code=1))
        return json_answer(wire.SchemaAnswer(data=table_schema(schema_and_version)))

    @router.get("/api/_load_error_log")
    def error_log(file: str = "") -> Response:
        path: Path = error_files.path(file)
        return FileResponse(path, media_type="text/plain; charset=utf-8")

    return router


def table_schema(schema: StoredSchema) -> wire.TableSchema:
    """Return the schema as connectors expect it, with Doris' names of types, models and functions."""
    sequence = None if schema.sequence is None else schema.by_id(schema.sequence).name
    return wire.TableSchema(
        keys_type=_KEYS_TYPES[schema.model],
        properties=tuple(_column(schema, column) for column in schema.columns),
        version=schema.version,
        sequence_column=sequence,
    )


def _column(schema: StoredSchema, column: SchemaColumn) -> wire.SchemaColumn:
    definition: StoredColumn = column.definition
    type_name = _SKETCHES.get(definition.type.strip().lower())
    loaded = definition.load_type
    precision, scale = "", ""
    if loaded.kind == "decimal":
        type_name = next(name for digits, name in _DECIMALS.items() if loaded.precision <= digits)
        precision, scale = str(loaded.precision), str(loaded.scale)
    elif type_name is None:
        type_name = _TYPES[loaded.kind]
        scale = _MICROSECONDS if loaded.kind == "timestamp" else ""
    value = column.id not in schema.keys
    return wire.SchemaColumn(
        name=column.name,
        type=type_name,
        aggregation_type=(definition.aggregate or "") if schema.model == "aggregate" and value else "",
        is_nullable="Yes" if definition.nullable else "No",
        precision=precision,
        scale=scale,
        default=definition.default,
    )


def _backends(body_urls: Iterable[str]) -> list[dict[str, object]]:
    addresses = [urlsplit(url) for url in body_urls]
    return [{"ip": address.hostname, "http_port": address.port, "is_alive": True} for address in addresses]


def _frontends(election: Election) -> dict[str, object]:
    address = urlsplit(election.here.url)
    columns = ["Name", "Host", "HttpPort", "QueryPort", "Role", "IsMaster", "Alive"]
    row = [
        "endpoint",
        address.hostname or "",
        str(address.port),
        "0",
        "FOLLOWER",
        str(election.leading).lower(),
        "true",
    ]
    return {"columnNames": columns, "rows": [row]}


def _data(data: object) -> Response:
    return json_answer({"msg": "success", "code": 0, "data": data, "count": 0})
