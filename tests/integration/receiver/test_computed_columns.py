"""A computed column in a receiver: the answer equals a recount, after kill -9 too."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import msgspec
import pytest
from rtolap.model.table import Column

from tests.support.cubes.builders import START_MS, Event, random_event, small_schema
from tests.support.cubes.receiver_world import ReceiverWorld

pytestmark = pytest.mark.integration

BEYOND = 10**12  # pence, which a price of ten digits does not hold


def table_columns() -> tuple[Column, ...]:
    """Return those of the small table, whose price is computed: records hold pence."""
    read = [column for column in small_schema().table.columns if column.name != "price"]
    return (*read, Column("pence", "bigint"), Column("price", "decimal(10,2)", expression="pence * 0.01"))


def in_pence(value: bytes | None, event: Event | None) -> bytes | None:
    if value is None or event is None:
        return value
    body = json.loads(value)
    del body["price"]
    return json.dumps(body | {"pence": None if event.price is None else int(event.price * 100)}).encode()


def test_a_measure_of_a_computed_column_is_exact(make_world: Callable[..., ReceiverWorld]) -> None:
    world = make_world(columns=table_columns())
    world.assign()
    world.start("r0")
    for _ in range(2):
        for number in range(600):
            value, event = random_event(world.random, START_MS + number * 200)
            world.send(number % len(world.log), in_pence(value, event), event)
        world.send(0, msgspec.json.encode({"ts": START_MS, "pence": BEYOND}), None)
        world.producer.flush(30)
        assert world.exact("r0")
        world.end("r0", signal.SIGKILL)
        world.start("r0")
    assert world.exact("r0")
    state = world.state("r0")
    assert state is not None
    assert sum(one.rejected.get("out_of_range", 0) for one in state.partitions) == 2
