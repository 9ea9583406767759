"""Seeded runs of a stored table as the listener: every load once, and in the end the rows that HBase has.

    python -m tests.support.sep.table_runs --seed 7 --seeds 1

Even seeds load a duplicate table, odd ones a unique table, with a sequence column or without: rows of several
families, with timestamps of any age and deletes of all kinds. Faults are those of `delivery_runs`, and of the
table's front end: requests that are lost or arrive later, also after their sender was killed; answers that
are lost; loads that are found half done, aborted by a restart, refused for want of storage nodes, or not
visible yet; a label that cannot be closed, or is without an answer; a consumer that is killed before and
after each of these; a clock that is almost a minute behind.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from rtolap.base.errors import Unavailable
from rtolap.protocols.stream_load.messages import (
    LoadAnswer,
    LoadState,
    SchemaColumn,
    SendOptions,
    TableSchema,
)
from rtolap.sep.delivery.delivered_edits import DeliveredEdits
from rtolap.sep.delivery.journal import Journal
from rtolap.sep.delivery.listener import Listener
from rtolap.sep.delivery.poison import EventKey, PoisonPolicy
from rtolap.sep.delivery.row_ranges import CLOCKS_APART_MS
from rtolap.sep.events.edit_batch import CellType
from rtolap.sep.listeners.event_columns import ColumnSource, EventColumns
from rtolap.sep.listeners.stored_table import StoredTableListener
from rtolap.sep.listeners.table_rows import TableRows

from tests.support.seeds import replay
from tests.support.sep.batches import Cell, Event
from tests.support.sep.delivery_runs import STEPS, DeliveryWorld, Killed, MakeJournal
from tests.support.sep.row_lives import ModelRows, drawn_cells, visible
from tests.support.sep.shipping import Edit
from tests.support.twins.loader_sink import MemorySink, Transaction

DATABASE, TABLE = "shop", "orders"
COLUMNS = EventColumns(
    {"a": ColumnSource(b"cf", b"a", "long"), "b": ColumnSource(b"cf", b"b", "string")}, ("id", "string")
)
MIRRORED = EventColumns(
    {"a": ColumnSource(b"cf", b"a", "long"), "b": ColumnSource(b"df", b"b", "string")}, ("id", "string")
)
_PROPERTIES = tuple(
    SchemaColumn(name, kind)
    for name, kind in (
        ("id", "VARCHAR"),
        ("a", "BIGINT"),
        ("b", "STRING"),
        ("sequence_id", "BIGINT"),
        ("region", "STRING"),
        ("late", "BOOLEAN"),
        ("operation", "STRING"),
    )
)
DUPLICATE = TableSchema(properties=_PROPERTIES)
UNIQUE = TableSchema(keys_type="UNIQUE_KEYS", properties=_PROPERTIES, sequence_column="sequence_id")
UNNUMBERED = TableSchema(keys_type="UNIQUE_KEYS", properties=_PROPERTIES)
CLOCK_BEHIND_MS = CLOCKS_APART_MS - 1
Values = dict[str, Any]


class Change(NamedTuple):
    """What an edit does to a row: the values that it puts; none deletes the row."""

    puts: Values

    def cells(self, at_ms: int) -> tuple[Cell, ...]:
        if not self.puts:
            return (Cell(b"", timestamp_ms=at_ms, type=CellType.DELETE_FAMILY),)
        return tuple(
            Cell(name.encode(), _encoded(value), timestamp_ms=at_ms) for name, value in self.puts.items()
        )


def _encoded(value: int | str) -> bytes:
    return struct.pack(">q", value) if isinstance(value, int) else value.encode()


class FaultySink(MemorySink):
    """A front end behind a network that loses and delays."""

    def __init__(self, world: TableWorld, random: Random, nodes: Random) -> None:
        super().__init__(now_ms=lambda: world.clock.now_ms() - CLOCK_BEHIND_MS)
        self.options: dict[str, SendOptions] = {}
        self._world, self._random, self._nodes = world, random, nodes
        self._on_their_way: list[Callable[[], object]] = []

    def load(
        self, db: str, table: str, label: str, body: bytes, options: SendOptions, *, two_phase: bool = False
    ) -> LoadAnswer:
        def arrive() -> LoadAnswer:
            return MemorySink.load(self, db, table, label, body, options)

        self.options.setdefault(label, options)
        if self._nodes.random() < self._world.faults:
            self._world.happened["too few: nodes"] += 1
            return LoadAnswer(label=label, message="succ replica num 1 < quorum", code=Unavailable.code)
        fault = self._fault("load", ("killed", "lost", "killed later", "lost later", "half done", "aborted"))
        if fault.endswith("later"):
            self._on_their_way.append(arrive)
        if fault == "half done":
            begun = self.begin(db, table, label, options, two_phase=False)
            if isinstance(begun, Transaction):
                self._on_their_way.append(partial(self.finish, begun, body, options))
        if fault == "aborted":
            begun = self.begin(db, table, label, options, two_phase=False)
            self.abort_running()
            return begun if isinstance(begun, LoadAnswer) else self.finish(begun, body, options)
        if fault.startswith("killed"):
            raise Killed
        if fault:
            raise Unavailable(f"the request is {fault}")
        answer = arrive()
        match self._fault("answer", ("killed", "lost")):
            case "killed":
                raise Killed
            case "lost":
                raise Unavailable("the answer is lost")
        return answer

    def close_label(self, db: str, label: str) -> LoadState:
        fault = self._fault("close", ("killed", "lost", "killed after", "lost after"))
        if fault.endswith("after") or not fault:
            state = super().close_label(db, label)
        if fault.startswith("killed"):
            raise Killed
        if fault:
            raise Unavailable("nobody answers")
        return state

    def close(self) -> None: ...

    def arrive(self) -> None:
        """Let one of the requests arrive that are on their way; its sender has gone."""
        if self._on_their_way:
            self._on_their_way.pop(self._random.randrange(len(self._on_their_way)))()
            self._world.happened["arrived later"] += 1

    def settle(self) -> None:
        while self._on_their_way:
            self.arrive()
        self.publishes_late = False
        self.publish()

    def _fault(self, place: str, kinds: Sequence[str]) -> str:
        if self._random.random() >= self._world.faults * 3:
            return ""
        kind = self._random.choice(kinds)
        self._world.happened[f"{kind}: {place}"] += 1
        return kind


class TableWorld(DeliveryWorld):
    """The listener loads a table; `delivered` is what was committed there. No row is wrong, so that an event
    that is given up is lost."""

    pauses_ms = (1_000, 20_000, 60_000)
    policy = PoisonPolicy("skip", tries=1)

    def __init__(
        self,
        seed: int,
        make_memory: Callable[[], DeliveredEdits] = DeliveredEdits,
        make_journal: MakeJournal = Journal,
        make_listener: Callable[..., StoredTableListener] = StoredTableListener,
    ) -> None:
        self._seed = seed
        self._is_unique = seed % 2 == 1
        self._make_listener = make_listener
        self.sink = FaultySink(self, Random(f"sink {seed}"), Random(f"nodes {seed}"))
        unique = UNIQUE if seed % 3 else UNNUMBERED
        self.sink.tables[DATABASE, TABLE] = unique if self._is_unique else DUPLICATE
        self.sink.publishes_late = seed % 4 > 1
        super().__init__(seed, make_memory, make_journal)

    def step(self) -> None:
        if self.random.random() < 0.1:
            self.sink.arrive()
        elif self.random.random() < 0.1:
            self.sink.publish()
        else:
            super().step()

    def drain(self) -> None:
        self.faults = 0.0
        self.sink.settle()
        super().drain()
        self.happened["unique" if self._is_unique else "duplicate"] += 1

    def listener(self) -> Listener:
        schema = self.sink.schema(DATABASE, TABLE)
        source = ModelRows(self._written, ((b"cf", b"a"), (b"df", b"b")), self._meet_source)
        rows = TableRows(MIRRORED if self._is_unique else COLUMNS, schema, source)
        return self._make_listener(self.sink, DATABASE, TABLE, rows, self.clock, "sep")

    def events(self, edit: Edit) -> list[Event]:
        return [event._replace(cells=self._cells(edit, event.row)) for event in edit.events()]

    def delivered(self) -> list[tuple[EventKey, bool]]:
        return [(_key(row), row["late"]) for _, row in self._loaded()]

    def check(self) -> None:
        if self._is_unique:
            self._check_unique()
            return
        super().check()
        self._check_duplicate()

    def _meet_source(self) -> None:
        if self.random.random() < self.faults:
            self.happened["away: rows"] += 1
            raise Unavailable("the region is on its way")

    def _cells(self, edit: Edit, row: bytes) -> tuple[Cell, ...]:
        """Return the same cells each time."""
        if not self._is_unique:
            return self._change(edit, row).cells(edit.write_time_ms)
        random = Random(f"{self._seed}/{edit.region}/{edit.sequence_id}/{row!r}")
        return drawn_cells(random, edit.write_time_ms)

    def _written(self, row: bytes) -> list[tuple[int, tuple[Cell, ...]]]:
        """Return what HBase has written to the row by now."""
        edits = enumerate(self.shipping.written)
        return [(order, self._cells(edit, row)) for order, edit in edits if row in edit.rows]

    def _change(self, edit: Edit, row: bytes) -> Change:
        """Return the same change each time."""
        random = Random(f"{self._seed}/{edit.region}/{edit.sequence_id}/{row!r}")
        columns = random.choice((("a", "b"), ("a", "b"), ("a",), ("b",), ()))
        values = {"a": edit.sequence_id, "b": f"{edit.region}/{edit.sequence_id}"}
        return Change({name: values[name] for name in columns})

    def _loaded(self) -> list[tuple[SendOptions, Values]]:
        return [(self.sink.options[each.label], row) for each in self.sink.committed for row in each.rows]

    def _check_duplicate(self) -> None:
        expected = {
            (edit.region, edit.sequence_id, row): self._change(edit, row).puts
            for edit in self.shipping.written
            for row in edit.rows
        }
        for _, row in self._loaded():
            puts = expected[_key(row)]
            found = {name: row[name] for name in ("a", "b") if row[name] is not None}
            assert found == puts, f"other values than in HBase: {row}"
            assert row["operation"] == ("put" if puts else "delete"), row

    def _check_unique(self) -> None:
        """Check that each row is what a read of HBase finds, cell by cell."""
        expected: dict[bytes, Values] = {}
        for row in {row for edit in self.shipping.written for row in edit.rows}:
            state = visible(self._written(row))
            a, b = state.get((b"cf", b"a")), state.get((b"df", b"b"))
            if state:
                number = None if a is None else struct.unpack(">q", a)[0]
                expected[row] = {"a": number, "b": None if b is None else b.decode()}
            self.happened["rows that are gone" if not state else "rows as in HBase"] += 1
        assert _merged(self._loaded()) == expected, "other rows than in HBase"
        if self.sink.tables[DATABASE, TABLE].sequence_column is not None:
            numbers = [row["sequence_id"] for _, row in self._loaded()]
            assert numbers == sorted(numbers), "a load has a lower number than one before it"
        self.happened["events"] += sum(len(edit.rows) for edit in self.shipping.written)


def _merged(loaded: Sequence[tuple[SendOptions, Mapping[str, Any]]]) -> dict[bytes, Values]:
    """Return the rows of a unique table: the last load decides."""
    table: dict[bytes, Values | None] = {}
    for options, row in loaded:
        assert not options.headers.get("partial_columns"), "whole rows are loaded"
        is_gone = options.headers.get("merge_type") == "DELETE"
        table[row["id"].encode()] = None if is_gone else {name: row[name] for name in ("a", "b")}
    return {key: values for key, values in table.items() if values is not None}


def _key(row: Mapping[str, Any]) -> EventKey:
    return row["region"], row["sequence_id"], row["id"].encode()


def run_seed(
    seed: int,
    steps: int = STEPS,
    make_memory: Callable[[], DeliveredEdits] = DeliveredEdits,
    make_journal: MakeJournal = Journal,
    make_listener: Callable[..., StoredTableListener] = StoredTableListener,
) -> Counter[str]:
    world = TableWorld(seed, make_memory, make_journal, make_listener)
    for _ in range(steps):
        world.step()
    world.drain()
    world.check()
    return world.happened


if __name__ == "__main__":
    replay(__doc__, run_seed, STEPS)
