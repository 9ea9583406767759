"""The additions to Airflow's pages: the page, links of tasks, the routes of both, a check of the host.

Airflow mounts plugin applications without authentication: every route here requires the right to read the
task logs of the DAG that it is reached from, and the name of one DAG; those of the page, the right to read
the build DAG's logs. A process is shown under the DAG whose
task waits for it, and under no other. The cluster's token stays on the server.
"""

from __future__ import annotations

from typing import Any

import msgspec
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.sdk.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from rtolap.airflow.declared import consumer_key, defined_subscriptions, loader_of
from rtolap.airflow.hooks.hbase_connection import HBASE_DEFAULT
from rtolap.airflow.hooks.on_demand import open_replication
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.links import (
    URL_PREFIX,
    ConsumersLink,
    LoaderProcessesLink,
    PageLink,
    ProcessLogLink,
    SegmentsLink,
    WindowLink,
)
from rtolap.airflow.page.routes import router as page_router
from rtolap.airflow.page.script import react_apps
from rtolap.airflow.shared_processes import SharedWork, processes_of_loader, processes_of_subscription
from rtolap.airflow.windows import explain, named_window
from rtolap.base.errors import NotFound, RtolapError, Unauthorized, Unavailable
from rtolap.base.settings import Settings
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import LOG_BYTES_MAX, LastGeneration, WaitingTask, check_key
from rtolap.protocols.loader.messages import process_key

app = FastAPI(title="rtolap", docs_url=None, redoc_url=None, openapi_url=None)

_BAD_GATEWAY = 502
_ANY_DAG = "~"  # Airflow's routes take it for all DAGs that the caller may see


def one_dag(dag_id: str) -> None:
    """Raise NotFound for a name that several DAGs share: the right to it would be the right to any of
    them."""
    if dag_id == _ANY_DAG:
        raise NotFound("there is no such DAG", expected="the name of one DAG", found=dag_id)


_READER = [Depends(one_dag), Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))]


@app.exception_handler(RtolapError)
async def failed(_request: Request, error: Exception) -> JSONResponse:
    """Answer an error of a service. One that does not take the token is not the browser's session: no 401."""
    assert isinstance(error, RtolapError)
    status = _BAD_GATEWAY if isinstance(error, Unauthorized) else error.http_status
    return JSONResponse(error.to_dict(), status_code=status)


@app.get("/dags/{dag_id}/processes/{key}/log", dependencies=_READER)
def process_log(dag_id: str, key: str) -> PlainTextResponse:
    """Return the log of a process that a task of this DAG waits for, or the last one that did.

    The process is looked at before and after: another DAG may take its key over meanwhile.
    """
    with RtolapHook().agent() as agent:
        generation = _last(agent, dag_id, check_key(key)).generation
        text = agent.log(key, LOG_BYTES_MAX)
        if _last(agent, dag_id, key).generation != generation:
            raise Unavailable(f"process {key} has been replaced", action="look again")
        return PlainTextResponse(text)


def _last(agent: AgentClient, dag_id: str, key: str) -> LastGeneration:
    """Return the last process of that key, whose task is of this DAG. Raises NotFound for any other."""
    last = agent.last(key)
    task = WaitingTask.of(last.labels)
    if task is None or task.dag_id != dag_id:
        raise NotFound(f"DAG {dag_id} has no process {key}", expected="a process of a task of this DAG")
    return last


@app.get("/dags/{dag_id}/loaders/{loader}/processes", dependencies=_READER)
def loader_processes(dag_id: str, loader: str) -> dict[str, Any]:
    """Return the processes of a loader whose task is of this DAG: share, owner, state, lag and rate."""
    hook, key = RtolapHook(), check_key(process_key(loader))
    with hook.agent() as agent:
        running = loader_of(_last(agent, dag_id, key))
    if running is None:
        raise NotFound(f"process {key} is no loader", expected="a process of a `LoaderOperator`")
    with hook.loader(running.port) as client:
        status = client.status()
    if status.job != loader:  # its port is another's by now
        raise Unavailable(f"loader {loader} does not answer", found=f"loader {status.job} at its port")
    return _plain(processes_of_loader(status))


@app.get("/dags/{dag_id}/subscriptions/{subscription}/consumers", dependencies=_READER)
def consumers(dag_id: str, subscription: str) -> dict[str, Any]:
    """Return the consumers of a subscription whose task is of this DAG: share, owner, state, waiting events
    and rate."""
    with RtolapHook().agent() as agent:
        _last(agent, dag_id, check_key(consumer_key(subscription)))
    defined = defined_subscriptions(Settings().include_dir).get(subscription)
    with open_replication(HBASE_DEFAULT) as replication:
        return _plain(processes_of_subscription(replication.consumers(subscription, defined)))


def _plain(work: SharedWork) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(work)
    return plain


@app.get("/dags/{dag_id}/cubes/{cube}/segments", dependencies=_READER)
def segments(dag_id: str, cube: str) -> list[dict[str, Any]]:
    with RtolapHook().coordinator() as coordinator:
        return [segment.model_dump(mode="json") for segment in coordinator.segments(cube)]


@app.get("/dags/{dag_id}/cubes/{cube}/segments/{segment}", dependencies=_READER)
def one_segment(dag_id: str, cube: str, segment: str) -> dict[str, Any]:
    with RtolapHook().coordinator() as coordinator:
        return coordinator.segment(cube, segment).model_dump(mode="json")


@app.get("/dags/{dag_id}/window", dependencies=_READER)
def window(
    dag_id: str,
    application: str | None = None,
    window_end: str | None = None,
    cube: str | None = None,
    segment: str | None = None,
    lateness_ms: int = 0,
) -> dict[str, Any]:
    with RtolapHook().coordinator() as coordinator:
        named = named_window(
            coordinator,
            application=application,
            window_end=window_end,
            cube=cube,
            segment=segment,
            lateness_ms=lateness_ms,
        )
        return explain(coordinator, named).model_dump(mode="json")


app.include_router(page_router)


def host_checks(hosts: str) -> list[dict[str, Any]]:
    """Return a host check for comma-separated names, as `AirflowPlugin.fastapi_root_middlewares` expects
    it.
    """
    names = [name.strip() for name in hosts.split(",") if name.strip()]
    if not names:
        return []
    check = {"allowed_hosts": names, "www_redirect": False}
    return [{"middleware": TrustedHostMiddleware, "kwargs": check, "name": "rtolap hosts"}]


class RtolapPlugin(AirflowPlugin):
    name = "rtolap"
    operator_extra_links: list[Any] = [  # noqa: RUF012 - as Airflow's class declares it
        PageLink(),
        ProcessLogLink(),
        LoaderProcessesLink(),
        ConsumersLink(),
        SegmentsLink(),
        WindowLink(),
    ]
    fastapi_apps: list[Any] = [{"app": app, "url_prefix": URL_PREFIX, "name": "rtolap"}]  # noqa: RUF012
    react_apps: list[Any] = react_apps(URL_PREFIX)
    fastapi_root_middlewares: list[Any] = host_checks(Settings().airflow_hosts)
