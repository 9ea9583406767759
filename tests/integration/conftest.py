"""Real servers, one of each per test session.

    zookeeper, kafka                  addresses "127.0.0.1:port"
    zookeeper_server, kafka_server    handles: .kill() (SIGKILL), .start() (until it answers), .stop()
    mariadb_server                    handle as above; its databases: `ledger/conftest.py`
    demonstrated                      a whole stack's folder, after the demonstration
    create_topic(name=None, partitions=1, config=None) -> name

Tests share the servers: use names of your own (`unique_name`), and start again what you
have killed.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka.cimpl import NewTopic
from rtolap.base.pids import Start, start_of
from rtolap.stack.artifacts import JavaArtifacts, java_artifacts
from rtolap.stack.java import spark_submit_options
from rtolap.stack.pids import ProcessId, is_same_process
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.servers.kafka import kafka_spec
from rtolap.stack.servers.mariadb import mariadb_spec
from rtolap.stack.servers.zookeeper import zookeeper_spec

from tests.support.demonstrated import Demonstrated, demonstrate
from tests.support.in_memory import SERVERS_IN_MEMORY
from tests.support.kafka_topics import create_topic as made
from tests.support.servers import running

_OWNER = "RTOLAP_TEST_OWNER"

# Builds as in the local stack: of a few thousand events, each would spend most of its time on starting.
os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_submit_options())


def _end_leftovers() -> None:
    """End servers of a test session that was killed before it could stop them itself."""
    for process in psutil.process_iter():
        try:
            owner = process.environ().get(_OWNER)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        if owner:
            pid, boot, ticks = owner.split("@")
            if not is_same_process(ProcessId(int(pid), 0.0, Start(boot, int(ticks)))):
                process.send_signal(signal.SIGKILL)


@pytest.fixture(scope="session")
def owned() -> None:
    """Servers that are started after it carry this session's mark."""
    _end_leftovers()
    start = start_of(os.getpid())
    os.environ[_OWNER] = f"{os.getpid()}@{start.boot}@{start.ticks}"


@pytest.fixture(scope="session")
def java(owned: None) -> JavaArtifacts:
    return java_artifacts()


@pytest.fixture(scope="session")
def server_folder() -> Iterator[Path]:
    """Short-lived data of the servers; not under pytest's tmp_path, which keeps the last three.

    ZooKeeper, MariaDB, HBase and storage nodes sync each change before they answer.
    """
    with tempfile.TemporaryDirectory(
        prefix="rtolap-servers-", dir=SERVERS_IN_MEMORY, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def module_folder(server_folder: Path) -> Path:
    """Data of the servers that a module's tests start: another one for each try, which finds nothing of
    earlier ones."""
    return Path(tempfile.mkdtemp(prefix="module-", dir=server_folder))


@pytest.fixture(scope="session")
def zookeeper_server(java: JavaArtifacts, server_folder: Path) -> Iterator[ManagedProcess]:
    with running(zookeeper_spec(java, server_folder / "zookeeper", free_port())) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server(java: JavaArtifacts, server_folder: Path) -> Iterator[ManagedProcess]:
    port = free_port()
    overrides = {"log.retention.check.interval.ms": 1000, "log.initial.task.delay.ms": 1000}
    spec = kafka_spec(java, server_folder / "kafka", port, free_port({port}), overrides=overrides)
    with running(spec) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server(owned: None, server_folder: Path) -> Iterator[ManagedProcess]:
    with running(mariadb_spec(server_folder / "mariadb", free_port())) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper(zookeeper_server: ManagedProcess) -> str:
    return zookeeper_server.address


@pytest.fixture(scope="session")
def kafka(kafka_server: ManagedProcess) -> str:
    return kafka_server.address


@pytest.fixture(scope="session")
def demonstrated(java: JavaArtifacts, tmp_path_factory: pytest.TempPathFactory) -> Demonstrated:
    """The first start of a whole stack, which the demonstration has used and stopped."""
    return demonstrate(tmp_path_factory.mktemp("demonstrated") / "ein Stück")


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has, fit for topics, znodes, cubes and SQL."""
    words = re.findall(r"[a-z0-9]+", request.node.name.lower())
    base = "_".join(words)[:40].rstrip("_")  # names of cubes have no __ in them
    return f"t_{base}_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def create_topic(kafka: str, unique_name: str) -> Callable[..., str]:
    """create_topic(name=None, partitions=1, config=None) -> name, when the topic can be used."""

    def create(name: str | None = None, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        topic = name or unique_name
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config or {})
        made(kafka, new)
        return topic

    return create
