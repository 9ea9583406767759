"""The plugin has no open endpoint, and its folder holds nothing that Airflow would trip over."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.middleware import Middleware
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from rtolap.airflow import plugin
from rtolap.airflow.declared import RunningLoader, loader_labels
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.links import URL_PREFIX
from rtolap.airflow.operators.services import LoaderOperator, SubscriptionOperator
from rtolap.airflow.page.rights import asker, reader
from rtolap.airflow.plugin import RtolapPlugin, app, host_checks, one_dag
from rtolap.model.subscription import Subscription, SubscriptionListener
from rtolap.protocols.agent.messages import LastGeneration, ProcessStatus, WaitingTask
from rtolap.protocols.loader.messages import LoaderProcessStatus, LoaderStatus, ShareStatus
from rtolap.sep.delivery.state import DeliveryState
from rtolap.sep.operations import SubscriptionConsumers, consumers_in
from rtolap.sep.subscriptions.records import SubscriptionRecord
from rtolap.sep.subscriptions.states import ShareState, SubscriptionState

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


def guards(route: APIRoute) -> list[Any]:
    return [dependency.dependency for dependency in route.dependencies]


# As statements do, these show data, which takes a right of its own.
SHOWING_RECORDS = {
    "/page/cubes/{cube}/refused",
    "/page/loaders/{loader}/dead-letters",
    "/page/loads/errors/{db}",
}


def test_every_route_asks_airflow_who_is_looking() -> None:
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    of_page = [route for route in routes if route.path.startswith("/page/")]
    of_links = [route for route in routes if route not in of_page]
    assert len(routes) == len(app.routes)
    assert of_links
    assert of_page
    for route in of_page:
        asks = route.path.startswith("/page/ask/") or route.path in SHOWING_RECORDS
        assert guards(route) == ([reader, asker] if asks else [reader])
    for route in of_links:
        assert len(guards(route)) == 2
        assert guards(route)[0] is one_dag
        assert "requires_access_dag" in guards(route)[1].__qualname__
        assert "{dag_id}" in route.path  # the guard reads it from there


def test_a_refused_reader_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise HTTPException(403)

    route = next(route for route in app.routes if isinstance(route, APIRoute))
    monkeypatch.setitem(app.dependency_overrides, guards(route)[1], refuse)
    answer = TestClient(app).get("/dags/d/processes/receiver.r0/log")
    assert answer.status_code == 403


class FakeAgent:
    """Answers for processes by key, ended ones as well; a log that is read brings `replaced_by` on."""

    def __init__(self, processes: dict[str, ProcessStatus]) -> None:
        self.processes = processes
        self.replaced_by: ProcessStatus | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        """Nothing is open."""

    def last(self, key: str) -> LastGeneration:
        found = self.processes.get(key)
        return LastGeneration(0) if found is None else LastGeneration(found.generation, dict(found.labels))

    def log(self, key: str, bytes_max: int) -> str:
        if self.replaced_by is not None:
            self.processes[key] = self.replaced_by
        return f"the log of {key}"


def process(key: str, dag_id: str | None, generation: int = 1) -> ProcessStatus:
    labels = {} if dag_id is None else WaitingTask(dag_id, "run", "task").label()
    return ProcessStatus(
        key=key, generation=generation, state="RUNNING", reason="", argv=(), labels=labels, log_tail=()
    )


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> FakeAgent:
    """Who asks may read the logs of every DAG whose name begins with `own`."""

    def allowed(request: Request) -> None:
        if not request.path_params["dag_id"].startswith("own") and request.path_params["dag_id"] != "~":
            raise HTTPException(403)

    for route in app.routes:
        if isinstance(route, APIRoute):
            monkeypatch.setitem(app.dependency_overrides, guards(route)[-1], allowed)
    found = FakeAgent({})
    monkeypatch.setattr(RtolapHook, "agent", lambda self: found)
    return found


def log_of(dag_id: str, key: str) -> tuple[int, str]:
    answer = TestClient(app).get(f"/dags/{dag_id}/processes/{key}/log")
    return answer.status_code, answer.text


def test_a_processes_log_is_shown_under_the_dag_of_its_task_only(agent: FakeAgent) -> None:
    """Drawn: processes of several DAGs, and of none; each is asked for under each DAG."""
    rng = random.Random(7)
    dags = ["own_a", "own_b", "other", "~"]
    owners = {f"receiver.r{number}": rng.choice([*dags[:3], None]) for number in range(20)}
    agent.processes = {key: process(key, owner) for key, owner in owners.items()}
    shown = set()
    for key, owner in owners.items():
        for dag_id in dags:
            code, text = log_of(dag_id, key)
            if dag_id == owner and dag_id.startswith("own"):
                assert (code, text) == (200, f"the log of {key}")
                shown.add(dag_id)
            else:
                assert code == (403 if dag_id == "other" else 404)
                assert "the log of" not in text
    assert shown == {"own_a", "own_b"}


def test_a_process_that_another_dag_takes_over_meanwhile_is_not_shown(agent: FakeAgent) -> None:
    agent.processes = {"build.x": process("build.x", "own_a")}
    agent.replaced_by = process("build.x", "other", 2)
    assert log_of("own_a", "build.x")[0] == 404
    agent.processes = {"build.x": process("build.x", "own_a")}
    agent.replaced_by = process("build.x", "own_a", 2)
    assert log_of("own_a", "build.x")[0] == 503


def test_no_route_takes_the_name_that_stands_for_every_dag(agent: FakeAgent) -> None:
    for route in app.routes:
        assert isinstance(route, APIRoute)
        if guards(route)[0] is reader:  # it asks for the right to one DAG, which no path names
            continue
        path = route.path.format(
            dag_id="~", key="receiver.r0", cube="c", segment="s", loader="l", subscription="s"
        )
        assert TestClient(app).get(path).status_code == 404


class FakeLoader:
    """A client of the loader, whose status is set, or of another one at its port."""

    def __init__(self, status: LoaderStatus) -> None:
        self._status = status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        """Nothing is open."""

    def status(self) -> LoaderStatus:
        return self._status


LOADER_PROCESSES = (
    LoaderProcessStatus(
        number=0,
        owner="h1:9000 p0",
        alive=True,
        leads=True,
        phase="loading",
        shares=(ShareStatus(number=0, phase="loading"), ShareStatus(number=2, phase="waiting")),
        lag_records=7,
        rows_per_s=1.5,
    ),
    LoaderProcessStatus(number=1, owner="h2:9000 p1", last_error="connection refused"),
)


def running_loader(name: str, dag_id: str) -> ProcessStatus:
    labels = loader_labels(RunningLoader(name, 9_000)) | WaitingTask(dag_id, "run", "task").label()
    key = f"loader.{name}"
    return ProcessStatus(
        key=key, generation=1, state="RUNNING", reason="", argv=(), labels=labels, log_tail=()
    )


def test_the_page_of_a_loaders_task_shows_each_of_its_processes(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = LoaderStatus(
        job="hits", state="RUNNING", processes=LOADER_PROCESSES, processes_wanted=2, shares=3, alive=True
    )
    monkeypatch.setattr(RtolapHook, "loader", lambda self, port: FakeLoader(status))
    agent.processes = {"loader.hits": running_loader("hits", "own_a")}
    answer = TestClient(app).get("/dags/own_a/loaders/hits/processes")
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["state"], shown["shares"], shown["wanted"]) == ("RUNNING", 3, 2)
    assert shown["processes"] == [
        {"process": "0", "owner": "h1:9000 p0", "state": "loading", "leads": True, "shares": [0, 2],
         "lag": 7, "rate_per_s": 1.5, "last_error": ""},
        {"process": "1", "owner": "h2:9000 p1", "state": "does not answer", "leads": False, "shares": [],
         "lag": None, "rate_per_s": 0.0, "last_error": "connection refused"},
    ]  # fmt: skip
    assert TestClient(app).get("/dags/own_b/loaders/hits/processes").status_code == 404
    assert TestClient(app).get("/dags/other/loaders/hits/processes").status_code == 403


def test_a_loader_that_is_not_divided_has_one_process(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = LoaderStatus(
        job="hits", state="PAUSED", phase="paused", owner="h1 p0", alive=True, lag_records=3, rows_per_s=2.0
    )
    monkeypatch.setattr(RtolapHook, "loader", lambda self, port: FakeLoader(status))
    agent.processes = {"loader.hits": running_loader("hits", "own_a")}
    (shown,) = TestClient(app).get("/dags/own_a/loaders/hits/processes").json()["processes"]
    assert (shown["owner"], shown["state"], shown["lag"], shown["shares"]) == ("h1 p0", "paused", 3, [])


def test_another_loader_at_the_port_is_not_shown(agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    status = LoaderStatus(job="clicks", state="RUNNING", alive=True)
    monkeypatch.setattr(RtolapHook, "loader", lambda self, port: FakeLoader(status))
    agent.processes = {"loader.hits": running_loader("hits", "own_a")}
    answer = TestClient(app).get("/dags/own_a/loaders/hits/processes")
    assert answer.status_code == 503
    assert "clicks" in answer.text


class FakeReplication:
    def __init__(self, state: SubscriptionState) -> None:
        self._state = state

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        """Nothing is open."""

    def consumers(self, name: str, defined: object) -> SubscriptionConsumers:
        assert name == self._state.name
        return consumers_in(self._state)


def delivery(**fields: Any) -> DeliveryState:
    counts = dict.fromkeys(("delivered", "duplicates", "late", "dead_letters", "failed_calls",
                            "remembered_edits", "failing_events"), 0)  # fmt: skip
    return DeliveryState(**(counts | fields))


def subscription_state(count: int, **fields: Any) -> SubscriptionState:
    listener = SubscriptionListener("kafka", topic="changes")
    declared = Subscription(name="orders", tables={"t": ()}, consumers=count, listener=listener)
    record = SubscriptionRecord(subscription=declared, cluster_id="c", start_ms=0, phase="created")
    return SubscriptionState("orders", "running", ("h:1",), record=record, **fields)


def consumers_of(monkeypatch: pytest.MonkeyPatch, agent: FakeAgent, state: SubscriptionState) -> Any:
    monkeypatch.setattr(plugin, "open_replication", lambda conn_id: FakeReplication(state))
    agent.processes = {"sep.orders": process("sep.orders", "own_a")}
    assert TestClient(app).get("/dags/own_b/subscriptions/orders/consumers").status_code == 404
    answer = TestClient(app).get("/dags/own_a/subscriptions/orders/consumers")
    assert answer.status_code == 200, answer.text
    return answer.json()["processes"]


def test_the_page_of_a_subscriptions_task_shows_each_consumer_and_the_shares_of_nobody(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = (
        ShareState(0, "c1", delivery(waiting_events=4, events_per_s=10.0)),
        ShareState(1, "c1", delivery(waiting_events=1, last_error="target is full")),
        ShareState(2, "", delivery(events_per_s=3.0)),
    )
    rows = consumers_of(monkeypatch, agent, subscription_state(3, shares=shares, consumers=("c1", "c2")))
    shown = [(row["process"], row["state"], row["shares"], row["lag"], row["last_error"]) for row in rows]
    assert shown == [
        ("c1", "delivers", [0, 1], 5, "target is full"),
        ("c2", "stands by", [], None, ""),
        ("", "nobody holds it", [2], 0, ""),
    ]
    assert rows[0]["rate_per_s"] == 10.0


def test_a_subscription_with_one_consumer_has_one_row(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = subscription_state(1, delivery=delivery(waiting_events=2, events_per_s=5.0, stopped="bad event"))
    (row,) = consumers_of(monkeypatch, agent, state)
    assert (row["owner"], row["lag"], row["rate_per_s"], row["shares"]) == ("h:1", 2, 5.0, [])


def test_the_links_lead_to_the_routes() -> None:
    """And are registered: Airflow restores the links of a serialized task by their class."""
    loader = LoaderOperator(task_id="t", loader="hits", port=9_000)
    consumer = SubscriptionOperator(task_id="t", subscription="orders")
    key = SimpleNamespace(dag_id="d g")
    paths = set()
    for operator, name in ((loader, "Processes"), (consumer, "Consumers")):
        (link,) = [each for each in operator.operator_extra_links if each.name == name]
        assert type(link) in {type(each) for each in RtolapPlugin.operator_extra_links}
        paths.add(link.get_link(operator, ti_key=key).partition(URL_PREFIX)[2])
    assert paths == {"/dags/d%20g/loaders/hits/processes", "/dags/d%20g/subscriptions/orders/consumers"}


def test_the_plugin_mounts_its_routes_where_the_links_lead() -> None:
    assert [mounted["url_prefix"] for mounted in RtolapPlugin.fastapi_apps] == [URL_PREFIX]


def test_only_named_hosts_are_answered_where_some_are_named() -> None:
    (check,) = host_checks("127.0.0.1, localhost")
    asked = FastAPI(middleware=[Middleware(check["middleware"], **check["kwargs"])])
    asked.get("/")(lambda: "here")
    for host, code in (("localhost:8080", 200), ("127.0.0.1", 200), ("elsewhere.example", 400), ("", 400)):
        assert TestClient(asked).get("/", headers={"host": host}).status_code == code, host
    assert host_checks("") == host_checks(" , ") == []


def test_airflow_would_run_one_file_of_the_plugins_folder() -> None:
    assert (PLUGINS / ".airflowignore").read_text().split() == ["rtolap/"]
    assert [path.name for path in PLUGINS.glob("*.py")] == ["rtolap_plugin.py"]
