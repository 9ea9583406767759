"""`kafka_default` and `spark_default`: what they say is followed, what they may not say is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    TaskDeferred,
)
from rtolap.agent.host import Host
from rtolap.agent.options import check_options
from rtolap.agent.spark_allowed import SparkAllowed
from rtolap.agent.spark_options import SPARK_OPTIONS
from rtolap.airflow.hooks.kafka import KafkaClusterHook, connection_of
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.hooks.spark import spark_options
from rtolap.airflow.operators.topics import CheckTopicsOperator
from rtolap.airflow.sensors.lag import LagSensor
from rtolap.airflow.triggers.lag import LagTrigger
from rtolap.base.errors import DefinitionError, Forbidden, NotFound
from rtolap.protocols.coordinator.messages import CubeStatus, PartitionWatermark, WatermarkInfo

HOST = Host(jobs_dir=Path("jobs"), data_dir=Path("data"), object_store="file:///store")


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    """connect(conn_id, **fields)"""

    def set_connection(conn_id: str, **fields: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))

    return set_connection


# -- Spark -----------------------------------------------------------------------------------------------


def test_a_build_is_submitted_as_the_connection_says(connect: Any) -> None:
    connect("spark_default", conn_type="spark", host="local[1]")
    assert spark_options("build.c", {}) == ["--master", "local[1]", "--name", "build.c"]
    extra = {
        "queue": "night",
        "deploy-mode": "client",
        "conf": {"spark.executor.memory": "2g", "spark.app.name": "x"},
    }
    connect("spark_default", conn_type="spark", host="local[3]", extra=extra)
    found = spark_options("build.c", {"spark.app.name": "mine"})
    assert found == [
        *("--master", "local[3]"),
        *("--conf", "spark.app.name=mine", "--conf", "spark.executor.memory=2g"),
        *("--name", "build.c", "--queue", "night", "--deploy-mode", "client"),
    ]
    check_options("spark-submit", found, SPARK_OPTIONS, HOST)
    connect("spark_default", conn_type="spark", host="spark://m.example.org", port=7077)
    assert spark_options("build.c", {})[:2] == ["--master", "spark://m.example.org:7077"]
    assert spark_options("build.c", {}, master="local[2]")[:2] == ["--master", "local[2]"]


def test_jars_and_settings_of_the_connection_arrive_where_an_operator_allows_them(connect: Any) -> None:
    extra = {"jars": ["/opt/a.jar", "hdfs:///b.jar"], "conf": {"spark.hadoop.fs.s3a.endpoint": "https://s3"}}
    connect("spark_default", conn_type="spark", host="local[1]", extra=extra)
    found = spark_options("build.c", {})
    assert found[found.index("--jars") + 1] == "/opt/a.jar,hdfs:///b.jar"
    assert found[found.index("--conf") + 1] == "spark.hadoop.fs.s3a.endpoint=https://s3"
    allowed = SparkAllowed({"spark.hadoop.fs.s3a.endpoint": "https://s3"}, ("/opt/a.jar", "hdfs:///b.jar"))
    check_options("spark-submit", found, SPARK_OPTIONS, msgspec.structs.replace(HOST, spark_allowed=allowed))
    with pytest.raises(DefinitionError, match="refused"):
        check_options("spark-submit", found, SPARK_OPTIONS, HOST)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"host": "spark://elsewhere.example.org:7077"}, "--master"),
        ({"host": "local[1]", "extra": {"conf": {"spark.jars": "http://a/b.jar"}}}, "spark.jars"),
        (
            {"host": "local[1]", "extra": {"conf": {"spark.driver.extraJavaOptions": "-X"}}},
            "extraJavaOptions",
        ),
        ({"host": "local[1]", "extra": {"queue": "../x"}}, "--queue"),
        ({"host": "local[1]", "extra": {"deploy-mode": "elsewhere"}}, "--deploy-mode"),
    ],
)
def test_what_the_agent_does_not_allow_is_refused_by_name(connect: Any, fields: Any, named: str) -> None:
    connect("spark_default", conn_type="spark", **fields)
    with pytest.raises(DefinitionError, match="refused") as refused:
        check_options("spark-submit", spark_options("build.c", {}), SPARK_OPTIONS, HOST)
    assert named in str(refused.value)


def test_what_a_build_cannot_follow_is_refused_before_anything_is_written(connect: Any) -> None:
    connect("spark_default", conn_type="spark", host="local[1]", extra={"keytab": "a2V5", "principal": "p"})
    with pytest.raises(
        DefinitionError, match="keytab, principal; principals and keytabs belong to the agent"
    ):
        spark_options("build.c", {})
    connect("spark_default", conn_type="spark", host="local[1]", extra={"conf": "a=b"})
    with pytest.raises(DefinitionError, match=r"conf an object.*; found conf;"):
        spark_options("build.c", {})
    for jars in ("a.jar", [1], {"a.jar": 1}):
        connect("spark_default", conn_type="spark", host="local[1]", extra={"jars": jars})
        with pytest.raises(DefinitionError, match=r"jars a list; found jars;"):
            spark_options("build.c", {})


def test_without_the_default_connection_the_settings_say_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTOLAP_SPARK_MASTER", "local[7]")
    assert spark_options("b", {"spark.app.name": "n"}) == [
        *("--master", "local[7]", "--conf", "spark.app.name=n", "--name", "b")
    ]
    with pytest.raises(AirflowNotFoundException):
        spark_options("b", {}, conn_id="spark_other")


# -- Kafka -----------------------------------------------------------------------------------------------


def test_a_cluster_is_reached_as_its_connection_says(connect: Any) -> None:
    assert (connection_of("default"), connection_of("measurements")) == (
        "kafka_default",
        "kafka_measurements",
    )
    extra = {
        "bootstrap.servers": "a:9092",
        "group.id": "others",
        "sasl.username": "ann",
        "socket.keepalive.enable": True,
    }
    connect("kafka_default", conn_type="kafka", extra=extra)
    assert dict(KafkaClusterHook().cluster.settings) == {
        "bootstrap.servers": "a:9092",
        "sasl.username": "ann",
        "socket.keepalive.enable": "true",
    }
    connect("kafka_measurements", conn_type="kafka", extra={"bootstrap.servers": "m:9092"})
    assert KafkaClusterHook("measurements").cluster.servers == "m:9092"
    assert KafkaClusterHook("measurements").cluster_name == "measurements"


def test_a_connection_may_name_a_cluster_of_the_host_and_nothing_beside(
    connect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text("clusters: {guarded: {bootstrap.servers: 'g:9093'}}")
    monkeypatch.setenv("RTOLAP_KAFKA_CLUSTERS", str(file))
    connect("kafka_default", conn_type="kafka", extra={"cluster": "guarded"})
    assert KafkaClusterHook().cluster.servers == "g:9093"
    assert KafkaClusterHook().cluster_name == "guarded"  # by which the registry knows it
    connect("kafka_default", conn_type="kafka", extra={"cluster": "guarded", "bootstrap.servers": "evil:1"})
    with pytest.raises(DefinitionError, match=r"names a Kafka cluster of this host and says more"):
        _ = KafkaClusterHook().cluster


def test_without_its_connection_the_settings_of_the_host_say_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTOLAP_KAFKA", "h:9092")
    assert (KafkaClusterHook().cluster.servers, KafkaClusterHook().cluster_name) == ("h:9092", "default")
    with pytest.raises(DefinitionError, match="knows no Kafka cluster other"):
        _ = KafkaClusterHook("other").cluster
    with pytest.raises(AirflowNotFoundException):
        _ = KafkaClusterHook(kafka_config_id="kafka_of_a_test").cluster


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"bootstrap.servers": "a:1", "plugin.library.paths": "/tmp/x"},
        {"bootstrap.servers": "a:1", "sasl.kerberos.kinit.cmd": "sh"},
        {"bootstrap.servers": "a:1", "error_cb": "os.system"},
        {"bootstrap.servers": "a:1", "sasl.password": {"file": "/etc/shadow"}},
    ],
)
def test_what_a_connection_may_not_say_is_refused(connect: Any, extra: Any) -> None:
    connect("kafka_default", conn_type="kafka", extra=extra)
    with pytest.raises(DefinitionError, match="kafka_default"):
        _ = KafkaClusterHook().cluster


class FakeCoordinator:
    """Two enabled cubes on two clusters, and one that is not; how far the receivers of the first are."""

    def __init__(self) -> None:
        self.read: dict[int, int] = {}

    def __enter__(self) -> FakeCoordinator:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    async def __aenter__(self) -> Any:
        class Asked:
            async def watermark(_, cube: str) -> WatermarkInfo:
                return self.watermark(cube)

        return Asked()

    async def __aexit__(self, *_: object) -> None:
        return None

    def cube(self, name: str) -> CubeStatus:
        return next(cube for cube in self.cubes() if cube.name == name)

    def cubes(self) -> list[CubeStatus]:
        return [
            CubeStatus(name=name, definition={"table": f"{name}_t"}, enabled=name != "off", paused=False)
            for name in ("near", "far", "off")
        ]

    def table(self, name: str) -> dict[str, Any]:
        cluster = {"kafka_cluster": "far"} if name == "far_t" else {}
        return {"topic": f"topic-of-{name}", **cluster}

    def watermark(self, cube: str) -> WatermarkInfo:
        partitions = {
            partition: PartitionWatermark(
                watermark_ms=0, idle=False, position=position, receiver_id="r", reported_ms=0
            )
            for partition, position in self.read.items()
        }
        return WatermarkInfo(cube=cube, low_watermark_ms=0, partitions=partitions)


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> FakeCoordinator:
    fake = FakeCoordinator()
    monkeypatch.setattr(RtolapHook, "coordinator", lambda _hook: fake)
    monkeypatch.setattr(RtolapHook, "async_coordinator", lambda _hook: fake)
    monkeypatch.setattr(RtolapHook, "load", lambda _hook: asyncio.sleep(0))
    return fake


def test_topics_of_enabled_cubes_are_checked_at_their_clusters_and_all_that_is_missing_is_named(
    coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, tuple[list[str], str]] = {}
    wrong: dict[str, Exception] = {}

    def check(hook: KafkaClusterHook, topics: Iterable[str], operation: str) -> None:
        asked[hook.kafka_config_id] = list(topics), operation
        if hook.kafka_config_id in wrong:
            raise wrong[hook.kafka_config_id]

    monkeypatch.setattr(KafkaClusterHook, "check", check)
    operator = CheckTopicsOperator(task_id="t")
    assert operator.execute({}) == {"default": ["topic-of-near_t"], "far": ["topic-of-far_t"]}
    assert asked == {
        "kafka_default": (["topic-of-near_t"], "Describe"),
        "kafka_far": (["topic-of-far_t"], "Describe"),
    }
    CheckTopicsOperator(task_id="t", rights=True, cubes=["off"], kafka_conn_id="mine").execute({})
    assert asked["mine"] == (["topic-of-off_t"], "Read")
    wrong |= {"kafka_default": NotFound("no such topic"), "kafka_far": Forbidden("may not")}
    with pytest.raises(AirflowException, match="kafka_default: no such topic\nkafka_far: may not"):
        operator.execute({})


def test_a_lag_is_waited_for_and_told(coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def log_ends(hook: KafkaClusterHook, topic: str) -> dict[int, int]:
        asked.append((hook.kafka_config_id, topic))
        if len(asked) == 3:  # the trigger's second look
            coordinator.read[1] = 97
        return {0: 50, 1: 100}

    monkeypatch.setattr(KafkaClusterHook, "log_ends", log_ends)
    sensor = LagSensor(task_id="t", cube="far", lag_max=5, poke_interval=0.01)
    coordinator.read = {0: 48}
    with pytest.raises(TaskDeferred) as deferral:
        sensor.execute({})
    with sensor.client(RtolapHook()) as client:
        trigger = sensor.trigger(client)

    async def first() -> Any:
        async for event in trigger.run():
            return event.payload
        return None

    assert asyncio.run(asyncio.wait_for(first(), 20)) == {"lag": {"0": 2, "1": 3}}
    assert set(asked) == {("kafka_far", "topic-of-far_t")}
    assert sensor.execute({}) == {"lag": {"0": 2, "1": 3}}
    assert deferral.value.timeout is not None
    coordinator.read = {0: 10}
    with sensor.client(RtolapHook()) as client:
        assert sensor.found(client) == (
            "far: partition 0 lags by 40 records, partition 1 has no reader; expected a lag of at most 5"
        )
    for wrong in ({}, {"cube": "c", "loader": "l"}):
        with pytest.raises(AirflowFailException, match="a lag is of one cube or one loader"):
            LagSensor(task_id="t", **wrong).execute({})


def test_a_lag_trigger_keeps_every_argument() -> None:
    arguments = {
        "topic": "t",
        "cube": "c",
        "loader": "l",
        "port": 7,
        "lag_max": 3,
        "kafka_cluster": "far",
        "kafka_conn_id": "mine",
        "poll_s": 0.5,
        "rtolap_conn_id": "other",
    }
    path, kept = LagTrigger(**arguments).serialize()
    assert kept == arguments
    assert path == "rtolap.airflow.triggers.lag.LagTrigger"
