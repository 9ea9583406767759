"""One deployment for all tests here, and a history that several of them look at."""

from __future__ import annotations

import json
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Browser, Page, expect, sync_playwright
from rtolap.protocols.coordinator.messages import SegmentInfo

from tests.integration.airflow.browsing import CHROMIUM, SHOWN_MS, WINDOW
from tests.support.airflow_stack import AirflowStack, airflow_stack
from tests.support.cubes.day_stream import PARTITIONS, DayStream
from tests.support.kafka_topics import create_topic
from tests.support.waiting import patience_s

PROJECT = Path(__file__).resolve().parents[3]
DAGS = Path(__file__).parent / "dags"
BUILD = "rtolap_segment_build"
HISTORY_DAYS = 6
CONNECTIONS = "/api/v2/connections"
BUILT_S = 900.0  # for Spark and Airflow on a machine that does much else

Say = Callable[..., None]


@pytest.fixture(scope="package")
def airflow_home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rtolap-airflow-it-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="package")
def airflow(airflow_home: Path, zookeeper: str, kafka: str) -> Iterator[AirflowStack]:
    """With the shipped DAGs and those of these tests, all paused."""
    include = airflow_home / "include"
    include.mkdir()
    # One, to be quick; those of the shipped settings, should their test have come first.
    (include / "receivers.yaml").write_text("[{id: r0, replica_set: rs-0, bounds: {idle_after_s: 2}}]")
    dags = [*(PROJECT / "dags").glob("*.py"), *DAGS.glob("*.py")]
    with airflow_stack(airflow_home, dags, include, zookeeper=zookeeper, kafka=kafka) as stack:
        yield stack


@pytest.fixture(scope="package")
def receiver(airflow: AirflowStack) -> None:
    """The declared receivers, started by their DAG."""
    airflow.unpause("rtolap_receivers")

    def healthy() -> bool | None:
        return True if {one.health for one in airflow.coordinator.receivers()} == {"HEALTHY"} else None

    airflow.until("healthy receivers", healthy)


@pytest.fixture(scope="package")
def streams(airflow: AirflowStack, receiver: None, kafka: str) -> Callable[[str], DayStream]:
    """A new stream with its topic; not yet defined."""

    def create(name: str) -> DayStream:
        unique = f"{name}_{uuid.uuid4().hex[:6]}"
        new = NewTopic(unique, num_partitions=PARTITIONS, replication_factor=1)
        create_topic(kafka, new)
        return DayStream(unique, kafka, airflow.coordinator, airflow.sql)

    return create


@pytest.fixture
def stream(airflow: AirflowStack, streams: Callable[[str], DayStream]) -> Iterator[DayStream]:
    """Enabled, of this test only, with nothing sent; the build DAG is paused."""
    airflow.pause(BUILD)
    made = streams("one_test")
    made.define()
    yield made
    made.drop()


@pytest.fixture
def say(airflow: Any) -> Iterator[Say]:
    """say(conn_id, **fields): as the form of the connection's page does; none of them is left behind."""
    said: set[str] = set()

    def change(conn_id: str, *, extra: dict[str, Any] | None = None, **fields: Any) -> None:
        body = {"connection_id": conn_id, "extra": json.dumps(extra or {}), **fields}
        if airflow.api.get(f"{CONNECTIONS}/{conn_id}").status_code == httpx.codes.NOT_FOUND:
            airflow.api.post(CONNECTIONS, json=body).raise_for_status()
        else:
            airflow.api.patch(f"{CONNECTIONS}/{conn_id}", json=body).raise_for_status()
        said.add(conn_id)

    yield change
    for conn_id in said:
        airflow.api.delete(f"{CONNECTIONS}/{conn_id}").raise_for_status()


class History(NamedTuple):
    """Days 1 to HISTORY_DAYS are READY, in version 1; the day after is with the receiver.

    Retention drops day 1. `task`: the build task after its end; it was cleared while it waited for Spark.
    `run`: its run. `begun`: day → build that was under way when the task was cleared. `ready`: day → record.
    """

    stream: DayStream
    task: dict[str, Any]
    run: dict[str, Any]
    begun: dict[int, str]
    ready: dict[int, SegmentInfo]


@pytest.fixture(scope="package")
def history(airflow: AirflowStack, streams: Callable[[str], DayStream]) -> History:
    airflow.unpause(BUILD)
    stream = streams("history")
    days = timedelta(days=HISTORY_DAYS - 1, hours=12)  # noon of the last day is the low watermark
    stream.define(after=days)
    stream.send(*range(1, HISTORY_DAYS + 2))
    airflow.until_running(f"build.{stream.name}")

    def waiting() -> dict[str, Any] | None:
        found = [task for task in airflow.tasks(BUILD, task_id="build") if task["state"] == "deferred"]
        return found[0] if found else None

    task = airflow.until("deferred build", waiting)
    run_id = task["dag_run_id"]
    begun = builds(stream.segments())
    airflow.clear(BUILD, run_id, ("build", task["map_index"]))

    def ended() -> dict[str, Any] | None:
        (found,) = airflow.tasks(BUILD, run_id, "build")
        return found if found["state"] in ("success", "failed") else None

    task = airflow.until("end of the cleared task", ended, BUILT_S)
    (run,) = [run for run in airflow.runs(BUILD) if run["dag_run_id"] == run_id]

    def ready() -> dict[int, SegmentInfo] | None:
        found = stream.segments()
        return found if [info.state for info in found.values()] == ["READY"] * HISTORY_DAYS else None

    return History(stream, task, run, begun, airflow.until("whole history", ready, BUILT_S))


def builds(segments: dict[int, SegmentInfo]) -> dict[int, str]:
    return {day: info.build.build_id for day, info in segments.items() if info.build is not None}


class Backfill(NamedTuple):
    """Days 3 and 4 of the history, queued by `airflow backfill`, and rebuilt.

    Day → state: `queued` before any build, `cleared` after the backfill's runs were cleared too, `built` when
    the runs had ended, `again` when the same command had run a second time. `waiting`: states of the runs
    before any build. `told`: results of their last tasks. `runs`: the backfill's own, at the end.
    """

    history: History
    queued: dict[int, str]
    cleared: dict[int, str]
    built: dict[int, str]
    again: dict[int, str]
    waiting: list[str]
    told: list[dict[str, Any]]
    runs: int


@pytest.fixture(scope="package")
def backfill(airflow: AirflowStack, history: History) -> Backfill:
    stream, dag_id = history.stream, "rtolap_backfill"
    airflow.pause(BUILD)
    airflow.unpause(dag_id)

    def states() -> dict[int, str]:
        return {day: info.state for day, info in stream.segments().items()}

    def deferred() -> bool | None:
        """Every run waits for its segments."""
        found = [
            {task["task_id"]: task["state"] for task in airflow.tasks(dag_id, run["dag_run_id"])}
            for run in runs()
        ]
        waits = [(tasks.get("requeue"), tasks.get("ready")) == ("success", "deferred") for tasks in found]
        return True if waits and all(waits) else None

    def ended() -> bool | None:
        return True if {run["state"] for run in runs()} == {"success"} else None

    def runs() -> list[dict[str, Any]]:
        return [run for run in airflow.runs(dag_id) if run["run_type"] == "backfill"]

    def create() -> None:
        words = ["--dag-id", dag_id, "--from-date", stream.start(3)[:10], "--to-date", stream.start(4)[:10]]
        words += ["--max-active-runs", "3", "--dag-run-conf", json.dumps({"cube": stream.name})]
        told = airflow.command("airflow", "backfill", "create", *words, timeout_s=180)
        assert told.returncode == 0, told.stderr[-2000:]

    def xcom(run_id: str) -> dict[str, Any]:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/ready/xcomEntries/return_value"
        found = airflow.api.get(path, params={"map_index": 0, "deserialize": True}).raise_for_status().json()
        told: dict[str, Any] = found["value"]
        return told

    def completed() -> bool | None:
        found = airflow.api.get("/api/v2/backfills", params={"dag_id": dag_id}).raise_for_status().json()
        return True if all(one["completed_at"] for one in found["backfills"]) else None

    create()
    airflow.until("runs that wait for their segments", deferred, BUILT_S)
    queued, waiting = states(), [run["state"] for run in runs()]
    for run in runs():
        airflow.clear(dag_id, run["dag_run_id"], ("requeue", 0))
    airflow.until("cleared runs that wait for their segments", deferred, BUILT_S)
    cleared = states()
    airflow.run_dag(BUILD)
    airflow.until("end of the backfill's runs", ended, BUILT_S)
    built = states()
    told = [xcom(run["dag_run_id"]) for run in runs()]
    # one backfill at a time; Airflow looks twice a minute whether one is completed
    airflow.until("backfill that Airflow calls completed", completed)
    create()
    airflow.until("end of the backfill's runs", ended, BUILT_S)
    return Backfill(history, queued, cleared, built, states(), waiting, told, len(runs()))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def signed_in(browser: Browser, airflow: AirflowStack) -> Callable[[str], list[Any]]:
    """Returns the cookies that Airflow's own form has given a user: the form is filled in once for each."""
    kept: dict[str, list[Any]] = {}

    def cookies(user: str) -> list[Any]:
        if user not in kept:
            with browser.new_context(viewport=WINDOW) as context:
                context.set_default_timeout(patience_s(SHOWN_MS))
                page = context.new_page()
                page.goto(f"{airflow.url}/auth/login")
                page.locator("input[name=username]").fill(user)
                page.locator("input[name=password]").fill(airflow.passwords[user])
                page.locator("button[type=submit]").click()
                page.wait_for_url(re.compile(r"^(?!.*/auth/login)"))
                kept[user] = context.cookies()
        return kept[user]

    return cookies


@pytest.fixture
def sign_in(
    browser: Browser, airflow: AirflowStack, signed_in: Callable[[str], list[Any]]
) -> Iterator[Callable[..., Page]]:
    """Opens the page as a user who has signed in, in a browser context of its own."""
    contexts = []

    def opened(user: str, query: str = "", colour_scheme: str = "light") -> Page:
        cookies = signed_in(user)
        context = browser.new_context(viewport=WINDOW, color_scheme=colour_scheme)  # type: ignore[arg-type]
        contexts.append(context)
        context.add_cookies(cookies)
        context.set_default_timeout(patience_s(SHOWN_MS))
        expect.set_options(timeout=patience_s(SHOWN_MS))
        page = context.new_page()
        page.goto(f"{airflow.url}/plugin/rtolap{query}")
        return page

    yield opened
    for context in contexts:
        context.close()
