"""Routes of what a cube's page shows beside the cube: its builds, the watermark of its application, and the
windows that wait.

Each is asked by itself, so that an agent or an application's owner that is away hides no segment.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response

from rtolap.airflow.hooks.on_demand import open_kafka
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.page.answers import ANSWER_S_MAX, json_answer
from rtolap.airflow.page.builds import BuildProcess, CubeBuilds, build_process
from rtolap.airflow.page.cuboids import CuboidsPage, cuboid_rows
from rtolap.airflow.page.refused import RECORDS_MAX, RefusedRecords, offsets_before, refused_records
from rtolap.airflow.page.rights import asker
from rtolap.airflow.page.watermark import HOSTS_MAX, CubeWatermarks, watermarks_of
from rtolap.airflow.page.windows import CubeWindows, windows_of
from rtolap.base.clock import SystemClock
from rtolap.base.decoding import convert
from rtolap.base.errors import NotFound, RtolapError
from rtolap.model.cube import Cube
from rtolap.model.table import Table
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import check_key
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.merge_jobs import process_key as merge_key

router = APIRouter()

_LOG_BYTES_MAX = 1 << 18  # lines of progress stand at the end, between those of Spark

_clock = SystemClock()


@router.get("/cubes/{cube}/builds")
def builds(cube: str) -> Response:
    """Answer the Spark processes of a cube, as the agent knows them."""
    with RtolapHook().agent() as agent:
        rows = [_process(agent, "build", f"build.{cube}"), _process(agent, "merge", merge_key(cube))]
    return json_answer(CubeBuilds(_clock.now_ms(), tuple(row for row in rows if row is not None)))


def _process(agent: AgentClient, kind: str, key: str) -> BuildProcess | None:
    last = agent.last(check_key(key))
    try:
        process, log = agent.get(key), agent.log(key, _LOG_BYTES_MAX)
    except NotFound:  # there was none, or its result has been read
        return build_process(kind, key, None, last, "")
    return build_process(kind, key, process, last, log)


@router.get("/cubes/{cube}/segments/{segment}/cuboids")
def cuboids(cube: str, segment: str) -> Response:
    """Answer the cuboids of a segment in history."""
    with RtolapHook().coordinator(timeout_s=ANSWER_S_MAX, retry_s=0.0) as coordinator:
        found = coordinator.segment_cuboids(cube, segment)
    return json_answer(CuboidsPage(_clock.now_ms(), found.segment, found.version, cuboid_rows(found)))


@router.get("/cubes/{cube}/watermark")
def watermark(cube: str) -> Response:
    """Answer the watermark of the application by which a cube closes, and the hosts that hold it back."""
    now_ms = _clock.now_ms()
    with RtolapHook().coordinator(timeout_s=ANSWER_S_MAX, retry_s=0.0) as coordinator:
        closes_by = convert(coordinator.cube(cube).definition, Cube).watermark
        if closes_by is None:
            return json_answer(CubeWatermarks(now_ms=now_ms))
        try:
            answer = _watermarks(coordinator, closes_by.application, now_ms)
        except RtolapError as error:
            answer = CubeWatermarks(now_ms=now_ms, application=closes_by.application, error=str(error))
    return json_answer(answer)


@router.get("/cubes/{cube}/windows")
def windows(cube: str) -> Response:
    """Answer the windows of a cube that have ended and may not close, with what is missing."""
    now_ms = _clock.now_ms()
    with RtolapHook().coordinator(timeout_s=ANSWER_S_MAX, retry_s=0.0) as coordinator:
        definition = convert(coordinator.cube(cube).definition, Cube)
        try:
            answer = windows_of(coordinator, definition, now_ms=now_ms)
        except RtolapError as error:
            application = "" if definition.watermark is None else definition.watermark.application
            answer = CubeWindows(now_ms=now_ms, application=application, error=str(error))
    return json_answer(answer)


@router.get("/cubes/{cube}/refused", dependencies=[Depends(asker)])
def refused(cube: str, before: str = "") -> Response:
    """Answer records that the cube's table has refused, older ones than an earlier answer where `before` is
    its `older`."""
    offsets, now_ms = offsets_before(before), _clock.now_ms()
    with RtolapHook().coordinator(timeout_s=ANSWER_S_MAX, retry_s=0.0) as coordinator:
        name = convert(coordinator.cube(cube).definition, Cube).table
        table = convert(coordinator.table(name), Table)
    topic = table.dead_letter_topic
    try:
        found = open_kafka(table.kafka_cluster).older_dead_letters(topic, offsets, RECORDS_MAX)
    except NotFound:  # it is made with the first letter
        return json_answer(RefusedRecords(now_ms=now_ms, topic=topic))
    return json_answer(refused_records(topic, table.topic, found, now_ms=now_ms))


def _watermarks(coordinator: CoordinatorClient, application: str, now_ms: int) -> CubeWatermarks:
    info, marks = coordinator.application(application), coordinator.application_watermarks(application)
    sources = [coordinator.application_hosts(application, level, HOSTS_MAX) for level in sorted(info.hosts)]
    return watermarks_of(info, marks, sources, now_ms=now_ms)
