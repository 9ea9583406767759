"""A random life of one tablet, held against the slow one: loads, crashes, a full disk, compaction."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from rtolap.base.errors import DefinitionError, NotFound, NotYet, Refused, StaleSnapshot, Unavailable
from rtolap.model.predicate import And, Compare, CompareOp, In, IsNull, Or, Predicate, Scalar
from rtolap.model.schema_changes import add_column, drop_column, rename_column
from rtolap.model.stored.schema import StoredSchema, initial_schema
from rtolap.model.stored.table import StoredTable, TableModel
from rtolap.stored.engine.rows.columns import read_schema
from rtolap.stored.engine.scan import TabletSnapshot
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.tablet import Tablet

from tests.support.stored.mortal_disk import Crash, MortalDisk
from tests.support.stored.tablet_oracle import Row, SlowTablet, keeps
from tests.support.stored.tablet_rows import (
    batch_of,
    expected,
    partial_rows,
    plain,
    random_row,
    random_table,
    random_value_column,
)

_OPS: tuple[CompareOp, ...] = ("eq", "ne", "lt", "le", "gt", "ge")
_ROWS_OF_A_BATCH = (1, 3, 8, 16)


def small_settings(rng: random.Random) -> TabletSettings:
    """Return settings by which some tens of rows have many blocks, files and merges."""
    return TabletSettings(
        memtable_bytes_max=3_000,
        merge_rows_max=rng.choice((20, 120)),
        compaction_bytes_max=200_000,
        compaction_files_min=3,
        block_rows=rng.choice((8, 16, 64)),
        log_bytes_max=1_500,
        rewrite_deleted_ppm=500_000,
    )


class TabletRun:
    """`play` goes on until so many batches have been loaded; every difference is an AssertionError."""

    def __init__(self, folder: Path, model: TableModel, seed: int, table: StoredTable | None = None) -> None:
        self.random = random.Random(f"{model} {seed}")
        self._root = folder / "tablet"
        self.disk = MortalDisk(folder / "graves", seed)
        schema = initial_schema(table or random_table(self.random, model))
        self.slow = SlowTablet(schema)
        self._settings = small_settings(self.random)
        self.tablet = Tablet.create(self._root, schema, self._settings, self.disk)
        self.waiting: dict[int, list[Row]] = {}  # prepared
        self._pins: list[tuple[TabletSnapshot, Counter[tuple[Any, ...]]]] = []
        self._next_txn = 1
        self.batches = self.partial_batches = self.crashes = self.failures = self.compactions = 0
        # What an interrupted step may have done: looked up after the crash.
        self._maybe_prepared: dict[int, list[Row]] = {}
        self._maybe_published: int | None = None
        self._maybe_aborted: int | None = None
        self._maybe_schema: StoredSchema | None = None

    def play(self, batches: int) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (30, self.load),
            (30, self.publish),
            (4, self.abort),
            (6, self.publish_wrongly),
            (4, self.change_schema),
            (10, self.compact),
            (7, self.read),
            (4, self.pin),
            (4, self.look_at_pins),
        ]
        chances = [chance for chance, _ in actions]
        while self.batches < batches:
            if self.random.random() < 0.08:
                self.disk.die_at = self.disk.operations + self.random.randint(1, 40)
            elif self.random.random() < 0.05:
                self.disk.fail_at = self.disk.operations + self.random.randint(1, 40)
            (_, action) = self.random.choices(actions, chances)[0]
            self.step(action)
        self.end()

    def end(self) -> None:
        """End the run without further faults: what waits is published, all is compacted and compared."""
        self.disk.die_at = self.disk.fail_at = self.disk.die_in_step = None
        while self.waiting:
            self.publish()
        self.check()
        while self.tablet.compact():
            self.check()
        self.reopen()
        self.check()
        self.tablet.close()

    def step(self, action: Callable[[], None]) -> None:
        """Perform an action, and what follows a crash or a failure in it."""
        try:
            action()
        except Crash:
            self.crashes += 1
            self.recover()
        except Unavailable:
            self.failures += 1
            assert self.tablet.status().stopped is None
            self._maybe_prepared, self._maybe_published = {}, None
            self._maybe_aborted, self._maybe_schema = None, None
            self.check()

    # What can happen

    def load(self) -> None:
        txn, self._next_txn = self._next_txn, self._next_txn + 1
        schema = self.tablet.schema
        partial = schema.model == "unique" and self.random.random() < 0.4
        named = [column.id for column in schema.columns if self.random.random() < 0.4] if partial else []
        transaction = self.tablet.begin(txn, partial=partial)
        rows: list[Row] = []
        for _ in range(self.random.randint(0, 3)):
            some = [random_row(self.random, schema) for _ in range(self.random.choice(_ROWS_OF_A_BATCH))]
            if partial:
                some = partial_rows(some, schema, named)
            transaction.add_rows(batch_of(some, schema))
            rows += some
            self.batches += 1
            self.partial_batches += partial
        if self.random.random() < 0.1:
            transaction.abort()
            return
        self._maybe_prepared = {txn: rows}
        transaction.prepare()
        self.waiting[txn], self._maybe_prepared = rows, {}

    def publish(self) -> None:
        if not self.waiting:
            return
        txn = self.random.choice(list(self.waiting))
        self._maybe_published = txn
        self.tablet.publish(txn, self.slow.version + 1)
        self._published(txn)
        if self.random.random() < 0.2:
            self.tablet.publish(txn, self.slow.version)  # again, harmless

    def publish_wrongly(self) -> None:
        version = self.slow.version
        if self.waiting:
            txn = next(iter(self.waiting))
            refused(NotYet, lambda: self.tablet.publish(txn, version + 2))
            refused(Refused, lambda: self.tablet.begin(txn))
            if version:
                refused(Refused, lambda: self.tablet.publish(txn, version))
        refused(NotFound, lambda: self.tablet.publish(10**6, version + 1))
        refused(NotYet, lambda: self.tablet.pin(version + 1))

    def abort(self) -> None:
        if not self.waiting:
            return
        txn = self.random.choice(list(self.waiting))
        self._maybe_aborted = txn
        self.tablet.abort(txn)
        del self.waiting[txn]
        self._maybe_aborted = None
        self.tablet.abort(txn)  # again, harmless
        refused(NotFound, lambda: self.tablet.publish(txn, self.slow.version + 1))

    def change_schema(self) -> None:
        now = self.tablet.schema
        name = self.random.choice(now.names)
        fresh = f"n{now.version}"
        try:
            match self.random.randint(0, 2):
                case 0:
                    changed = add_column(now, random_value_column(self.random, now.model, fresh))
                case 1:
                    changed = drop_column(now, name)
                case _:
                    changed = rename_column(now, name, fresh)
        except DefinitionError:
            return  # a key cannot be dropped
        self._maybe_schema = changed
        self.tablet.change_schema(changed)
        self.slow.change_schema(changed)
        self._maybe_schema = None

    def compact(self) -> None:
        self.disk.on_operation = self._publish_meanwhile
        try:
            self.compactions += self.tablet.compact()
        finally:
            self.disk.on_operation = lambda step: None
        self.check()

    def read(self) -> None:
        with self.tablet.pin() as snapshot:
            self._compare(snapshot, self.slow.rows_at(snapshot.version, snapshot.schema), self._predicate())
        old = self.random.randint(0, self.slow.version)
        if old < self.tablet.status().floor:
            refused(StaleSnapshot, lambda: self.tablet.pin(old))
        else:
            with self.tablet.pin(old) as snapshot:
                self._compare(snapshot, self.slow.rows_at(old, snapshot.schema), self._predicate())

    def pin(self) -> None:
        snapshot = self.tablet.pin()
        rows = expected(
            self.slow.rows_at(snapshot.version, snapshot.schema), snapshot.schema.names, snapshot.schema
        )
        self._pins.append((snapshot, rows))

    def look_at_pins(self) -> None:
        while self._pins:
            snapshot, rows = self._pins.pop()
            found = pa.Table.from_batches(list(snapshot.read()), _arrow(snapshot))
            assert plain(found, snapshot.schema) == rows
            snapshot.close()

    # How it is held against the slow one

    def check(self) -> None:
        assert self.tablet.version == self.slow.version
        assert self.tablet.status().prepared == tuple(sorted(self.waiting))
        assert self.tablet.schema == self.slow.schema
        with self.tablet.pin() as snapshot:
            self._compare(snapshot, self.slow.rows_at(snapshot.version, snapshot.schema), None)

    def recover(self) -> None:
        """Recover: the disk loses what was not synced; the tablet is opened, possibly several times."""
        self.tablet.close()
        self._pins.clear()
        self.disk.recover()
        while True:
            if self.random.random() < 0.3:
                self.disk.die_at = self.random.randint(1, 12)
            try:
                self.tablet = Tablet.open(self._root, self._settings, self.disk)
                self.disk.die_at = None
                break
            except Crash:
                self.disk.recover()
        if self._maybe_published is not None and self.tablet.version == self.slow.version + 1:
            self._published(self._maybe_published)
        for txn, rows in self._maybe_prepared.items():
            if txn in self.tablet.status().prepared:
                self.waiting[txn] = rows
        if self._maybe_aborted is not None and self._maybe_aborted not in self.tablet.status().prepared:
            self.waiting.pop(self._maybe_aborted, None)
        if self._maybe_schema is not None and self.tablet.schema == self._maybe_schema:
            self.slow.change_schema(self._maybe_schema)
        self._maybe_prepared, self._maybe_published = {}, None
        self._maybe_aborted, self._maybe_schema = None, None
        self.check()

    def reopen(self) -> None:
        for snapshot, _ in self._pins:
            snapshot.close()
        self._pins.clear()
        self.tablet.close()
        self.tablet = Tablet.open(self._root, self._settings, self.disk)

    def _published(self, txn: int) -> None:
        self.slow.publish(self.waiting.pop(txn))
        self._maybe_published = None

    def _publish_meanwhile(self, step: int | None) -> None:
        """Publish other transactions while a compaction writes."""
        if step == 10:
            self.disk.on_operation = lambda step: None
            self.publish()

    def _compare(
        self, snapshot: TabletSnapshot, rows: list[dict[str, Any]], predicate: Predicate | None
    ) -> None:
        schema = snapshot.schema
        names = list(schema.names)
        if predicate is not None:
            names = self.random.sample(names, self.random.randint(1, len(names)))
            rows = [row for row in rows if keeps(predicate, row)]
        written = None if predicate is None else _as_written(predicate)
        batches = list(snapshot.read(names, written))
        found = pa.Table.from_batches(batches, _arrow(snapshot, names))
        assert plain(found, schema) == expected(rows, names, schema), (snapshot.version, predicate)

    def _predicate(self) -> Predicate | None:
        """Return a predicate of Python values, or none: `_as_written` makes them what travels."""
        schema = self.tablet.schema
        candidates = [c for c in schema.columns if c.definition.type not in ("hll", "bitmap")]
        if not candidates or self.random.random() < 0.2:
            return None
        some = random_row(self.random, schema)
        if self.random.random() < 0.3 and schema.keys:  # a point
            return And(tuple(Compare(c.name, "eq", some[c.id]) for c in schema.key_columns))
        terms: list[Predicate] = []
        for column in self.random.choices(candidates, k=self.random.randint(1, 3)):
            match self.random.randint(0, 3):
                case 0:
                    terms.append(IsNull(column.name, negated=self.random.random() < 0.5))
                case 1:
                    values = [random_row(self.random, schema)[column.id] for _ in range(3)]
                    some_values = tuple(value for value in values if value is not None)
                    terms.append(In(column.name, some_values, negated=self.random.random() < 0.3))
                case _:
                    op: CompareOp = self.random.choice(_OPS)
                    terms.append(Compare(column.name, op, some[column.id]))
        return (Or if self.random.random() < 0.4 else And)(tuple(terms))


def refused(kind: type[Exception], action: Callable[[], object]) -> None:
    try:
        action()
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}")


def _arrow(snapshot: TabletSnapshot, names: list[str] | None = None) -> pa.Schema:
    return read_schema(snapshot.schema, names)


def _as_written(predicate: Predicate) -> Predicate:
    match predicate:
        case And(terms=terms):
            return And(tuple(_as_written(term) for term in terms))
        case Or(terms=terms):
            return Or(tuple(_as_written(term) for term in terms))
        case Compare(column=name, op=op, value=value):
            return Compare(name, op, _scalar(value))
        case In(column=name, values=values, negated=negated):
            return In(name, tuple(_scalar(value) for value in values), negated)
        case _:
            return predicate


def _scalar(value: Any) -> Scalar:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
