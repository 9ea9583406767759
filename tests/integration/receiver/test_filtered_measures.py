"""A filtered measure in a receiver: the answer equals a recount of the passing events, after kill -9 too."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

import pytest
from rtolap.model.cube import Measure
from rtolap.model.table import Column

from tests.support.cubes.builders import START_MS, Event, random_event, small_schema
from tests.support.cubes.receiver_world import ReceiverWorld

pytestmark = pytest.mark.integration


def as_counted(event: Event | None) -> Event | None:
    """Return the event as the cube sums it: of a condition that does not hold there is no price."""
    if event is None or (event.amount is not None and event.amount > 0):
        return event
    return replace(event, price=None)


def test_a_filtered_measure_is_exact(make_world: Callable[..., ReceiverWorld]) -> None:
    small = small_schema()
    others = tuple(measure for measure in small.cube.measures if measure.column != "price")
    read = [column for column in small.table.columns if column.name != "price"]
    world = make_world(
        columns=(*read, Column("paid", "decimal(10,2)", path="price")),
        measures=(*others, Measure("sum", "paid", where="amount > 0", name="price")),
    )
    world.assign()
    world.start("r0")
    for _ in range(2):
        for number in range(600):
            value, event = random_event(world.random, START_MS + number * 200)
            world.send(number % len(world.log), value, as_counted(event))
        world.producer.flush(30)
        assert world.exact("r0")
        world.end("r0", signal.SIGKILL)
        world.start("r0")
    assert world.exact("r0")
    prices = [event.price for log in world.log.values() for event in log if event is not None]
    assert any(price is None for price in prices)
    assert any(price is not None for price in prices)


def test_events_that_the_table_leaves_out_are_in_no_answer(make_world: Callable[..., ReceiverWorld]) -> None:
    world = make_world(where="kind <> 'b' AND amount IS NOT NULL")
    world.assign()
    world.start("r0")
    left_out = 0
    for _ in range(2):
        for number in range(600):
            value, event = random_event(world.random, START_MS + number * 200)
            passes = event is None or (event.kind not in (None, "b") and event.amount is not None)
            left_out += not passes or value == b'{"kind":"a"}'  # which has no time either
            world.send(number % len(world.log), value, event if passes else None)
        world.producer.flush(30)
        assert world.exact("r0")
        world.end("r0", signal.SIGKILL)
        world.start("r0")
    assert world.exact("r0")
    state = world.state("r0")
    assert state is not None
    assert left_out > 0
    assert sum(one.filtered for one in state.partitions) == left_out
