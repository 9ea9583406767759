"""The HTTP applications of all services, in this process: for requests of each of their pages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
from fastapi import FastAPI
from rtolap.agent.commands import Commands
from rtolap.agent.host import Host
from rtolap.agent.server import create_app
from rtolap.agent.supervisor import Supervisor
from rtolap.base.metrics import Metrics
from rtolap.base.users import Users, password_hash
from rtolap.query.http import server as query_http
from rtolap.servers.limits import HttpLimits
from rtolap.stored.loader import http as loader_http
from starlette.routing import Route

from tests.support.cubes import coordinator_harness
from tests.support.stored import load_endpoint

_TOKEN = "a token"
USERS = (load_endpoint.ASKING_USER, load_endpoint.USER, load_endpoint.DEFINING_USER)
PASSWORD = load_endpoint.PASSWORD


class HttpApp(NamedTuple):
    """Its users are `USERS`, with `PASSWORD`, where it has any."""

    app: FastAPI
    token: str

    def pages(self) -> list[str]:
        """Return method and path of each route."""
        found = []
        for route in self.app.routes:
            assert isinstance(route, Route), f"{route} is another kind of route: ask it too"
            found += [f"{method} {route.path}" for method in sorted((route.methods or set()) - {"HEAD"})]
        return found

    def asked(self, headers: dict[str, str], auth: tuple[str, str] | None) -> list[tuple[str, int]]:
        """Return each page, and the status of its answer. What comes behind the credentials may fail: 500."""
        return asyncio.run(self._asked(headers, auth))

    async def _asked(self, headers: dict[str, str], auth: tuple[str, str] | None) -> list[tuple[str, int]]:
        answers = []
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://server", headers=headers, auth=auth, trust_env=False
        ) as client:
            for page in self.pages():
                method, _, path = page.partition(" ")
                answer = await client.request(method, re.sub(r"\{\w+\}", "x", path), json={"sql": "select 1"})
                answers.append((page, answer.status_code))
        return answers


@contextmanager
def http_apps(folder: Path) -> Iterator[dict[str, HttpApp]]:
    """Yield the applications by the service's name."""
    supervisor = Supervisor(folder / "agent", Commands(Host(folder, folder, "file:///nowhere"), {}))
    cluster = coordinator_harness.Cluster(folder / "store")
    users = Users(
        {name: bytes.fromhex(password_hash(PASSWORD)) for name in USERS},
        {name: load_endpoint.RIGHTS[name] for name in USERS},
    )
    service: Any = SimpleNamespace(metrics=SimpleNamespace(registry=Metrics("query")))
    try:
        with load_endpoint.load_endpoint(folder / "endpoint") as endpoint:
            yield {
                "coordinator": HttpApp(cluster.app, coordinator_harness.TOKEN),
                "agent": HttpApp(create_app(supervisor, _TOKEN, lambda: None, HttpLimits()), _TOKEN),
                "query": HttpApp(query_http.make_app(service, users, _TOKEN, HttpLimits()), _TOKEN),
                "loader": HttpApp(_loader(), _TOKEN),
                "stream-load": HttpApp(endpoint.assembly.app, load_endpoint.TOKEN),
            }
    finally:
        cluster.close()
        supervisor.close()


def _loader() -> FastAPI:
    letters: Any = SimpleNamespace(list=_nothing, replay=_nothing, drop=_nothing)
    return loader_http.make_app(
        "job", _TOKEN, Metrics("loader"), _nothing, _nothing, HttpLimits(), letters=letters
    )


def _nothing(*_: object) -> Any:
    raise AssertionError("nothing stands behind this page")
