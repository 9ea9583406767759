"""A host falls silent: Airflow waits with the reason, a person is asked, and what they say is recorded.

A thousand hosts report to an application of the real coordinator, three of them stand still at the beginning.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from rtolap.protocols.watermark.messages import Explanation
from rtolap.stack.ports import HOST
from rtolap.watermark_client.client import WatermarkClient

pytestmark = pytest.mark.integration

APPROVAL = "rtolap_window_approval"
HOSTS = [f"web{number:04d}" for number in range(1000)]
STALLED = HOSTS[:3]
BEHIND_MS = 40 * 60_000
LEASE_MS = 3_600_000


class Fleet:
    """All hosts have read up to now but the stalled ones, who are 40 minutes before the window's end."""

    def __init__(self, airflow: Any) -> None:
        self.coordinator = airflow.coordinator
        self.application = f"web_{uuid.uuid4().hex[:6]}"
        rule = {"host_precise": {"delayed_hosts_ppm": 1000}}
        source = {"name": "web", "rule": rule, "hosts": {"registry": {"lease_ms": LEASE_MS}}}
        sinks, edges = [{"name": "store"}], [["web", "store"]]
        self.coordinator.create_application(
            {"name": self.application, "sources": [source], "sinks": sinks, "edges": edges}
        )
        self.coordinator.change_hosts(self.application, "web", "register", HOSTS)
        self.now_ms = self.coordinator.application_watermarks(self.application).now_ms
        self.window_end_ms = self.now_ms // 60_000 * 60_000 - 120_000
        url = f"http://{HOST}:{airflow.around.ports['coordinator']}"
        self._client = WatermarkClient([url], airflow.token, self.application, every_s=0.2)
        self._report(HOSTS[3:], self.now_ms)
        self._report(STALLED, self.window_end_ms - BEHIND_MS)
        airflow.until("report of the stalled hosts", self._all_seen)

    def _report(self, hosts: list[str], latest_ms: int) -> None:
        self._client.report_progress("web", 0, 1, hosts, [latest_ms] * len(hosts))

    def _all_seen(self) -> bool | None:
        return True if self.coordinator.application_hosts(self.application).unseen == 0 else None

    @property
    def window(self) -> dict[str, str]:
        end = datetime.fromtimestamp(self.window_end_ms / 1000, UTC).isoformat()
        return {"application": self.application, "window_end": end}

    def catch_up(self) -> None:
        self._report(STALLED, self.now_ms)

    def explain(self) -> Explanation:
        found: Explanation = self.coordinator.explain_window(self.application, self.window_end_ms)
        return found

    def approvals(self) -> list[tuple[int, str, str]]:
        known = self.coordinator.application(self.application).approvals
        return [(one.until_ms, one.by, one.reason) for one in known]

    def close(self) -> None:
        self._client.close()
        self.coordinator.drop_application(self.application)


@pytest.fixture
def fleet(airflow: Any) -> Iterator[Fleet]:
    made = Fleet(airflow)
    yield made
    made.close()


def answer(
    client: httpx.Client, run_id: str, option: str, dag_id: str = APPROVAL, **form: str
) -> httpx.Response:
    """What Airflow's page sends when somebody presses a button."""
    url = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/ask/-1/hitlDetails"
    return client.patch(url, json={"chosen_options": [option], "params_input": form})


def open_questions(airflow: Any, run_id: str, dag_id: str = APPROVAL) -> list[dict[str, Any]]:
    """As the page of required actions lists them."""
    params = {"response_received": False, "state": ["deferred", "awaiting_input"]}
    url = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/hitlDetails"
    found: list[dict[str, Any]] = (
        airflow.api.get(url, params=params).raise_for_status().json()["hitl_details"]
    )
    return found


def asked(airflow: Any, fleet: Fleet, dag_id: str = APPROVAL) -> tuple[str, dict[str, Any]]:
    """A run whose question is on the page; its id, and the question."""
    run_id: str = airflow.trigger(dag_id, **fleet.window)

    def look() -> dict[str, Any] | None:
        found = open_questions(airflow, run_id, dag_id)
        return found[0] if found else None

    return run_id, airflow.until("question", look)


def test_a_sensor_waits_with_the_reason_and_over_a_killed_triggerer(airflow: Any, fleet: Fleet) -> None:
    run_id = airflow.trigger("it_windows", **fleet.window)

    def ended(task_id: str) -> Any:
        return airflow.until_task("it_windows", run_id, "success", "failed", "skipped", task_id=task_id)

    reason = "3 of 1000 hosts behind by up to 4"  # 40 minutes, 42 by the clock
    in_vain = ended("in_vain")
    assert (in_vain["state"], in_vain["try_number"]) == ("failed", 1)
    waited = "waited 6 s without success: the window of"
    airflow.until_logged(in_vain, waited, reason, "web0000, web0001, web0002")
    assert ended("skipped")["state"] == "skipped"
    patient = airflow.until_task("it_windows", run_id, "deferred", task_id="patient")
    airflow.until_logged(patient, reason)

    triggerer = airflow.components["airflow-triggerer"]
    triggerer.kill()
    triggerer.start()
    assert airflow.task("it_windows", run_id, "patient")["state"] == "deferred"
    fleet.catch_up()
    patient = ended("patient")
    assert patient["state"] == "success"
    result = airflow.result(patient)
    assert (result["application"], result["approved"]) == (fleet.application, False)
    assert result["expected_missing_ppm"] == {"web": 0}
    assert set(result["bound_ppm"]) == {"web"}


def test_what_a_person_approves_is_recorded_with_their_name_and_goes(airflow: Any, fleet: Fleet) -> None:
    run_id, question = asked(airflow, fleet)
    assert fleet.application in question["subject"]
    assert "3 of 1000 hosts behind by up to 4" in question["body"]
    assert "`web0000`" in question["body"]
    assert question["options"] == ["Approve", "Reject"]
    for nobody in ("viewer", "stranger"):
        with airflow.signed_in(nobody) as client:
            assert answer(client, run_id, "Approve", reason="x").status_code == 403
    assert (fleet.approvals(), fleet.explain().may_close) == ([], False)

    with airflow.signed_in("ada") as client:
        answer(client, run_id, "Approve", reason="three dead hosts").raise_for_status()
    airflow.until_run(APPROVAL, run_id)
    ((until_ms, by, reason),) = fleet.approvals()
    assert (until_ms, by) == (fleet.window_end_ms, "ada")
    assert reason == f"three dead hosts (Airflow: {APPROVAL}, run {run_id})"
    said = fleet.explain()
    assert (said.may_close, said.approved) == (True, True)
    assert airflow.result(airflow.task(APPROVAL, run_id, "let_go"))["by"] == "ada"
    result = airflow.result(airflow.task(APPROVAL, run_id, "may_close"))
    assert result["approved"]
    assert result["bound_ppm"]["web"] >= result["expected_missing_ppm"]["web"] > 0


def test_what_a_person_rejects_keeps_waiting_until_it_is_complete(airflow: Any, fleet: Fleet) -> None:
    run_id, _ = asked(airflow, fleet)
    with airflow.signed_in("ada") as client:
        answer(client, run_id, "Reject").raise_for_status()
        airflow.until_task(APPROVAL, run_id, "deferred", task_id="may_close")
        assert answer(client, run_id, "Approve", reason="after all").status_code == 409
    assert airflow.task(APPROVAL, run_id, "let_go")["state"] == "skipped"
    assert (fleet.approvals(), fleet.explain().may_close) == ([], False)
    fleet.catch_up()
    airflow.until_run(APPROVAL, run_id)
    assert not airflow.result(airflow.task(APPROVAL, run_id, "may_close"))["approved"]
    assert fleet.approvals() == []


def test_an_answer_that_a_lost_try_has_not_read_is_not_asked_for_again(airflow: Any, fleet: Fleet) -> None:
    run_id, _ = asked(airflow, fleet, "it_lost_answer")
    with airflow.signed_in("ada") as client:
        answer(client, run_id, "Approve", "it_lost_answer", reason="once").raise_for_status()
    airflow.until_run("it_lost_answer", run_id)
    ask = airflow.task("it_lost_answer", run_id, "ask")
    said = airflow.result(ask)
    assert (ask["try_number"], said["chosen_options"], said["params_input"]) == (
        2,
        ["Approve"],
        {"reason": "once"},
    )
    assert said["responded_by_user"]["name"] == "ada"


def test_a_question_is_withdrawn_when_the_window_becomes_complete(airflow: Any, fleet: Fleet) -> None:
    run_id, _ = asked(airflow, fleet)
    fleet.catch_up()
    airflow.until_run(APPROVAL, run_id)
    states = {task["task_id"]: task["state"] for task in airflow.tasks(APPROVAL, run_id)}
    assert states == {"ask": "skipped", "let_go": "skipped", "may_close": "success"}
    said = airflow.log(airflow.task(APPROVAL, run_id, "ask"))
    assert "the question is withdrawn" in said or "nobody is asked" in said  # the latter by a retry
    assert open_questions(airflow, run_id) == []
    assert fleet.approvals() == []
