"""Applications over REST, on memory stores."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from rtolap.coordinator.applications.sources import SourceState
from rtolap.testing.coordinator_harness import Cluster
from rtolap.wire import watermark as wire

NAME = "logs"


def application(**source: Any) -> dict[str, Any]:
    web = {
        "name": "web",
        "rule": {"host_precise": {"delayed_hosts_ppm": 0}},
        "hosts": {"registry": {"lease_ms": 60_000}},
        **source,
    }
    return {
        "name": NAME,
        "sources": [web],
        "operators": [{"name": "sessions"}],
        "sinks": [{"name": "store"}],
        "edges": [["web", "sessions"], ["sessions", "store"]],
    }


class Reporter:
    """A client by hand: plain JSON, one batch at a time."""

    def __init__(self, cluster: Cluster, client_id: str = "c1") -> None:
        self.cluster = cluster
        self.client_id = client_id
        self.sequence = 0
        self.epoch = 0

    def post(self, **batch: Any) -> dict[str, Any]:
        body = {"client_id": self.client_id, "sequence": self.sequence, "client_epoch": self.epoch, **batch}
        response = self.cluster.http.post(f"/api/v1/applications/{NAME}/reports", json=body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def send(self, **batch: Any) -> dict[str, Any]:
        self.sequence += 1
        answer = self.post(begins=self.sequence == 1, **batch)
        if answer["resend"]:
            self.epoch = answer["epoch"]
            self.sequence += 1
            answer = self.post(begins=True, **batch)
        return answer

    def progress(self, partition: int, **hosts_ms: int) -> dict[str, Any]:
        source = {"level": "web", "partition": partition, "generation": 0, "progress": hosts_ms}
        return self.send(sources=[source])


def declared(cluster: Cluster, **source: Any) -> Reporter:
    cluster.client.create_application(application(**source))
    return Reporter(cluster)


def registered(cluster: Cluster, *names: str) -> None:
    cluster.client.change_hosts(NAME, "web", "register", names)


def now(cluster: Cluster, minus_ms: int = 0) -> int:
    return cluster.clock.now_ms() - minus_ms


def test_the_slowest_host_and_the_oldest_work_decide(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a", "b")
    reporter.progress(0, a=now(cluster, 1000), b=now(cluster, 3000))
    assert cluster.client.application_watermarks(NAME).global_ms is None, (
        "persisted and published by the tick"
    )
    cluster.coordinator.tick()
    marks = cluster.client.application_watermarks(NAME)
    assert marks.global_ms == marks.levels["store"].output_ms == now(cluster, 3000)
    reporter.progress(0, b=now(cluster, 500))
    unit = {"level": "sessions", "processor": "p", "key_group": 3, "oldest_work_ms": now(cluster, 2000)}
    answer = reporter.send(units=[unit])
    assert answer["refused"] == []
    cluster.coordinator.tick()
    marks = cluster.client.application_watermarks(NAME)
    assert marks.levels["sessions"].input_ms == now(cluster, 1000)
    assert marks.levels["sessions"].output_ms == marks.global_ms == now(cluster, 2000)
    reporter.send(units=[{**unit, "left": True}])
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == now(cluster, 1000)


def test_columns_in_msgpack_say_the_same_as_names_in_json(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a", "b")
    epoch = reporter.send()["epoch"]
    source = wire.SourceReport(
        "web",
        0,
        0,
        ("b", "a"),
        0,
        np.array([1, 0], "<i4").tobytes(),
        np.array([now(cluster, 7), now(cluster, 9)], "<i8").tobytes(),
    )
    batch = wire.ReportBatch("c2", 1, epoch, True, (source,))
    response = cluster.http.post(
        f"/api/v1/applications/{NAME}/reports",
        content=msgspec.msgpack.encode(batch),
        headers={"Content-Type": wire.MSGPACK},
    )
    answer = msgspec.msgpack.decode(response.content, type=wire.ReportAnswer)
    assert (answer.resend, answer.refused) == (False, ())
    cluster.coordinator.tick()
    [slowest, _] = cluster.client.application_hosts(NAME).behind
    assert (slowest.host, slowest.behind_ms) == ("b", 9)


@pytest.fixture
def source(cluster: Cluster) -> SourceState:
    return cluster.coordinator.applications.running(NAME).sources["web"]
