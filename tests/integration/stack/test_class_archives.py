"""The servers of the tests start with the archives that set-up has made."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.java import archive_path, spark_class_path, spark_submit_options
from rtolap.stack.process import ManagedProcess

pytestmark = pytest.mark.integration


def _maps(server: ManagedProcess) -> str:
    return Path(f"/proc/{server.pid()}/maps").read_text()


def test_servers_have_their_archives_in_memory(
    java: JavaArtifacts, kafka_server: ManagedProcess, zookeeper_server: ManagedProcess
) -> None:
    assert archive_path("kafka", java.java, java.kafka).name in _maps(kafka_server)
    assert archive_path("zookeeper", java.java, java.zookeeper).name in _maps(zookeeper_server)


def test_builds_are_told_to_use_theirs(java: JavaArtifacts) -> None:
    assert str(archive_path("spark", java.java, spark_class_path())) in spark_submit_options()
