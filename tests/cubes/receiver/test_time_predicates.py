"""A receiver reads no table, in memory or in a fragment, whose times a predicate on any unit excludes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl
from rtolap.model.cube import TIME_UNITS, SegmentPolicy, TimeUnit
from rtolap.model.predicate import Compare, CompareOp, In, Predicate
from rtolap.protocols.receiver.messages import ANSWER_KEY, HistorySnapshot, PartialAnswer, PartialQuery
from rtolap.query.sql.timeline import floor

from tests.support.cubes.builders import small_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

DAY_MS = 86_400_000
SCHEMA = small_schema(time_dimensions=TIME_UNITS, segment=SegmentPolicy(window_ms=DAY_MS))
# Each makes a table of its own, with two rows: the instant and five minutes later.
INSTANTS = tuple(
    datetime(*parts)
    for parts in (
        (2019, 12, 30, 23, 50),
        (2020, 1, 1, 0, 0),
        (2020, 1, 5, 12, 7),
        (2020, 2, 29, 12, 7),
        (2020, 4, 1, 12, 58),
        (2021, 4, 1, 12, 58),
    )
)
SPREAD = timedelta(minutes=5)
VIEW = CubeView(
    control=CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0}),
    start_offsets={0: 0},
)
OPS: dict[CompareOp, Callable[[Any, Any], bool]] = {
    "eq": eq,
    "ne": ne,
    "lt": lt,
    "le": le,
    "gt": gt,
    "ge": ge,
}


@pytest.fixture(scope="module", params=["memory", "fragments"])
def core(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CubeReceiver:
    folder: Path = tmp_path_factory.mktemp(request.param)
    broker = MemoryBroker()
    broker.create("sales", 1)
    for instant in INSTANTS:
        for at in (instant, instant + SPREAD):
            at_ms = int(at.replace(tzinfo=UTC).timestamp() * 1000)
            row = {"ts": at_ms, "kind": "a", "place": 1, "amount": 1}
            broker.append("sales", OutRecord(json.dumps(row).encode(), partition=0))
    made = CubeReceiver(
        SCHEMA,
        replica_set="rs",
        consumer=MemoryConsumer(broker, "sales"),
        producer=MemoryProducer(broker),
        folder=folder,
        clock=ManualClock(int(datetime(2022, 1, 1, tzinfo=UTC).timestamp() * 1000)),
        settings=ReceiverSettings(disk_free_bytes_min=0),
    )
    while made.step(VIEW):
        pass
    if request.param == "fragments":
        made.checkpoint()
    assert {table.in_memory for table in made.state.tables()} == {request.param == "memory"}
    return made


def ask(core: CubeReceiver, predicate: Predicate) -> tuple[int, PartialAnswer]:
    query = PartialQuery(SCHEMA.cube.name, (), ("__rows",), HistorySnapshot(), predicate)
    table = answer(SCHEMA, core.state, query, owned=(0,), receiver_id="r", progress=core.progress)
    said = msgspec.json.decode(table.schema.metadata[ANSWER_KEY], type=PartialAnswer)
    return sum(table.column("__rows").to_pylist()), said


def start(at: datetime, unit: TimeUnit) -> datetime:
    return floor(at, unit, SCHEMA.cube.days_to_first_weekday)


def of_tables(unit: TimeUnit) -> list[tuple[datetime, datetime]]:
    return [(start(instant, unit), start(instant + SPREAD, unit)) for instant in INSTANTS]


@pytest.mark.parametrize("unit", TIME_UNITS)
@pytest.mark.parametrize("op", OPS)
def test_comparisons_of_every_unit(core: CubeReceiver, unit: TimeUnit, op: CompareOp) -> None:
    tables = of_tables(unit)
    for constant in {start(instant, unit) for instant in INSTANTS} | {datetime(2020, 2, 3, 4, 5, 6)}:
        rows, said = ask(core, Compare(f"{unit}_start", op, str(constant)))
        matches = [[OPS[op](one, constant) for one in pair] for pair in tables]
        assert rows == sum(map(sum, matches)), constant
        # of rows that stand for two values, `eq` and `ne` may keep none although neither excludes the table
        between = [op == "eq" and pair[0] < constant < pair[1] for pair in tables]
        most = sum(2 for some, maybe in zip(matches, between, strict=True) if any(some) or maybe)
        assert said.rows_scanned <= most, (unit, op, constant)
        assert said.rows_scanned + said.rows_pruned == sum(table.rows for table in core.state.tables())


@pytest.mark.parametrize("unit", TIME_UNITS)
def test_lists_of_every_unit(core: CubeReceiver, unit: TimeUnit) -> None:
    tables = of_tables(unit)
    for constants in ({tables[0][0], tables[3][0]}, {tables[5][1]}, {datetime(1999, 1, 1)}):
        names = tuple(map(str, sorted(constants)))
        for negated in (False, True):
            rows, said = ask(core, In(f"{unit}_start", names, negated=negated))
            matches = [[(one in constants) is not negated for one in pair] for pair in tables]
            assert rows == sum(map(sum, matches)), (unit, names)
            if len(constants) == 1:
                assert said.rows_scanned <= 2 * sum(map(any, matches)), (unit, names, negated)
