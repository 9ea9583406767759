"""An Iceberg REST catalog for tests: the protocol over HTTP, in front of pyiceberg's own SQL catalog.

It is no server of any vendor: none can be had from package registries. Requirements of commits are checked by
pyiceberg's own code, on the server's side of the wire, as the protocol demands.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, StagedTable
from rtolap.stack.ports import free_port

from tests.support.waiting import until

CLIENT, SECRET, TOKEN = "publisher", "s3cret-of-a-client", "a-bearer-token"
_STATUS: dict[type[Exception], int] = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class RestCatalogServer:
    """The routes, and what goes wrong with them.

    Attributes:
        down: every request is answered with 503.
        lost_answers: so many commits are done and answered with 502.
        commits: number of commits that were done.
    """

    def __init__(self, folder: Path) -> None:
        self.down = False
        self.lost_answers = 0
        self.commits = 0
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        warehouse = (folder / "warehouse").as_uri()
        uri = f"sqlite:///{folder / 'rest.db'}"
        self._catalog = SqlCatalog("server", uri=uri, warehouse=warehouse)
        self._lock = threading.Lock()
        self.app = FastAPI()
        self._routes()

    def close(self) -> None:
        self._catalog.engine.dispose()

    def _routes(self) -> None:
        app = self.app

        @app.middleware("http")
        async def guard(request: Request, call_next: Any) -> Response:
            if self.down:
                return _error(503, "ServiceUnavailable", "the catalog is being repaired")
            open_path = request.url.path == "/v1/oauth/tokens"
            if not open_path and request.headers.get("authorization") != f"Bearer {TOKEN}":
                return _error(401, "NotAuthorizedException", "no such token")
            try:
                answer: Response = await call_next(request)
            except tuple(_STATUS) as error:
                return _error(_STATUS[type(error)], type(error).__name__, str(error))
            return answer

        @app.post("/v1/oauth/tokens")
        async def token(request: Request) -> Response:
            form = (await request.body()).decode()
            if f"client_secret={SECRET}" not in form or f"client_id={CLIENT}" not in form:
                return JSONResponse({"error": "invalid_client"}, 401)
            return JSONResponse({"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600})

        @app.get("/v1/config")
        def config() -> dict[str, Any]:
            return {"defaults": {}, "overrides": {}}

        @app.post("/v1/namespaces")
        async def create_namespace(request: Request) -> dict[str, Any]:
            body = await request.json()
            self._catalog.create_namespace(tuple(body["namespace"]))
            return {"namespace": body["namespace"], "properties": {}}

        @app.post("/v1/namespaces/{namespace}/tables")
        async def create_table(namespace: str, request: Request) -> Response:
            wanted = CreateTableRequest.model_validate({"location": None, **await request.json()})
            identifier = (namespace, wanted.name)
            with self._lock:
                if self._catalog.table_exists(identifier):
                    raise TableAlreadyExistsError(f"{namespace}.{wanted.name} exists")
                arguments: dict[str, Any] = {
                    "schema": wanted.table_schema,
                    "location": wanted.location,
                    "properties": wanted.properties,
                }
                if wanted.stage_create:
                    staged = self._catalog.create_table_transaction(identifier, **arguments)._table
                    return _table(staged.metadata.model_dump_json(), None)
                made = self._catalog.create_table(identifier, **arguments)
                return _table(made.metadata.model_dump_json(), made.metadata_location)

        @app.get("/v1/namespaces/{namespace}/tables/{table}")
        def load_table(namespace: str, table: str) -> Response:
            with self._lock:
                found = self._catalog.load_table((namespace, table))
            return _table(found.metadata.model_dump_json(), found.metadata_location)

        @app.delete("/v1/namespaces/{namespace}/tables/{table}")
        def drop_table(namespace: str, table: str) -> Response:
            with self._lock:
                self._catalog.drop_table((namespace, table))
            return Response(status_code=204)

        @app.post("/v1/namespaces/{namespace}/tables/{table}")
        async def commit(namespace: str, table: str, request: Request) -> Response:
            wanted = CommitTableRequest.model_validate_json(await request.body())
            identifier = (namespace, table)
            with self._lock:
                if self._catalog.table_exists(identifier):
                    changed = self._catalog.load_table(identifier)
                else:
                    changed = StagedTable(identifier, None, "", None, self._catalog)  # type: ignore[arg-type]
                done = self._catalog.commit_table(changed, wanted.requirements, wanted.updates)
                self.commits += 1
            if self.lost_answers:
                self.lost_answers -= 1
                return _error(502, "BadGateway", "the answer of the server was lost")
            return _table(done.metadata.model_dump_json(), done.metadata_location)


@contextmanager
def rest_catalog(folder: Path) -> Iterator[RestCatalogServer]:
    """Serve a catalog on a port of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    served = RestCatalogServer(folder)
    config = uvicorn.Config(served.app, host="127.0.0.1", port=served.port, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="iceberg-rest", daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "the REST catalog answers")
        yield served
    finally:
        server.should_exit = True
        thread.join()
        served.close()


def _table(metadata: str, location: str | None) -> Response:
    where = "null" if location is None else f'"{location}"'
    return Response(f'{{"metadata-location":{where},"metadata":{metadata}}}', media_type="application/json")


def _error(status: int, kind: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status)
