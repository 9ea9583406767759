"""Lineage as the provider of OpenLineage takes it: by the specification's names, and never in the way."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
from airflow.utils.state import TaskInstanceState
from hypothesis import given
from hypothesis import strategies as st
from openlineage.client import OpenLineageClient
from openlineage.client.naming import dataset as naming
from openlineage.client.transport.file import FileConfig, FileTransport
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.build import SparkBuildOperator
from rtolap.airflow.operators.lineage import build_lineage
from rtolap.airflow.outlets import datasets
from rtolap.airflow.outlets.datasets import (
    DatasetName,
    folder_dataset,
    foreign_dataset,
    history_folder,
    operator_lineage,
    sql_dataset,
    topic_dataset,
)
from rtolap.airflow.outlets.loads import LOADED_TABLES
from rtolap.airflow.sensors.loaded import LoadedSensor
from rtolap.base.errors import NotFound

from tests.airflow.task_context import task_context

NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)
PORTS = st.integers(1, 65_535)
HISTORY = "history/sales/0123456789abcdef0123456789abcdef"
LOCATION = f"{HISTORY}/20260301000000_20260302000000/v1-b1"


def of(known: naming.DatasetNaming) -> DatasetName:
    return DatasetName(known.get_namespace(), known.get_name())


@given(NAMES, PORTS, NAMES, NAMES)
def test_names_are_those_of_the_specification(host: str, port: int, one: str, other: str) -> None:
    """As OpenLineage's own client makes them."""
    assert topic_dataset(f"{host}:{port},b2:1", one) == of(naming.Kafka(host, str(port), one))
    assert sql_dataset(host, port, one, other) == of(naming.MySQL(host, str(port), one, other))
    assert folder_dataset(f"s3://{one}/{other}?region=x", "h/c") == of(naming.S3(one, f"{other}/h/c"))
    assert folder_dataset(f"s3://{one}", "h/c") == of(naming.S3(one, "h/c"))
    assert folder_dataset(f"file:///{one}/", "h/c") == of(naming.LocalFileSystem(f"/{one}/h/c"))
    hdfs = naming.HDFS(host, str(port), f"/{one}/h/c")
    assert folder_dataset(f"hdfs://{host}:{port}/{one}", "h/c") == of(hdfs)
    assert foreign_dataset("doris", f"http://{host}:{port}/x", one, other) == DatasetName(
        f"doris://{host}:{port}", f"{one}.{other}"
    )


@pytest.mark.parametrize(
    ("servers", "namespace"),
    [
        ("b1", "kafka://b1:9092"),
        (" SASL_SSL://b1:9093 , b2:9093", "kafka://b1:9093"),
        ("[::1]:9094", "kafka://[::1]:9094"),
    ],
)
def test_the_first_bootstrap_server_names_a_cluster(servers: str, namespace: str) -> None:
    assert topic_dataset(servers, "t") == (namespace, "t")


@pytest.mark.parametrize(
    "location", [LOCATION, f"/{LOCATION}/", "history/sales/20260301000000_20260302000000/v1-b1"]
)
def test_the_versions_of_a_cube_are_of_one_dataset(location: str) -> None:
    assert history_folder(location) in (HISTORY, "history/sales")


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that events of lineage go to."""
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv(
        "AIRFLOW__OPENLINEAGE__TRANSPORT",
        json.dumps({"type": "file", "log_file_path": str(path), "append": True}),
    )
    monkeypatch.setattr(
        "rtolap.airflow.operators.lineage.open_kafka",
        lambda cluster: SimpleNamespace(
            cluster=SimpleNamespace(servers=f"{cluster}-1:9092,{cluster}-2:9092")
        ),
    )
    monkeypatch.setenv("RTOLAP_OBJECT_STORE", "s3://lake/rtolap?region=x")
    monkeypatch.setenv("RTOLAP_HOST", "10.0.0.7")
    monkeypatch.setenv("RTOLAP_QUERY_MYSQL_PORT", "7306")
    monkeypatch.setenv("AIRFLOW_CONN_RTOLAP_DEFAULT", json.dumps({"conn_type": "rtolap", "password": "s"}))
    return path


def emitted(path: Path, operator: Any) -> dict[str, Any]:
    """The event of a task's success, as the provider makes and sends it."""
    run = SimpleNamespace(run_id="r")
    lineage = ExtractorManager().extract_metadata(run, operator, TaskInstanceState.SUCCESS, SimpleNamespace())
    transport = FileTransport(FileConfig(log_file_path=str(path), append=True))
    adapter = OpenLineageAdapter(client=OpenLineageClient(transport=transport))
    adapter.complete_task(
        run_id="01890000-0000-7000-8000-000000000000",
        job_name="d.t",
        end_time="2026-03-02T00:00:00+00:00",
        task=lineage,
        run_facets={},
        nominal_start_time=None,
        nominal_end_time=None,
        owners=None,
        tags=None,
        job_description=None,
    )
    (line,) = path.read_text().splitlines()
    event: dict[str, Any] = json.loads(line)
    return event


class Coordinator:
    """The answers that a build's lineage is made of."""

    def __init__(self, location: str | None = LOCATION) -> None:
        self.location = location

    def cube(self, name: str) -> Any:
        return SimpleNamespace(definition={"table": "orders"})

    def table(self, name: str) -> dict[str, Any]:
        assert name == "orders"
        return {"name": name, "topic": "shop.orders", "kafka_cluster": "shop"}

    def segment(self, cube: str, segment: str) -> Any:
        return SimpleNamespace(location=self.location)


VERSION = {"cube": "sales", "segment": "20260301000000_20260302000000", "version": 1}


def built(coordinator: Any) -> SparkBuildOperator:
    operator = SparkBuildOperator(task_id="t", cube="sales")
    operator.lineage = build_lineage(coordinator, "sales", [VERSION], RtolapHook())
    return operator


def named(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["namespace"], each["name"]) for each in found]


def test_a_build_leads_from_the_topic_to_the_cubes_history(events: Path) -> None:
    event = emitted(events, built(Coordinator()))
    assert event["eventType"] == "COMPLETE"
    assert named(event["inputs"]) == [("kafka://shop-1:9092", "shop.orders")]
    assert named(event["outputs"]) == [("s3://lake", f"rtolap/{HISTORY}")]
    facets = event["outputs"][0]["facets"]
    assert facets["version"]["datasetVersion"] == "20260301000000_20260302000000/v1"
    (also,) = facets["symlinks"]["identifiers"]
    assert also == {"namespace": "mysql://10.0.0.7:7306", "name": "rtolap.sales", "type": "TABLE"}


@pytest.mark.parametrize(
    ("target", "server", "namespace"),
    [
        ("rtolap", "", "mysql://10.0.0.7:7306"),
        ("doris", "http://fe-1:8030", "doris://fe-1:8030"),
        ("starrocks", "https://fe-1:8443", "starrocks://fe-1:8443"),
    ],
)
def test_a_load_leads_from_the_topic_to_the_table(
    events: Path, target: str, server: str, namespace: str
) -> None:
    sensor = LoadedSensor(task_id="t", loader="hits", offsets={0: 5}, outlets=[LOADED_TABLES])
    result = {
        "loaded": {"0": 5, "1": 7},
        "loader": "hits",
        "topic": "hits",
        "database": "web",
        "table": "hits",
        "rows": 12,
        "kafka_cluster": "default",
        "target": target,
        "server": server,
    }
    sensor.announce(task_context(), result)
    event = emitted(events, sensor)
    assert named(event["inputs"]) == [("kafka://default-1:9092", "hits")]
    assert named(event["outputs"]) == [(namespace, "web.hits")]
    assert event["outputs"][0]["facets"]["version"]["datasetVersion"] == "0:5,1:7"


@pytest.mark.parametrize("worker", [*(f"10.0.0.{n}" for n in (8, 9)), "0.0.0.0", "::"])
def test_workers_on_any_machine_name_a_cube_by_the_service_that_their_connection_leads_to(
    events: Path, monkeypatch: pytest.MonkeyPatch, worker: str
) -> None:
    monkeypatch.setenv("RTOLAP_HOST", worker)
    extra = {"coordinator_urls": "http://c1:7070", "query_url": "https://q1:7090"}
    connection = {"conn_type": "rtolap", "password": "s", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_RTOLAP_DEFAULT", json.dumps(connection))
    event = emitted(events, built(Coordinator(location=None)))
    assert named(event["outputs"]) == [("mysql://q1:7306", "rtolap.sales")]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_service_that_listens_at_all_addresses_is_named_by_its_machine(
    events: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("RTOLAP_HOST", host)
    monkeypatch.setenv("RTOLAP_MACHINE", "m1")
    event = emitted(events, built(Coordinator(location=None)))
    assert named(event["outputs"]) == [("mysql://m1:7306", "rtolap.sales")]


def test_a_build_whose_lineage_cannot_be_found_out_says_nothing_and_succeeds(events: Path) -> None:
    class Silent(Coordinator):
        def cube(self, name: str) -> Any:
            raise NotFound(f"there is no cube {name}")

    event = emitted(events, built(Silent()))
    assert (event["inputs"], event["outputs"]) == ([], [])


def test_without_the_provider_or_a_place_to_send_to_nothing_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not datasets.is_collected(), "no transport is configured"
    asked: list[str] = []

    class Counted(Coordinator):
        def cube(self, name: str) -> Any:
            asked.append(name)
            return super().cube(name)

    def without_provider(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(datasets, "import_module", without_provider)
    assert not datasets.is_collected()
    assert built(Counted()).lineage is None
    assert asked == []


def test_a_task_that_made_nothing_has_no_lineage() -> None:
    assert operator_lineage(None) is None
