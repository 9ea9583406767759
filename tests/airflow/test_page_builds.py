"""A cube's builds as the agent runs them, its application's watermark, and links from tasks to the page."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.links import PAGE_PATH, PageLink
from rtolap.airflow.operators.build import SparkBuildOperator
from rtolap.airflow.operators.build_batch import PROGRESS_MARK, Build, labels
from rtolap.airflow.operators.coordinator import PurgeOperator
from rtolap.airflow.operators.fleet import CancelPlanOperator
from rtolap.airflow.operators.services import LoaderOperator, ReceiverOperator, SubscriptionOperator
from rtolap.airflow.page.builds import CubeBuilds, Progress, SparkStages, progress_in
from rtolap.airflow.page.rights import reader
from rtolap.airflow.page.script import PAGE_NAME
from rtolap.airflow.page.watermark import CubeWatermarks
from rtolap.airflow.plugin import RtolapPlugin, app
from rtolap.airflow.sensors.replication import ReplicationWaitSensor
from rtolap.base.errors import NotFound, Unavailable
from rtolap.model.application import CubeWatermark
from rtolap.model.cube import Cube
from rtolap.protocols.agent.messages import LastGeneration, ProcessStatus, WaitingTask
from rtolap.protocols.coordinator.messages import CubeStatus
from rtolap.protocols.watermark.messages import (
    ApplicationInfo,
    ApplicationWatermarks,
    HostBehind,
    HostsInfo,
    LevelWatermark,
)

TASK = WaitingTask("rtolap_segment_build", "a run", "build", 1)
BUILDS = [Build("flights", f"s{number}", 1, f"b{number}") for number in range(3)]
LABELS = {**labels(BUILDS), **TASK.label()}
MARKUP = "<b>failed</b>"


def line(event: str, build: str = "b0", **fields: Any) -> str:
    return f"{PROGRESS_MARK}{json.dumps({'event': event, 'build_id': build, **fields})}"


STEPS = [
    "26/11/28 INFO SparkContext: Running Spark",
    *(line("verified", f"b{number}", files=1, events=5) for number in range(3)),
    line("read", segments=3, rows=15),
    line("grouped", segments=3, rows=9),
    line("cuboid", name="a", bytes=3, done=1, total=4),
    line("cuboid", name="b", bytes=3, done=2, total=4),
]


class Agent:
    """Runs a build of `flights`, or has run one whose result was read."""

    def __init__(self, *, log: str = "\n".join(STEPS), read: bool = False, state: str = "RUNNING") -> None:
        self._log, self._read, self._state = log, read, state

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        """Nothing is open."""

    def last(self, key: str) -> LastGeneration:
        return LastGeneration(3, LABELS) if key == "build.flights" else LastGeneration(0)

    def get(self, key: str) -> ProcessStatus:
        if self._read or key != "build.flights":
            raise NotFound(f"no process {key} on this host")
        return ProcessStatus(key=key, generation=3, state=self._state, labels=LABELS, started_ms=7)

    def log(self, key: str, bytes_max: int) -> str:
        return self._log[-bytes_max:]


@pytest.fixture(autouse=True)
def _signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(app.dependency_overrides, reader, lambda: None)


def builds(monkeypatch: pytest.MonkeyPatch, agent: Agent, cube: str = "flights") -> CubeBuilds:
    monkeypatch.setattr(RtolapHook, "agent", lambda _hook: agent)
    answer = TestClient(app).get(f"/page/cubes/{cube}/builds")
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=CubeBuilds)


def test_a_build_that_runs_says_how_many_cuboids_are_written_and_which_task_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (process,) = builds(monkeypatch, Agent()).processes
    assert (process.kind, process.state, process.started_ms) == ("build", "RUNNING", 7)
    assert (process.step, process.cuboids_done, process.cuboids, process.rows) == (
        "cuboids are written",
        2,
        4,
        9,
    )
    assert [(each.segment, each.state) for each in process.segments] == [
        ("s0", "waits"),
        ("s1", "waits"),
        ("s2", "waits"),
    ]
    assert process.task is not None
    assert (process.task.dag_id, process.task.key) == (TASK.dag_id, "build.flights")


def test_segments_that_are_built_or_have_failed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    log = "\n".join([*STEPS, line("built", "b0"), line("failed", "b1", error=MARKUP)])
    (process,) = builds(monkeypatch, Agent(log=log)).processes
    assert [(each.segment, each.state, each.error) for each in process.segments] == [
        ("s0", "built", ""),
        ("s1", "failed", MARKUP),
        ("s2", "waits", ""),
    ]
    (process,) = builds(monkeypatch, Agent(log="", state="SUCCEEDED")).processes
    assert {each.state for each in process.segments} == {"built"}


def test_a_build_whose_result_was_read_still_leads_to_its_task_and_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (process,) = builds(monkeypatch, Agent(read=True)).processes
    assert (process.state, process.segments) == ("", ())
    assert process.task is not None
    assert process.task.task_id == "build"


def test_a_cube_that_was_never_built_has_no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    assert builds(monkeypatch, Agent(), "clicks").processes == ()


def test_an_agent_that_is_away_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_hook: RtolapHook) -> Agent:
        raise Unavailable("no agent answers")

    monkeypatch.setattr(RtolapHook, "agent", nobody)
    answer = TestClient(app).get("/page/cubes/flights/builds")
    assert (answer.status_code, answer.json()["message"]) == (503, "no agent answers")


def test_the_next_batch_begins_anew_and_so_does_one_that_is_built_segment_by_segment() -> None:
    text = "\n".join([*STEPS, line("built")])
    assert progress_in(text) == Progress("built", 2, 4, 9)
    assert progress_in("\n".join([text, line("verified", "b9")])).cuboids is None
    assert progress_in("\n".join([*STEPS, line("alone", segments=3)])).cuboids_done is None


def test_stages_of_spark_are_those_that_its_driver_has_counted_last() -> None:
    first, last = (
        {"stages": 4, "stages_done": n, "tasks": 40, "tasks_done": 9 * n, "tasks_failed": 1} for n in (1, 3)
    )
    text = "\n".join([*STEPS, line("spark", **first), line("cuboid", done=3, total=4), line("spark", **last)])
    found = progress_in(text)
    assert (found.cuboids_done, found.stages) == (3, SparkStages(**last))
    assert progress_in(f"{text}\n{line('spark', stages=5)}") == found, "a line without the rest says nothing"
    assert progress_in("\n".join(STEPS)).stages is None


@given(
    st.text(),
    st.lists(st.sampled_from([*STEPS, "", PROGRESS_MARK, f"{PROGRESS_MARK}[1]", f"{PROGRESS_MARK}{{"])),
)
def test_any_end_of_any_log_can_be_read(start: str, lines: list[str]) -> None:
    text = "\n".join([start, *lines])
    for cut in range(0, len(text), 7):
        found = progress_in(text[cut:])
        assert found.cuboids is None or found.cuboids == 4


# -- watermark -------------------------------------------------------------------------------------------

APPLICATION = {
    "name": "shop",
    "sources": [{"name": "logs", "hosts": {"registered": {}}}],
    "sinks": [{"name": "cube"}],
    "edges": [["logs", "cube"]],
}


class Coordinator:
    def __init__(self, application: str, error: str = "") -> None:
        self._application, self._error = application, error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        """Nothing is open."""

    def cube(self, name: str) -> CubeStatus:
        mark = CubeWatermark(self._application, "logs", "cube") if self._application else None
        definition = msgspec.to_builtins(Cube(name=name, table="t", dimensions=(), watermark=mark))
        return CubeStatus(name=name, definition=definition, enabled=True, paused=False)

    def application(self, name: str) -> ApplicationInfo:
        if self._error:
            raise Unavailable(self._error)
        named = {"logs": 9}
        return ApplicationInfo(
            name=name, definition={}, epoch=1, clients=1, units=0, hosts=named, problems=("x",)
        )

    def application_watermarks(self, name: str) -> ApplicationWatermarks:
        levels = {
            "logs": LevelWatermark(output_ms=20, published_at_ms=30),
            "cube": LevelWatermark(input_ms=20, published_at_ms=30),
        }
        return ApplicationWatermarks(application=name, epoch=1, now_ms=40, levels=levels, global_ms=20)

    def application_hosts(self, name: str, level: str, limit: int) -> HostsInfo:
        behind = (
            HostBehind(host="fast", latest_ms=50, behind_ms=5, share_ppm=0),
            HostBehind(
                host=MARKUP, latest_ms=20, behind_ms=35, share_ppm=10, holds=True, hint="it is silent"
            ),
        )
        return HostsInfo(
            application=name, level=level, list_epoch=1, counting=9, unseen=1, holding=1, behind=behind
        )


def watermark(monkeypatch: pytest.MonkeyPatch, coordinator: Coordinator) -> CubeWatermarks:
    monkeypatch.setattr(RtolapHook, "coordinator", lambda _hook, **_: coordinator)
    answer = TestClient(app).get("/page/cubes/flights/watermark")
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=CubeWatermarks)


def test_hosts_that_hold_the_watermark_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watermark(monkeypatch, Coordinator("shop"))
    assert (seen.application, seen.global_ms, seen.problems) == ("shop", 20, ("x",))
    assert [(each.host, each.holds, each.behind_ms, each.hint) for each in seen.hosts] == [
        (MARKUP, True, 35, "it is silent"),
        ("fast", False, 5, ""),
    ]
    assert [(each.level, each.counting, each.holding, each.unseen) for each in seen.sources] == [
        ("logs", 9, 1, 1)
    ]
    assert [(each.level, each.output_ms) for each in seen.levels] == [("cube", None), ("logs", 20)]


def test_a_cube_without_an_application_has_no_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watermark(monkeypatch, Coordinator("")).application == ""


def test_an_owner_that_is_away_is_said_with_the_name_of_the_application(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = watermark(monkeypatch, Coordinator("shop", "no coordinator owns it"))
    assert (seen.application, seen.error, seen.hosts) == ("shop", "no coordinator owns it", ())


# -- links -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (SparkBuildOperator(task_id="t", cube="a&b"), {"view": ["cubes"], "cube": ["a&b"]}),
        (PurgeOperator(task_id="t", cube="c", before=1), {"view": ["cubes"], "cube": ["c"]}),
        (SubscriptionOperator(task_id="t", subscription="orders"), {"view": ["capture"], "name": ["orders"]}),
        (ReplicationWaitSensor(task_id="t", peer="orders"), {"view": ["capture"], "name": ["orders"]}),
        (LoaderOperator(task_id="t", loader="hits", port=9), {"view": ["loaders"], "name": ["hits"]}),
        (
            ReceiverOperator(task_id="t", receiver_id="r0", replica_set="rs"),
            {"view": ["receivers"], "name": ["r0"]},
        ),
        (CancelPlanOperator(task_id="t", plan_id="p"), {"view": ["fleet"], "cluster": ["default"]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_task_leads_to_what_it_works_on(operator: Any, expected: dict[str, list[str]]) -> None:
    (link,) = [each for each in operator.operator_extra_links if each.name == PageLink.name]
    assert type(link) in {type(each) for each in RtolapPlugin.operator_extra_links}
    address = urlsplit(link.get_link(operator, ti_key=SimpleNamespace(dag_id="d")))
    assert address.path == PAGE_PATH == f"/plugin/{PAGE_NAME}"
    assert parse_qs(address.query) == expected
