"""The routes of the page, each for who may read the build DAG's logs. They read; changes are runs of DAGs."""

from __future__ import annotations

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, Response
from fastapi.responses import FileResponse

from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.page.answers import ANSWER_S_MAX, json_answer
from rtolap.airflow.page.ask_routes import router as ask_router
from rtolap.airflow.page.capture.routes import router as capture_router
from rtolap.airflow.page.cube_routes import router as cube_router
from rtolap.airflow.page.cubes import cube_page, cubes_of
from rtolap.airflow.page.fleet_routes import router as fleet_router
from rtolap.airflow.page.messages import Rights
from rtolap.airflow.page.overview import overview_of
from rtolap.airflow.page.receivers import receivers_of
from rtolap.airflow.page.rights import may_answer, may_ask, may_start, reader
from rtolap.airflow.page.script import SCRIPT_PATH, SCRIPT_ROUTE
from rtolap.airflow.page.stored.routes import router as stored_router
from rtolap.base.clock import SystemClock
from rtolap.base.errors import NotFound, RtolapError
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import ClusterInfo, QueueEntry

router = APIRouter(prefix="/page", dependencies=[Depends(reader)])
router.include_router(ask_router)
router.include_router(capture_router)
router.include_router(cube_router)
router.include_router(fleet_router)
router.include_router(stored_router)

_clock = SystemClock()


@router.get("/overview")
def overview() -> Response:
    hook = RtolapHook()
    with _coordinator(hook) as coordinator:
        cluster = coordinator.cluster()
        queue = _queue(coordinator, cluster)
    processes, error = _processes(hook)
    return json_answer(overview_of(cluster, queue, processes, now_ms=_clock.now_ms(), agent_error=error))


@router.get("/cubes")
def cubes() -> Response:
    with _coordinator(RtolapHook()) as coordinator:
        cluster = coordinator.cluster()
        queue = _queue(coordinator, cluster)
    return json_answer(cubes_of(cluster, queue, now_ms=_clock.now_ms()))


@router.get("/cubes/{cube}")
def one_cube(cube: str) -> Response:
    with _coordinator(RtolapHook()) as coordinator:
        cluster = coordinator.cluster(cube)
        (status,) = cluster.cubes
        page = cube_page(
            cluster,
            status,
            coordinator.watermark(cube),
            coordinator.segment_columns(cube),
            coordinator.queue(status.name).entries,
            now_ms=_clock.now_ms(),
        )
    return json_answer(page)


@router.get("/receivers")
def receivers() -> Response:
    with _coordinator(RtolapHook()) as coordinator:
        cluster = coordinator.cluster()
    return json_answer(receivers_of(cluster, now_ms=_clock.now_ms()))


@router.get("/rights")
def rights(user: GetUserDep) -> Response:
    return json_answer(Rights(str(user.get_name()), may_start(user), may_ask(user), may_answer(user)))


@router.get(f"/{SCRIPT_ROUTE}/{{version}}.js")
def script(version: str) -> FileResponse:
    """Answer the script. `version` only keeps browsers from an older one."""
    if not SCRIPT_PATH.is_file():
        raise NotFound("the page's script was not built", action="run `make setup`, with node on the PATH")
    kept = {"cache-control": "private, max-age=31536000, immutable"}
    return FileResponse(SCRIPT_PATH, media_type="text/javascript", headers=kept)


def _coordinator(hook: RtolapHook) -> CoordinatorClient:
    return hook.coordinator(timeout_s=ANSWER_S_MAX, retry_s=0.0)


def _queue(coordinator: CoordinatorClient, cluster: ClusterInfo) -> tuple[QueueEntry, ...]:
    """Return the queue of builds. The coordinator is not asked where no cube has a segment in it."""
    waits = any(cube.segments.get("REMOTE_PERSISTED") for cube in cluster.cubes)
    return coordinator.queue().entries if waits else ()


def _processes(hook: RtolapHook) -> tuple[tuple[ProcessStatus, ...], str]:
    """Return the agent's processes, or why they are missing: the rest of the page stands without them."""
    try:
        with hook.agent() as agent:
            return agent.processes(), ""
    except RtolapError as error:
        return (), str(error)
