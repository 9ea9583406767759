"""The catalogue over REST; see `protocols.stored_tables`.

The app that mounts it checks the bearer token and turns errors into answers: NotLeader into a redirect to the
master.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from rtolap.base.decoding import convert, decode_json
from rtolap.base.errors import DefinitionError
from rtolap.base.undecodable import UNDECODABLE
from rtolap.protocols.stored_tables.messages import (
    API,
    AddPartition,
    ChangeColumns,
    CreateDatabase,
    CreateTable,
    LoadedVersionsRequest,
    ReadViewRequest,
    TableName,
    TransactionInfo,
)
from rtolap.stored.frontend.catalogue.read_views import ReadViews
from rtolap.stored.frontend.catalogue.tables import Catalogue
from rtolap.stored.frontend.catalogue.tablet_reports import TabletReports
from rtolap.stored.frontend.http.messages import RequestId, json_answer
from rtolap.stored.frontend.transactions.requests import TransactionManager
from rtolap.stored.metastore.records import Transaction

T = TypeVar("T")


def tables_router(
    catalogue: Catalogue, views: ReadViews, manager: TransactionManager, reports: TabletReports
) -> APIRouter:
    router = APIRouter(prefix=API)

    @router.get("/stored-tables")
    def all_tables() -> Response:
        return json_answer(catalogue.tables())

    @router.post("/stored-tables")
    async def create(request: Request, request_id: RequestId) -> Response:
        body = await _body(request, CreateTable)
        created = await run_in_threadpool(
            catalogue.create_table,
            body.definition,
            if_not_exists=body.if_not_exists,
            request_id=request_id,
        )
        return json_answer(created)

    @router.get("/stored-tables/{db}/{table}")
    def one_table(db: str, table: str) -> Response:
        return json_answer(catalogue.table(db, table).info)

    @router.delete("/stored-tables/{db}/{table}")
    def drop(db: str, table: str, request_id: RequestId) -> Response:
        catalogue.drop_table(db, table, request_id=request_id)
        return json_answer({})

    @router.post("/stored-tables/{db}/{table}/columns")
    async def change(db: str, table: str, request: Request, request_id: RequestId) -> Response:
        body = await _body(request, ChangeColumns)
        changed = await run_in_threadpool(
            catalogue.change_columns, db, table, body.changes, request_id=request_id
        )
        return json_answer(changed)

    @router.post("/stored-tables/{db}/{table}/truncate")
    def truncate(db: str, table: str, request_id: RequestId) -> Response:
        return json_answer(catalogue.truncate(db, table, request_id=request_id))

    @router.get("/stored-tables/{db}/{table}/partitions")
    def partitions(db: str, table: str) -> Response:
        return json_answer(views.partitions(TableName(db, table)))

    @router.get("/stored-tables/{db}/{table}/tablets")
    def tablets(db: str, table: str) -> Response:
        return json_answer(reports.of_table(TableName(db, table)))

    @router.post("/stored-tables/{db}/{table}/partitions")
    async def add_partition(db: str, table: str, request: Request, request_id: RequestId) -> Response:
        body = await _body(request, AddPartition)
        changed = await run_in_threadpool(catalogue.add_partition, db, table, body, request_id=request_id)
        return json_answer(changed)

    @router.delete("/stored-tables/{db}/{table}/partitions/{partition}")
    def drop_partition(
        db: str, table: str, partition: str, request_id: RequestId, if_exists: bool = False
    ) -> Response:
        changed = catalogue.drop_partition(db, table, partition, if_exists=if_exists, request_id=request_id)
        return json_answer(changed)

    @router.get("/stored-databases")
    def databases() -> Response:
        return json_answer(catalogue.databases())

    @router.post("/stored-databases")
    async def create_database(request: Request, request_id: RequestId) -> Response:
        body = await _body(request, CreateDatabase)
        await run_in_threadpool(
            catalogue.create_database, body.name, if_not_exists=body.if_not_exists, request_id=request_id
        )
        return json_answer({})

    @router.delete("/stored-databases/{db}")
    def drop_database(db: str, request_id: RequestId) -> Response:
        catalogue.drop_database(db, request_id=request_id)
        return json_answer({})

    @router.post("/read-views")
    async def read_view(request: Request) -> Response:
        body = await _body(request, ReadViewRequest)
        return json_answer(await run_in_threadpool(views.read_view, body.tables))

    @router.post("/stored-tables/{db}/{table}/loaded-versions")
    async def loaded_versions(db: str, table: str, request: Request) -> Response:
        body = await _body(request, LoadedVersionsRequest)
        return json_answer(await run_in_threadpool(views.loaded_versions, TableName(db, table), body))

    @router.get("/transactions/{db}/{label}")
    def transaction(db: str, label: str) -> Response:
        return json_answer(_transaction(manager.by_label(db, label)))

    @router.get("/transactions/{db}")
    def transactions(db: str, like: str) -> Response:
        return json_answer(tuple(_transaction(each) for each in manager.like(db, like)))

    return router


def _transaction(transaction: Transaction) -> TransactionInfo:
    return convert(transaction, TransactionInfo, from_attributes=True)


async def _body(request: Request, kind: type[T]) -> T:
    """Return the body. Raises DefinitionError for one of another kind. The guard bounds its length."""
    content = await request.body()
    try:
        return decode_json(content, kind)
    except msgspec.ValidationError as error:
        raise DefinitionError("the request cannot be read", found=str(error)) from error
    except UNDECODABLE as error:
        raise DefinitionError("the request is no JSON", found=str(error)) from error
