"""A Kafka broker in KRaft mode: broker and controller in one process, unless overrides say otherwise."""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.java import LEAN_FLAGS, archive_flags, class_path, properties, write_log4j
from rtolap.stack.ports import HOST
from rtolap.stack.probes import exchange
from rtolap.stack.spec import ProcessSpec, run_once

_FORMAT_TIMEOUT_S = 60
_METADATA_REQUEST = 3
_METADATA_VERSION = 4  # the last one before tagged fields, still served by Kafka 4


def kafka_spec(
    artifacts: JavaArtifacts,
    folder: Path,
    port: int,
    controller_port: int,
    *,
    overrides: Mapping[str, object] | None = None,
    name: str = "kafka",
    cluster_id: str | None = None,
    joins: Path | None = None,
    heap: str = "256m",
    jvm_options: Sequence[str] = (),
    log_level: str = "warn",
) -> ProcessSpec:
    """Return how a broker is started.

    `overrides`: settings of the server; None drops one. `cluster_id`: of a cluster of several nodes, whose
    overrides name its voters; None makes a cluster of this node. `joins`: the folder of a node that has been
    started before, whose cluster this one joins. `jvm_options`: further ones, such as an agent."""
    folder = folder.absolute()
    config = folder / "server.properties"
    data = str((overrides or {}).get("log.dirs", folder / "data")).split(",")
    listens_as_controller = "controller" in str((overrides or {}).get("process.roles", "broker,controller"))
    java = (
        artifacts.java,
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        *LEAN_FLAGS,
        *archive_flags("kafka", artifacts.java, artifacts.kafka),
        *("-cp", class_path(artifacts.kafka)),
    )

    def prepare() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_log4j(folder, log_level)
        config.write_text(kafka_config(folder / "data", port, controller_port, overrides or {}))
        if not (Path(data[0]) / "meta.properties").exists():
            its_id = cluster_id if joins is None else _cluster_id(joins)
            _format((java[0], "-Xmx128m", *java[1:]), config, its_id)

    return ProcessSpec(
        name=name,
        folder=folder,
        address=f"{HOST}:{port}",
        ports=(port, controller_port) if listens_as_controller else (port,),
        argv=(java[0], "-Xms64m", f"-Xmx{heap}", *jvm_options, *java[1:], "kafka.Kafka", str(config)),
        prepare=prepare,
        ready=lambda _: kafka_missing(HOST, port),
        ready_timeout_s=90,
        stop_timeout_s=20,
    )


def kafka_config(data: Path, port: int, controller_port: int, overrides: Mapping[str, object]) -> str:
    listeners = f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}"
    values: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        # by default the controller writes a record that says nothing twice a second: a quarter of what an
        # idle broker takes of its processor
        "metadata.max.idle.interval.ms": 5000,
        # the default of 128 MB does not fit the small heap
        "log.cleaner.dedupe.buffer.size": 4194304,
        # a rejected record of the usual maximum, 1 MB, must fit a dead-letter topic with its headers
        "message.max.bytes": 2097152,
        **overrides,
    }
    return properties({name: value for name, value in values.items() if value is not None})


def new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def _cluster_id(folder: Path) -> str:
    """Return the id of the cluster that the node of this folder belongs to."""
    lines = (folder / "data" / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["cluster.id"]


def broker_only(port: int, controller_port: int, node: int) -> dict[str, object]:
    """Return the settings of a broker beside a node of its cluster whose controller listens at that port."""
    listener = f"PLAINTEXT://{HOST}:{port}"
    return {
        "node.id": node,
        "process.roles": "broker",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
        "listeners": listener,
        "advertised.listeners": listener,
    }


def _format(java: tuple[str, ...], config: Path, cluster_id: str | None) -> None:
    alone = ("--standalone",) if cluster_id is None else ()
    run_once(
        [
            *(*java, "kafka.tools.StorageTool", "format", *alone),
            # `=`: an id may begin with a dash
            *(f"--cluster-id={cluster_id or new_cluster_id()}", "-c", str(config)),
        ],
        failure="Kafka's log folder could not be formatted",
        timeout_s=_FORMAT_TIMEOUT_S,
    )


def kafka_missing(host: str, port: int) -> str | None:
    """Return None when the broker names itself in its metadata: it is registered, unfenced and serves.

    Spoken on the socket: a metadata request for no topics is 30 bytes and needs no client.
    """
    client = b"probe"
    body = struct.pack(">hhih", _METADATA_REQUEST, _METADATA_VERSION, 1, len(client)) + client
    body += struct.pack(">i?", 0, False)
    try:
        request = struct.pack(">i", len(body)) + body
        answer = exchange((host, port), request, 16)  # size, correlation id, throttle time, number of brokers
    except OSError as error:
        return f"broker on {host}:{port}: {error}"
    (brokers,) = struct.unpack_from(">i", answer, 12)
    return None if brokers > 0 else f"broker on {host}:{port} is not registered yet"
