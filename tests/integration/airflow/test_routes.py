"""The plugin's routes on the API server: Airflow says who may look."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.integration

ROUTES = (
    "/rtolap/dags/rtolap_receivers/processes/receiver.r0/log",
    "/rtolap/dags/rtolap_segment_build/cubes/{cube}/segments",
    "/rtolap/dags/rtolap_segment_build/cubes/{cube}/segments/{segment}",
    "/rtolap/dags/rtolap_window_approval/window?cube={cube}&segment={segment}",
)


@pytest.fixture
def routes(history: Any) -> list[str]:
    stream = history.stream
    return [route.format(cube=stream.name, segment=stream.segment(5)) for route in ROUTES]


def test_nobody_sees_anything_without_a_token(airflow: Any, routes: list[str]) -> None:
    with airflow.client({}) as client:
        assert {client.get(route).status_code for route in routes} == {401}


@pytest.mark.parametrize("token", ["wrong", "of the cluster"])
def test_a_token_that_airflow_did_not_give_is_refused(airflow: Any, routes: list[str], token: str) -> None:
    value = airflow.token if token == "of the cluster" else token
    with airflow.client({"authorization": f"Bearer {value}"}) as client:
        assert {client.get(route).status_code for route in routes} == {403}


def test_a_user_without_permission_is_refused(airflow: Any, routes: list[str]) -> None:
    with airflow.signed_in("stranger") as client:
        assert {client.get(route).status_code for route in routes} == {403}


@pytest.mark.parametrize("user", ["admin", "viewer"])
def test_who_may_read_task_logs_sees_process_and_segments(
    airflow: Any, history: Any, routes: list[str], user: str
) -> None:
    with airflow.signed_in(user) as client:
        log, segments, one = (client.get(route).raise_for_status() for route in routes[:3])
        window = client.get(routes[3])
    assert "receiver" in log.text
    assert history.stream.segment(5) in {segment["segment"] for segment in segments.json()}
    assert one.json()["state"] == "READY"
    assert "closes by no application" in window.json()["message"]


def test_a_process_is_shown_under_the_dag_of_its_task_only(airflow: Any, routes: list[str]) -> None:
    """The administrator may read the logs of every DAG, so nothing but the process's own task decides."""
    assert airflow.api.get(routes[0]).status_code == 200
    for dag_id in ("rtolap_segment_build", "rtolap_window_approval", "~", "no_such_dag"):
        answer = airflow.api.get(routes[0].replace("rtolap_receivers", dag_id))
        assert answer.status_code == 404
        assert "receiver.r0" not in answer.text.replace("no process receiver.r0", "")
    for route in routes[1:]:
        assert airflow.api.get("/rtolap/dags/~/" + route.split("/", 4)[4]).status_code == 404


def test_what_does_not_exist_is_not_found(airflow: Any, routes: list[str]) -> None:
    answer = airflow.api.get("/rtolap/dags/rtolap_segment_build/cubes/nothing/segments")
    assert answer.status_code == 404
    assert "nothing" in answer.json()["message"]
