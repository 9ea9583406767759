"""What Airflow's pages get: the connection's form, and links that lead from a task to what it works on."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.integration

BUILD = "rtolap_segment_build"


def test_the_connections_form_has_its_fields(airflow: Any) -> None:
    forms = airflow.api.get("/ui/connections/hook_meta").raise_for_status().json()
    (form,) = [form for form in forms if form["connection_type"] == "rtolap"]
    assert set(form["extra_fields"]) == {"coordinator_urls", "agent_url", "stream_load_urls", "query_url"}
    fields = form["standard_fields"]
    assert (fields["host"]["title"], fields["password"]["title"]) == ("Coordinator host", "Cluster token")
    assert fields["login"]["hidden"]


def test_a_mapped_build_leads_to_the_segments_of_its_cube(airflow: Any, history: Any) -> None:
    task, cube = history.task, history.stream.name
    url = f"/api/v2/dags/{BUILD}/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}/links"
    answer = airflow.api.get(url, params={"map_index": task["map_index"]}).raise_for_status()
    links = answer.json()["extra_links"]
    assert set(links) == {"Process log", "Segments", "In rtolap"}
    segments = airflow.api.get(links["Segments"]).raise_for_status().json()
    assert history.stream.segment(5) in {segment["segment"] for segment in segments}
    assert f"/processes/build.{cube}/log" in links["Process log"]
    assert airflow.api.get(links["Process log"]).status_code == 200
