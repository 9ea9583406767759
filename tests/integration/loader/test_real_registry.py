"""A loader beside a real schema registry: each record is in the table once, over kills of both."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rtolap.model.formats.record_format import RecordFormat

from tests.support.formats.apicurio import Apicurio
from tests.support.formats.avro import encode, framed
from tests.support.loader.loader_world import Around, LoaderWorld
from tests.support.twins.loader_sink import Row

from .test_formats import SCHEMA, by_key, drawn

pytestmark = pytest.mark.integration

RECORDS = 4_000
NEWER: dict[str, Any] = {
    **SCHEMA,
    "fields": [
        {"name": "note", "type": "string", "default": ""},
        *reversed(SCHEMA["fields"]),
    ],
}


@pytest.fixture(scope="module")
def registry(module_folder: Path) -> Iterator[Apicurio]:
    with Apicurio(module_folder / "loader-registry") as running:
        yield running


def test_each_record_is_loaded_once_over_kills_of_the_loader_and_of_the_registry(
    around: Around, registry: Apicurio, tmp_path: Path, unique_name: str
) -> None:
    source = random.Random(8)
    subject = f"{unique_name}-value"
    ids = [registry.register(subject, json.dumps(each)) for each in (SCHEMA, NEWER)]
    assert ids[0] != ids[1]
    world = LoaderWorld(
        f"f_{unique_name[-8:]}",
        "duplicate",
        around,
        tmp_path,
        env={"RTOLAP_SCHEMA_REGISTRY": registry.url},
        format=RecordFormat(type="avro", registry="default"),
    )
    rows = [drawn(source, number) for number in range(RECORDS)]

    def send(some: Sequence[Row], versions: Sequence[int]) -> None:
        """Send records, each written with one of these schemas."""
        values = []
        for row in some:
            version = source.choice(versions)
            value = encode((SCHEMA, NEWER)[version], row | {"note": "x"} if version else row)
            values.append((row["k"] % 2, framed(ids[version], value)))
        world.produce_values(values)

    try:
        send(rows[:1500], (0,))
        world.process.start()
        world.wait_until(lambda it: sum(it.loaded.values()) > 0)
        send(rows[1500:3000], (0,))
        world.process.kill()
        registry.process.kill()
        send(rows[3000:], (0, 1))
        world.process.start()
        waits = world.wait_until(lambda it: "schema registry default" in it.last_error)
        assert sum(waits.loaded.values()) < RECORDS
        registry.process.start()
        world.wait_loaded()
        assert by_key(world.rows()) == rows
        assert world.status().rows_rejected == 0
    finally:
        world.close()
