"""A statement that reads tables by their codes gets the rows that it gets out of the tables themselves."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.base.errors import Corrupted, Refused
from rtolap.cubes.format.aggregate import to_plain
from rtolap.cubes.format.fragment import open_unverified
from rtolap.cubes.receiver.answers.coded_tables import CodedTables
from rtolap.cubes.receiver.answers.result_cache import ResultCache, Selected, merged_plainly
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local import fragments, table_codes
from rtolap.cubes.receiver.local.tables import LocalTable
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl
from rtolap.model.cube import AggregationGroup, Measure
from rtolap.model.predicate import And, Compare, CompareOp, In, IsNull, Like, Not, Or, Predicate
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery
from rtolap.scan.columns import MeasureColumn, measure_column
from rtolap.scan.folds import is_exact_fold

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.seeds import so_many
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

MEASURES = (
    Measure("count"),
    Measure("avg", "amount"),
    Measure("min", "amount"),
    Measure("max", "amount"),
    Measure("sum", "price"),
    Measure("approx_distinct", "place"),
)
SCHEMA = small_schema(measures=MEASURES, aggregation_groups=(AggregationGroup(("kind", "place")),))
VIEW = CubeView(
    control=CubeControl(enabled=True, assignment={"rs": (0,)}, assignment_epoch=1, first_offsets={0: 0}),
    start_offsets={0: 0},
)
FOLDABLE = tuple(each.name for each in SCHEMA.partials if is_exact_fold(each))
KINDS = ("k0", "k1", "k2", "k3", "k", "zz", "")
OPS: tuple[CompareOp, ...] = ("eq", "ne", "lt", "le", "gt", "ge")
MINUTES = tuple(f"2023-11-14 22:{14 + number}:00.000000" for number in range(4))
AMOUNTS = (None, -5, 7, 0, 2**31, -(2**40))
HUGE = (*AMOUNTS, 2**62, -(2**62))
BYTES_MAX = 1 << 20


class Core:
    """A core over Kafka in memory that consumes, flushes and merges when it is told to."""

    def __init__(self, folder: Path, seed: int, amounts: tuple[int | None, ...] = AMOUNTS) -> None:
        self.dice = random.Random(seed)
        self._amounts = amounts
        self._broker = MemoryBroker()
        self._broker.create("sales", 1)
        self.settings = ReceiverSettings(fragments_max=2, disk_free_bytes_min=0)
        self.core = CubeReceiver(
            SCHEMA,
            replica_set="rs",
            consumer=MemoryConsumer(self._broker, "sales"),
            producer=MemoryProducer(self._broker),
            folder=folder,
            clock=ManualClock(START_MS),
            settings=self.settings,
        )

    def act(self) -> None:
        chance = self.dice.random()
        if chance < 0.7:
            self.take(self.dice.choice((1, 5, 60)))
        elif chance < 0.85:
            self.core.checkpoint()
        else:
            while (job := fragments.merge_job(self.core.state.segments, self.settings)) is not None:
                merged = fragments.merge(SCHEMA, self.core.file.fragments, job)
                assert self.core.apply_merged(job, merged)
            if self.dice.random() < 0.3:
                for table in fragments.cuboid_jobs(self.core.state, rows_min=1):
                    fragments.keep_cuboids(SCHEMA, self.core.state, table, self.settings.cuboid_bytes_max)

    def take(self, events: int) -> None:
        for _ in range(events):
            row = {
                "ts": START_MS + self.dice.randrange(3 * WINDOW_MS),
                "kind": self.dice.choice((None, "", "k0", "k1", "k2", "k3")),
                "place": self.dice.choice((None, *range(-3, 12))),
                "amount": self.dice.choice(self._amounts),
                "price": self.dice.choice((None, "1.25", "-99999999.99", "0.01")),
            }
            self._broker.append("sales", OutRecord(json.dumps(row).encode(), partition=0))
        while self.core.step(VIEW):
            pass

    @property
    def tables(self) -> list[LocalTable]:
        return list(self.core.state.tables())

    def query(self) -> PartialQuery:
        dice = self.dice
        dimensions = tuple(name for name in SCHEMA.cube.all_dimensions if dice.random() < 0.4)
        partials = tuple(name for name in FOLDABLE if dice.random() < 0.6) or FOLDABLE[:1]
        predicate = None if dice.random() < 0.1 else self._predicate(dice.choice((0, 0, 1, 2)))
        return PartialQuery(SCHEMA.cube.name, dimensions, partials, HistorySnapshot(), predicate)

    def _predicate(self, depth: int) -> Predicate:
        dice = self.dice
        if depth:
            terms = tuple(self._predicate(depth - 1) for _ in range(dice.randrange(1, 4)))
            return dice.choice((And(terms), Or(terms), Not(terms[0])))
        draws: tuple[Callable[[], Predicate], ...] = (
            lambda: Compare("kind", dice.choice(OPS), dice.choice(KINDS)),
            lambda: In("kind", tuple(dice.sample(KINDS, 3)), dice.random() < 0.5),
            lambda: Like("kind", dice.choice(("k%", "%", "_1", "x")), dice.random() < 0.5),
            lambda: Compare("place", dice.choice(OPS), dice.choice((-4, 0, 3, 2.5, 11))),
            lambda: In("place", tuple(dice.sample(range(-5, 15), 4)), dice.random() < 0.5),
            lambda: Compare("minute_start", dice.choice(OPS), dice.choice(MINUTES)),
            lambda: IsNull(dice.choice(("kind", "place")), dice.random() < 0.5),
        )
        return dice.choice(draws)()


def rows(table: pa.Table) -> list[str]:
    """In any order."""
    return sorted(map(repr, to_plain(SCHEMA, table).to_pylist()))


def outcome(answer: Callable[[], Selected]) -> list[str] | str:
    """Return the columns and rows of an answer, or what it is refused for."""
    try:
        plain = to_plain(SCHEMA, answer().table)
    except Refused:
        return "a sum is refused"
    return [str(plain.schema), *sorted(map(repr, plain.to_pylist()))]


def differences(folder: Path, seed: int, amounts: tuple[int | None, ...] = AMOUNTS) -> tuple[list[str], int]:
    """Return the statements with other rows, and how many were answered by codes alone."""
    core = Core(folder, seed, amounts)
    codes = CodedTables(SCHEMA, BYTES_MAX)
    wrong, by_codes = [], 0
    for _ in range(25):
        core.act()
        for _ in range(3):
            query, tables = core.query(), core.tables
            cache = ResultCache(SCHEMA, BYTES_MAX)
            cache._codes = codes
            found = outcome(partial(cache.merged, query, tables))
            if found != outcome(partial(merged_plainly, SCHEMA, query, tables)):
                wrong.append(str(query))
            coded = codes.rows(query, tables)
            by_codes += coded is not None and not coded.others
    return wrong, by_codes


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(4, 3)))
def test_rows_by_codes_are_the_rows_of_the_tables(seed: int, tmp_path: Path) -> None:
    wrong, by_codes = differences(tmp_path, seed)
    assert not wrong, f"seed {seed}"
    assert by_codes > 10, f"seed {seed}: too few statements were answered by codes"


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(2, 3)))
def test_sums_beyond_64_bits_are_refused_as_without_codes(seed: int, tmp_path: Path) -> None:
    wrong, _ = differences(tmp_path, seed, HUGE)
    assert not wrong, f"seed {seed}"


def test_the_draw_notices_a_null_that_counts_as_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_nulls(column: pa.ChunkedArray) -> MeasureColumn | None:
        made = measure_column(column)
        return None if made is None else made._replace(valid=None)

    monkeypatch.setattr(table_codes, "measure_column", without_nulls)
    assert differences(tmp_path, 0)[0]


def test_codes_are_made_once_and_bounded(tmp_path: Path) -> None:
    core = Core(tmp_path, 0)
    for _ in range(6):
        core.take(60)
        core.core.checkpoint()
    query = PartialQuery(SCHEMA.cube.name, ("kind",), FOLDABLE, HistorySnapshot(), None)
    codes = CodedTables(SCHEMA, BYTES_MAX)
    assert codes.rows(query, core.tables) is not None
    made = [table.codes.file(table.table, codes._of_dimensions(["kind"]), ()) for table in core.tables]
    again = [table.codes.file(table.table, codes._of_dimensions(["kind"]), ()) for table in core.tables]
    for one, other in zip(made, again, strict=True):
        assert one is not None
        assert other is not None
        assert one.dimensions["kind"].codes is other.dimensions["kind"].codes
    small = CodedTables(SCHEMA, 1)
    (tmp_path / "fresh").mkdir()
    fresh = Core(tmp_path / "fresh", 0)
    fresh.take(200)
    assert small.rows(query, fresh.tables) is None
    assert all(table.codes.nbytes == 0 for table in fresh.tables)


def test_codes_of_two_caches_are_not_mixed(tmp_path: Path) -> None:
    core = Core(tmp_path, 1)
    for _ in range(3):
        core.take(30)
        core.core.checkpoint()
    query = PartialQuery(SCHEMA.cube.name, ("kind",), FOLDABLE, HistorySnapshot(), None)
    for _ in range(2):
        one = CodedTables(SCHEMA, BYTES_MAX)
        one.rows(query, core.tables[-2:])  # other values get the first codes
        found = one.rows(query, core.tables)
        assert found is not None
        assert rows(found.table) == rows(merged_plainly(SCHEMA, query, core.tables).table)


def test_a_damaged_fragment_is_noticed_before_its_codes_are_made(tmp_path: Path) -> None:
    core = Core(tmp_path, 2)
    for _ in range(2):
        core.take(60)
        core.core.checkpoint()
    paths = sorted(core.core.file.fragments.glob("*.arrow"))
    data = bytearray(paths[0].read_bytes())
    at = len(data) // 2
    data[at] ^= 0xFF
    paths[0].write_bytes(data)
    tables = []
    for path in paths:
        fragment = open_unverified(path.with_suffix(".fragment"), SCHEMA)
        rows_of = fragment.table.num_rows
        tables.append(LocalTable(fragment.table, rows_of, {0: (0, 1)}, (1,), fragment))
    query = PartialQuery(SCHEMA.cube.name, ("kind",), FOLDABLE, HistorySnapshot(), None)
    with pytest.raises(Corrupted, match="checksum"):
        CodedTables(SCHEMA, BYTES_MAX).rows(query, tables)
