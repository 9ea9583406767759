"""FIRST, LAST, quantiles and frequent values in a receiver: as a recount says, over a kill -9."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

import pytest
from rtolap.aggregates.approx_percentile import Quantiles
from rtolap.aggregates.approx_top_k import FrequentValues
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.kll import quantile, read_sketch
from rtolap.columnar.picked import texts
from rtolap.columnar.top_k import most_frequent
from rtolap.model.cube import Measure
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery

from tests.support.cubes.builders import START_MS, random_event, small_schema
from tests.support.cubes.receiver_world import ReceiverWorld

pytestmark = pytest.mark.integration

K = 20
FREQUENT_K = 8  # fewer than there are amounts
PICKED = ("amount__kll", "amount__last", "price__first", "amount__top_k")


def test_they_equal_a_recount(make_world: Callable[..., ReceiverWorld]) -> None:
    measures = (
        *small_schema().cube.measures,
        Measure("approx_percentile", "amount", k=K),
        Measure("last", "amount"),
        Measure("approx_top_k", "amount", k=FREQUENT_K),
        Measure("first", "price"),
    )
    world = make_world(measures=measures)
    world.assign()
    world.start("r0")
    for _ in range(2):
        for number in range(600):
            value, event = random_event(world.random, START_MS + number * 50 // 1000 * 1000)  # many at once
            world.send(number % len(world.log), value, event)
        world.producer.flush(30)
        assert world.exact("r0")
        assert_as_recounted(world)
        world.end("r0", signal.SIGKILL)
        world.start("r0")
    assert_as_recounted(world)


def assert_as_recounted(world: ReceiverWorld) -> None:
    query = PartialQuery(world.cube, ("kind",), PICKED, HistorySnapshot(), None, world.ends(), 30_000)
    with world.client("r0") as client:
        table, said = client.query(query)
    assert said.positions == world.ends()
    placed = [
        (event, (event.event_ms, partition, offset))
        for partition, log in world.log.items()
        for offset, event in enumerate(log)
        if event is not None
    ]
    last, first = (texts(single_chunk(table.column(name))).to_pylist() for name in PICKED[1:3])
    kinds = table.column("kind").to_pylist()
    assert len(kinds) == len(set(kinds)) == len({event.kind for event, _ in placed})
    for at, kind in enumerate(kinds):
        amounts = [(place, e.amount) for e, place in placed if e.kind == kind and e.amount is not None]
        prices = [(place, e.price) for e, place in placed if e.kind == kind and e.price is not None]
        assert last[at] == str(max(amounts)[1])
        assert first[at] == f"{min(prices)[1]:.2f}"
        image = table.column(PICKED[0])[at].as_py()
        numbers = sorted(amount for _, amount in amounts)
        assert read_sketch(image).n == len(numbers)
        for rank in (0.1, 0.5, 0.9):
            found, error = quantile([image], rank), 2 * Quantiles(K).rank_error
            assert found is not None
            assert sum(each < found for each in numbers) / len(numbers) - error <= rank
            assert sum(each <= found for each in numbers) / len(numbers) + error >= rank
        assert_frequent(table.column(PICKED[3])[at].as_py(), numbers)


def assert_frequent(image: bytes, numbers: list[int]) -> None:
    """Each count is between its bounds, and no value is missing that occurred more often than the error."""
    form, counts = FrequentValues(FREQUENT_K), Counter(map(str, numbers))
    held = most_frequent([image], form.values_max)
    error = held[0].upper - held[0].lower
    assert error <= form.count_error * len(numbers)
    assert all(each.lower <= counts[each.value] <= each.upper for each in held)
    missing = set(counts) - {each.value for each in held}
    assert all(counts[value] <= error for value in missing)
