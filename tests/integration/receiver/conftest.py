"""A cube of a test's own, with the definition that it wants, on the shared servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cubes.receiver_world import ReceiverWorld


@pytest.fixture
def make_world(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[Callable[..., ReceiverWorld]]:
    """make_world(**table_changes), once a test."""
    made: list[ReceiverWorld] = []

    def make(**table_changes: object) -> ReceiverWorld:
        made.append(ReceiverWorld(tmp_path, zookeeper, kafka, unique_name, create_topic, **table_changes))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., ReceiverWorld]) -> ReceiverWorld:
    return make_world()
