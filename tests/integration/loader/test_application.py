"""A loader as a unit of an application: a real coordinator, Kafka, endpoint, node and loader, which is
killed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rtolap.model.loader import LoaderApplication
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.watermark.messages import LevelWatermark
from rtolap.watermark_client.client import WatermarkClient

from tests.support.cubes.services import Services, wait_for
from tests.support.loader.loader_world import Around, LoaderWorld
from tests.support.stored.stream_load_cluster import TOKEN
from tests.support.watermarks.definitions import hosts_source

NAME, SOURCE, LEVEL, HOST = "loads", "topic", "table", "producer"
APPLICATION: dict[str, Any] = {
    "name": NAME,
    "sources": [hosts_source(SOURCE)],
    "sinks": [{"name": LEVEL, "unit_lease_ms": 600_000}],
    "edges": [[SOURCE, LEVEL]],
}
RECORDS = 300


class World:
    """A loader and its application, with somebody who says how far the topic is written."""

    def __init__(self, around: Around, folder: Path, services: Services, name: str) -> None:
        urls = services.environment["RTOLAP_COORDINATORS"]
        self.coordinator = CoordinatorClient(urls.split(","), TOKEN)
        self.coordinator.create_application(APPLICATION)
        self.coordinator.change_hosts(NAME, SOURCE, "register", [HOST])
        self.source = WatermarkClient(urls.split(","), TOKEN, NAME, every_s=0.1)
        self.loads = LoaderWorld(
            name,
            "duplicate",
            around,
            folder,
            application=LoaderApplication(NAME, LEVEL),
            env={"RTOLAP_COORDINATORS": urls},
        )
        self.random = random.Random(1)
        self.said_ms = time.time_ns() // 1_000_000 - 3_600_000

    def produce(self) -> int:
        """The instant before which everything is in the topic then."""
        self.loads.produce(self.random, RECORDS)
        self.said_ms += 60_000
        self.source.report_progress(SOURCE, 0, 1, [HOST], [self.said_ms])
        return self.said_ms

    def level(self) -> LevelWatermark:
        return self.coordinator.application_watermarks(NAME).levels[LEVEL]

    def output_ms(self) -> int | None:
        return self.level().output_ms

    def close(self) -> None:
        self.loads.close()
        self.source.close()
        self.coordinator.close()


@pytest.fixture
def world(around: Around, zookeeper: str, tmp_path: Path, unique_name: str) -> Iterator[World]:
    folder = tmp_path / "services"
    folder.mkdir()
    services = Services(
        folder, zookeeper=zookeeper, root=f"/{unique_name}", kafka=around.kafka.address, coordinators=1
    )
    services.environment["RTOLAP_TOKEN_FILE"] = str(around.cluster.folder / "token")
    made: World | None = None
    try:
        services.start_coordinators()
        made = World(around, tmp_path, services, f"a_{unique_name[-8:]}")
        yield made
    finally:
        if made is not None:
            made.close()
        services.close()


def test_a_level_is_never_ahead_of_its_table_and_stands_while_its_loader_is_dead(world: World) -> None:
    world.loads.process.start()
    wait_for("the loader is a unit", lambda: world.coordinator.application(NAME).units == 1)
    first_ms = world.produce()
    wait_for("the level follows", lambda: world.output_ms() == first_ms)
    assert len(world.loads.rows()) == RECORDS

    world.loads.process.kill()
    second_ms = world.produce()
    wait_for("the source is further", lambda: world.level().input_ms == second_ms)
    reached_ms = world.level().published_at_ms
    wait_for("more turns", lambda: world.level().published_at_ms > reached_ms + 2_000)
    assert world.output_ms() == first_ms
    assert len(world.loads.rows()) == RECORDS

    world.loads.process.start()
    wait_for("the next process lets it go", lambda: world.output_ms() == second_ms)
    assert len(world.loads.rows()) == 2 * RECORDS
    assert world.coordinator.application(NAME).units == 1
