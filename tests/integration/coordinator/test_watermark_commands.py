"""`rtolap watermark` as processes, on two coordinators and real ZooKeeper: a host stalls, the leader dies."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image
from rtolap.stack.ports import free_port
from rtolap.watermark_client.client import WatermarkClient

from tests.support import commands
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.waiting import patience_s
from tests.support.watermarks.definitions import hosts_source

pytestmark = [pytest.mark.integration]

HELD_MS = 3_000
LOGS: dict[str, Any] = {
    "name": "logs",
    "sources": [hosts_source("web")],
    "operators": [{"name": "sessions"}],
    "sinks": [{"name": "store"}],
    "edges": [["web", "sessions"], ["sessions", "store"]],
}


class Fleet:
    """Two hosts and one unit that are told every tenth of a second; `stalled` ones are told no more."""

    def __init__(self, client: WatermarkClient) -> None:
        self._client = client
        self.stalled: set[str] = set()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(0.1):
            now_ms = time.time_ns() // 1_000_000
            hosts = sorted({"host-a", "host-b"} - self.stalled)
            self._client.report_progress("web", 0, 0, hosts, [now_ms] * len(hosts))
            self._client.set_oldest_work("sessions", "worker-1", 3, now_ms - 500)

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(30)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory, zookeeper: str) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("services")
    nobody = f"127.0.0.1:{free_port()}"  # no cube, no question to Kafka
    one = Services(folder, zookeeper=zookeeper, root=f"/marks-{uuid.uuid4().hex}", kafka=nobody)
    try:
        one.start_coordinators()
        one.coordinator.create_application(LOGS)
        one.coordinator.change_hosts("logs", "web", "register", ["host-a", "host-b"])
        yield one
    finally:
        one.close()


@pytest.fixture
def fleet(services: Services) -> Iterator[Fleet]:
    urls = services.environment["RTOLAP_COORDINATORS"].split(",")
    with WatermarkClient(urls, TOKEN, "logs", every_s=0.2) as client:
        fleet = Fleet(client)
        try:
            yield fleet
        finally:
            fleet.stop()


def rtolap(services: Services, *arguments: str, **extra: str) -> str:
    return commands.rtolap({**services.environment, **extra}, *arguments)


def held_ms(services: Services) -> int:
    """How far behind host-b is at the last sample; 0 where this leader has not heard of it."""
    found = services.coordinator.application_history("logs", level="web")
    for trace in found.levels["web"].hosts:
        latest_ms = trace.latest_ms[-1]
        if trace.host == "host-b" and latest_ms is not None:
            return found.at_ms[trace.at[-1]] - latest_ms
    return 0


def test_a_stalled_host_is_seen_in_every_command_and_a_new_leader_remembers_again(
    services: Services, fleet: Fleet, tmp_path: Path
) -> None:
    asking = services.coordinator
    wait_for("the watermark moves", lambda: asking.application_watermarks("logs").global_ms is not None)
    fleet.stalled.add("host-b")
    wait_for("host-b holds it", lambda: held_ms(services) > HELD_MS)

    svg, png = tmp_path / "logs.svg", tmp_path / "logs.png"
    told = json.loads(rtolap(services, "watermark", "plot", "logs", "--out", str(svg), "--json"))
    [held] = [one for one in told["levels"]["web"] if one["name"] == "host-b"]
    assert held["behind_max_ms"] > HELD_MS
    said = "\n".join(ElementTree.parse(svg).getroot().itertext())
    assert "held by host-b" in said
    rtolap(services, "watermark", "plot", "logs", "--out", str(png), "--lag", "--window", "1s")
    with Image.open(png) as image:
        image.load()
        assert image.format == "PNG"

    assert "host-b" in rtolap(services, "watermark", "history", "logs")
    assert "host-b" in rtolap(services, "watermark", "hosts", "logs", "--limit", "1")
    units = json.loads(rtolap(services, "watermark", "units", "logs", "--json"))["units"]
    assert [(one["level"], one["processor"], one["key_group"]) for one in units] == [
        ("sessions", "worker-1", 3)
    ]
    assert "worker-1/3" in rtolap(services, "watermark", "show", "--units")
    words = {"_RTOLAP_COMPLETE": "complete_bash", "COMP_WORDS": "rtolap watermark show l", "COMP_CWORD": "3"}
    assert completed(services, words) == ["logs"]

    before = asking.application_history("logs")
    leader = services.leading_coordinator()
    assert leader is not None
    services.kill(leader)
    wait_for("another leads", lambda: services.leading_coordinator() not in (None, leader))
    wait_for("and remembers who holds it", lambda: held_ms(services) > HELD_MS)
    after = asking.application_history("logs")
    assert before.since_ms is not None
    assert after.since_ms is not None
    assert after.since_ms > before.at_ms[-1]
    assert after.epoch > before.epoch
    known = [ms for ms in after.global_ms if ms is not None]
    assert known == sorted(known)
    assert known[0] >= (before.global_ms[-1] or 0), "a new owner never publishes less"
    services.start_again(leader)


def completed(services: Services, words: dict[str, str]) -> list[str]:
    script = "from rtolap.cli.main import app; app(prog_name='rtolap')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**services.environment, **words},
        capture_output=True,
        text=True,
        timeout=patience_s(60),
        check=False,
    )
    return done.stdout.split()
