"""The parts of a stack: what each needs first, the ports it owns, and its spec.

zookeeper, kafka ──▶ coordinator ──▶ query
kafka ──▶ (kafka-2), (kafka-3)
(mariadb) ──▶ (stream-load) ──▶ (storage); in parentheses: only when they are asked for
agent, (spark): nothing; (hbase): nothing, it has a ZooKeeper of its own
airflow-api, -execution-api, -scheduler, -dag-processor, -triggerer: only their database, which the first
of them migrates; tasks reach the execution API later
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from rtolap.stack.artifacts import find_java, hbase_jars, java_artifacts
from rtolap.stack.environment import (
    MARIADB_DATABASE,
    MARIADB_SECRET,
    MARIADB_USER,
    service_env,
)
from rtolap.stack.layout import StackLayout
from rtolap.stack.ports import HOST
from rtolap.stack.probes import http2_missing, http_missing, mysql_missing, storage_missing
from rtolap.stack.secrets import read_secret
from rtolap.stack.servers import airflow
from rtolap.stack.servers.hbase import hbase_spec
from rtolap.stack.servers.kafka import broker_only, kafka_spec
from rtolap.stack.servers.mariadb import mariadb_spec
from rtolap.stack.servers.zookeeper import zookeeper_spec
from rtolap.stack.spec import ProcessSpec


@dataclass(frozen=True)
class Surroundings:
    """The layout, ports and settings that a spec is made from."""

    layout: StackLayout
    ports: Mapping[str, int]
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Component:
    """A part of the stack.

    Attributes:
        name: as commands and logs have it.
        needs: components that must answer before this one is started, where they are started at all.
        spec: returns how it is started.
        on_request: a bare `up` does not start it.
    """

    name: str
    needs: tuple[str, ...]
    spec: Callable[[Surroundings], ProcessSpec]
    on_request: bool = False


def _zookeeper(around: Surroundings) -> ProcessSpec:
    folder, ports = around.layout.run("zookeeper"), around.ports
    return zookeeper_spec(java_artifacts(), folder, ports["zookeeper"])


def _kafka(around: Surroundings) -> ProcessSpec:
    folder, ports = around.layout.run("kafka"), around.ports
    return kafka_spec(java_artifacts(), folder, ports["kafka"], ports["kafka-controller"])


def _more_kafka(node: int, around: Surroundings) -> ProcessSpec:
    name, ports = f"kafka-{node}", around.ports
    return kafka_spec(
        java_artifacts(),
        around.layout.run(name),
        ports[name],
        ports["kafka-controller"],
        overrides=broker_only(ports[name], ports["kafka-controller"], node),
        name=name,
        joins=around.layout.run("kafka"),
    )


def _mariadb(around: Surroundings) -> ProcessSpec:
    password = read_secret(around.layout, MARIADB_SECRET)
    return mariadb_spec(
        around.layout.run("mariadb"),
        around.ports["mariadb"],
        databases=(MARIADB_DATABASE,),
        users={MARIADB_USER: password},
    )


def _hbase(around: Surroundings) -> ProcessSpec:
    ports = around.ports
    return hbase_spec(
        find_java(),
        hbase_jars(),
        around.layout.run("hbase"),
        ports["hbase-master"],
        ports["hbase-zookeeper"],
        info_port=ports["hbase-info"],
    )


def _service(
    name: str,
    port_names: tuple[str, ...],
    missing: Callable[[Mapping[str, int]], str | None],
    around: Surroundings,
    arguments: tuple[str, ...] = (),
) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        folder=around.layout.run(name),
        address=f"{HOST}:{around.ports[port_names[0]]}",
        ports=tuple(around.ports[port_name] for port_name in port_names),
        argv=(sys.executable, "-m", "rtolap.cli.main", name, "serve", *arguments),
        env=service_env(around.layout, around.settings),
        ready=lambda _: missing(around.ports),
        stop_timeout_s=20,
    )


def _health(port_name: str) -> Callable[[Mapping[str, int]], str | None]:
    return lambda ports: http_missing(f"http://{HOST}:{ports[port_name]}/health")


def _query_missing(ports: Mapping[str, int]) -> str | None:
    return _health("query-http")(ports) or mysql_missing(HOST, ports["query-mysql"])


def _storage(around: Surroundings) -> ProcessSpec:
    ports = around.ports
    url = f"http://{HOST}:{ports['stream-load']}/api/v1/storage-nodes"
    token, address = read_secret(around.layout, "token"), f"{HOST}:{ports['storage']}"
    arguments = ("--name", "local")
    return _service(
        "storage", ("storage",), lambda _: storage_missing(url, token, address), around, arguments
    )


def _spark(around: Surroundings) -> ProcessSpec:
    spec = _service("spark", ("spark",), lambda ports: http2_missing(HOST, ports["spark"]), around)
    return replace(spec, ready_timeout_s=120)


def _agent(around: Surroundings) -> ProcessSpec:
    arguments = ("--jobs-dir", around.settings["RTOLAP_SPARK_JOBS_DIR"])
    return _service("agent", ("agent",), _health("agent"), around, arguments)


def _airflow(part: airflow.Part, around: Surroundings) -> ProcessSpec:
    return airflow.airflow_spec(part, around.layout, around.settings, around.ports)


COMPONENTS: dict[str, Component] = {
    component.name: component
    for component in (
        Component("zookeeper", (), _zookeeper),
        Component("kafka", (), _kafka),
        Component("kafka-2", ("kafka",), partial(_more_kafka, 2), on_request=True),
        Component("kafka-3", ("kafka",), partial(_more_kafka, 3), on_request=True),
        Component("mariadb", (), _mariadb, on_request=True),
        Component("hbase", (), _hbase, on_request=True),
        Component(
            "coordinator",
            ("zookeeper", "kafka"),
            partial(_service, "coordinator", ("coordinator",), _health("coordinator")),
        ),
        Component(
            "stream-load",
            ("mariadb",),
            partial(_service, "stream-load", ("stream-load", "stream-load-body"), _health("stream-load")),
            on_request=True,
        ),
        Component("storage", ("stream-load",), _storage, on_request=True),
        Component("agent", (), _agent),
        Component("spark", (), _spark, on_request=True),
        Component(
            "query",
            ("zookeeper", "coordinator"),
            partial(_service, "query", ("query-http", "query-mysql"), _query_missing),
        ),
        Component("airflow-api", (), partial(_airflow, airflow.API)),
        Component("airflow-execution-api", (), partial(_airflow, airflow.EXECUTION_API)),
        Component("airflow-scheduler", (), partial(_airflow, airflow.SCHEDULER)),
        Component("airflow-dag-processor", (), partial(_airflow, airflow.DAG_PROCESSOR)),
        Component("airflow-triggerer", (), partial(_airflow, airflow.TRIGGERER)),
    )
}


def needed_first(names: set[str]) -> dict[str, frozenset[str]]:
    """Return, for each of the names, those of the names that must answer before it."""
    return {name: frozenset(COMPONENTS[name].needs) & names for name in COMPONENTS if name in names}
