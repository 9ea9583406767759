"""From a silent host to history: the gate asks, a person lets a day go, its segment closes and is built.

Three hosts log to a topic that a receiver reads; one of them falls silent on the first day. The cube closes
by the application that awaits all three.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Locator, Page, expect
from rtolap.model.application import CubeWatermark
from rtolap.model.cube import Cube, Measure, SegmentPolicy
from rtolap.model.segment import SegmentRange
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.protocols.coordinator.messages import SegmentInfo

from tests.integration.airflow.browsing import picture, serious_in
from tests.support.cubes.day_stream import declare_cube, drop_cube
from tests.support.kafka_topics import create_topic
from tests.support.watermarks.definitions import hosts_source

pytestmark = pytest.mark.integration

GATE, APPROVAL, BUILD = "rtolap_watermark_gate", "rtolap_window_approval", "rtolap_segment_build"
HOSTS = ("h0", "h1", "silent")
FIRST, HOUR_MS = date(2013, 1, 1), 3_600_000
DAY_MS = 24 * HOUR_MS


class Fleet:
    """Days are numbered from 1. Topic, table, cube and application have one name."""

    def __init__(self, airflow: Any, kafka: str) -> None:
        self.name = f"fleet_{uuid.uuid4().hex[:6]}"
        self._airflow, self._coordinator, self._kafka = airflow, airflow.coordinator, kafka
        self.events: dict[int, int] = {}

    def define(self) -> None:
        new = NewTopic(self.name, num_partitions=2, replication_factor=1)
        create_topic(self._kafka, new)
        source = hosts_source("web")
        application = {"name": self.name, "sources": [source], "sinks": [{"name": "store"}]}
        self._coordinator.create_application({**application, "edges": [["web", "store"]]})
        self._coordinator.change_hosts(self.name, "web", "register", HOSTS)
        columns = (Column("at", "bigint"), Column("host", "string"))
        time = TimeColumn("at", "epoch_ms")
        table = Table(name=self.name, topic=self.name, time=time, columns=columns, host_column="host")
        cube = Cube(
            name=self.name,
            table=self.name,
            dimensions=("host",),
            time_dimensions=("day",),
            measures=(Measure("count"),),
            segment=SegmentPolicy(window_ms=DAY_MS),
            watermark=CubeWatermark(self.name, "web", "store"),
        )
        declare_cube(self._coordinator, table, cube)

    def drop(self) -> None:
        drop_cube(self._coordinator, self.name, self.name)
        self._coordinator.drop_application(self.name)

    def send(self, host: str, day: int, *hours: int) -> None:
        producer = Producer({"bootstrap.servers": self._kafka})
        for hour in hours:
            record = json.dumps({"at": self.start_ms(day) + hour * HOUR_MS, "host": host})
            producer.produce(self.name, record, partition=HOSTS.index(host) % 2)
            self.events[day] = self.events.get(day, 0) + 1
        assert producer.flush(30) == 0

    def start_ms(self, day: int) -> int:
        start = datetime(FIRST.year, FIRST.month, FIRST.day, tzinfo=UTC) + timedelta(days=day - 1)
        return round(start.timestamp() * 1000)

    def segment(self, day: int) -> SegmentInfo:
        name = SegmentRange(self.start_ms(day), self.start_ms(day + 1)).name
        found: SegmentInfo = self._coordinator.segment(self.name, name)
        return found

    def close_by_force(self, day: int) -> None:
        self._coordinator.close_segment(self.name, self.segment(day).segment)

    def until(self, day: int, state: str) -> SegmentInfo:
        def look() -> SegmentInfo | None:
            found = self.segment(day)
            return found if found.state == state else None

        found: SegmentInfo = self._airflow.until(f"{state} day {day}", look, 180.0)
        return found

    def run_id(self, day: int) -> str:
        """Of the run that asks about a day."""
        end = datetime.fromtimestamp(self.start_ms(day + 1) / 1000, UTC).isoformat()
        return f"{self.name}__{end}"

    def asked(self) -> set[str]:
        """The runs that ask about a day of this fleet."""
        found = {run["dag_run_id"] for run in self._airflow.runs(APPROVAL)}
        return {run_id for run_id in found if run_id.startswith(f"{self.name}__")}

    def answer(self, day: int, option: str, **form: str) -> None:
        """By ada, as Airflow's page sends it."""
        self.until_answerable(day)
        with self._airflow.signed_in("ada") as client:
            said = client.patch(
                self.question_url(day), json={"chosen_options": [option], "params_input": form}
            )
        said.raise_for_status()

    def until_answerable(self, day: int) -> None:
        """Wait until a triggerer waits for the answer too."""
        run_id = self.run_id(day)

        def waits() -> bool | None:
            asked = self._airflow.tasks(APPROVAL, run_id, "ask")
            return True if asked and asked[0]["triggerer_job"] else None

        self._airflow.until(f"question about day {day}", waits)

    def question_url(self, day: int) -> str:
        return f"/api/v2/dags/{APPROVAL}/dagRuns/{self.run_id(day)}/taskInstances/ask/-1/hitlDetails"


@pytest.fixture(scope="module")
def fleet(airflow: Any, receiver: None, kafka: str) -> Iterator[Fleet]:
    """All three log on day 1; then two of them go on until noon of day 3. The gate has asked, once."""
    airflow.pause(BUILD)
    made = Fleet(airflow, kafka)
    made.define()
    for host in HOSTS:
        made.send(host, 1, 1, 2, 3)
    for host in HOSTS[:2]:
        made.send(host, 1, 9, 23)
        made.send(host, 2, 5, 23)
        made.send(host, 3, 12)
    airflow.until(
        "report of every host",
        lambda: True if airflow.coordinator.application_hosts(made.name).unseen == 0 else None,
    )
    airflow.until(
        "open segments",
        lambda: True if airflow.coordinator.cube(made.name).segments["ACTIVE"] == 3 else None,
    )
    airflow.unpause(APPROVAL)
    airflow.run_dag(GATE, overdue_after="1m")
    airflow.pause(GATE)
    yield made
    airflow.pause(APPROVAL)
    made.drop()


def shown_window(page: Page, fleet: Fleet, day: int) -> Locator:
    """The part of the page about the window of a day."""
    end = datetime.fromtimestamp(fleet.start_ms(day + 1) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return page.get_by_role("article", name=f"Window that ends at {end}")


def test_the_gate_asks_once_about_each_window_that_is_overdue(airflow: Any, fleet: Fleet) -> None:
    days = {fleet.run_id(day) for day in (1, 2, 3)}
    assert fleet.asked() == days
    again = airflow.run_dag(GATE, overdue_after="1m")
    airflow.pause(GATE)
    assert {task["state"] for task in airflow.tasks(GATE, again, "ask_once")} == {"skipped"}
    assert fleet.asked() == days
    assert {fleet.segment(day).state for day in (1, 2, 3)} == {"ACTIVE"}


def test_the_page_shows_the_windows_that_wait_with_the_hosts_and_what_they_owe(
    airflow: Any, fleet: Fleet, sign_in: Callable[..., Page]
) -> None:
    page = sign_in("viewer", f"?view=cubes&cube={fleet.name}")
    held = page.get_by_role("table", name="Hosts that are behind")
    expect(held.get_by_role("row", name=re.compile("^silent web holds it"))).to_be_visible()
    expect(page.get_by_text("Hosts that hold web")).to_be_visible()
    window = shown_window(page, fleet, 1)
    hosts = window.get_by_role("table", name="Hosts that the window waits for")
    expect(hosts.get_by_role("row", name=re.compile("^silent web"))).to_be_visible()
    expect(
        window.get_by_text(re.compile(r"web: .* of its events are expected to be missing, at most"))
    ).to_be_visible()
    expect(window.get_by_text(re.compile("^Asked .* ago"))).to_be_visible()
    expect(window.get_by_role("button", name="Approve")).to_have_count(0)
    assert serious_in(page) == []
    window.scroll_into_view_if_needed()
    picture(page, "windows")
    with airflow.signed_in("viewer") as client:
        body = {"chosen_options": ["Approve"], "params_input": {}}
        assert client.patch(fleet.question_url(1), json=body).status_code == 403


def test_a_day_that_a_person_lets_go_is_closed_and_built_as_approved(
    airflow: Any, fleet: Fleet, sign_in: Callable[..., Page]
) -> None:
    fleet.until_answerable(1)
    second = sign_in("admin", f"?view=cubes&cube={fleet.name}")
    shown_window(second, fleet, 1).get_by_role("button", name="Reject").click()
    first = sign_in("ada", f"?view=cubes&cube={fleet.name}")
    shown_window(first, fleet, 1).get_by_role("button", name="Approve").click()
    dialog = first.get_by_role("dialog")
    expect(dialog.get_by_text(re.compile("silent"))).to_be_visible()
    dialog.get_by_label("Reason").fill("the host is gone")
    dialog.get_by_role("button", name="Answer").click()
    expect(first.get_by_text(re.compile("Approve is recorded, as the answer of ada"))).to_be_visible()
    second.get_by_role("dialog").get_by_role("button", name="Answer").click()
    told = second.get_by_role("alert").get_by_text("ada has answered before: Approve")
    expect(told).to_be_visible()
    approvals = first.get_by_role("table", name="Approvals")
    expect(approvals.get_by_role("row", name=re.compile("ada .* the host is gone"))).to_be_visible()
    expect(shown_window(first, fleet, 1)).to_have_count(0)
    airflow.until_run(APPROVAL, fleet.run_id(1))
    fleet.until(1, "REMOTE_PERSISTED")
    airflow.run_dag(BUILD)
    airflow.pause(BUILD)
    built = fleet.until(1, "READY")
    known = built.completeness
    assert known is not None
    assert (known.application, known.closed_by, known.approved_by) == (fleet.name, "approval", "ada")
    assert built.events == fleet.events[1]
    assert {fleet.segment(day).state for day in (2, 3)} == {"ACTIVE"}


def test_what_a_person_rejects_on_the_page_waits_and_is_asked_about_once(
    fleet: Fleet, sign_in: Callable[..., Page]
) -> None:
    page = sign_in("ada", f"?view=cubes&cube={fleet.name}")
    window = shown_window(page, fleet, 3)
    window.get_by_role("button", name="Reject").click()
    page.get_by_role("dialog").get_by_role("button", name="Answer").click()
    expect(page.get_by_text(re.compile("Reject is recorded, as the answer of ada"))).to_be_visible()
    expect(window.get_by_text("Nobody is asked about it now.")).to_be_visible()
    window.get_by_role("button", name="Ask now").click()
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    told = f"Run {fleet.run_id(3)} has asked about it before."
    expect(page.get_by_role("alert").get_by_text(told)).to_be_visible()
    assert fleet.segment(3).state == "ACTIVE"


def test_where_builds_need_approval_a_day_closed_by_force_waits_for_it(airflow: Any, fleet: Fleet) -> None:
    variable = {"key": "rtolap_incomplete_builds", "value": "approve"}
    airflow.api.post("/api/v2/variables", json=variable).raise_for_status()
    try:
        fleet.close_by_force(2)
        fleet.until(2, "REMOTE_PERSISTED")
        run_id = airflow.run_dag(BUILD)
        (task,) = [task for task in airflow.tasks(BUILD, run_id, "build") if task["map_index"] >= 0]
        airflow.until_logged(task, "was closed by force and waits for approval: the window of")
        assert fleet.segment(2).state == "REMOTE_PERSISTED"
        fleet.answer(2, "Approve")
        airflow.until_run(APPROVAL, fleet.run_id(2))
        airflow.run_dag(BUILD)
        built = fleet.until(2, "READY")
    finally:
        airflow.api.delete(f"/api/v2/variables/{variable['key']}").raise_for_status()
        airflow.pause(BUILD)
    assert built.events == fleet.events[2]
    assert built.completeness is not None
    assert built.completeness.closed_by == "forced"
