"""Reports of an application by hand, as a client sends them, for the in-process coordinator."""

from __future__ import annotations

from typing import Any

from tests.support.cubes.coordinator_harness import Cluster
from tests.support.cubes.metadata_contract import eventually

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


def counters(cluster: Cluster) -> dict[str, int]:
    return cluster.client.application(NAME).counters


def takeover(cluster: Cluster) -> None:
    """Let the same process lead again, in another term, as after the loss of its session."""
    cluster.store.expire()
    eventually(lambda: cluster.coordinator.leadership.fence() is not None, "it leads again")
