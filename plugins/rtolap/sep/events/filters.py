"""Filters of a subscription on our side, beside those that HBase applies before it ships.

A filter takes a batch and returns the part of it that goes on; filters look at columns, never at one event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.model.subscription import Subscription
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.hbase.peers import DEFAULT_NAMESPACE

EditFilter = Callable[[EditBatch], EditBatch]


class TableFilter:
    """Keeps cells of the families of the tables: {`namespace:table` or `table`: families, none for all}."""

    def __init__(self, tables: Mapping[str, Collection[bytes]]) -> None:
        self._tables = {table: frozenset(families) for table, families in tables.items()}

    def __call__(self, batch: EditBatch) -> EditBatch:
        tables, families = batch.events["table"], batch.cells["family"]
        wanted = np.array(
            [
                [self._wants(table, family) for family in families.dictionary.to_pylist()]
                for table in tables.dictionary.to_pylist()
            ],
            bool,
        ).reshape(len(tables.dictionary), len(families.dictionary))
        if wanted.all():
            return batch
        table_of_cell = tables.indices.to_numpy()[batch.cells["event"].to_numpy()]
        return batch.filter_cells(wanted[table_of_cell, families.indices.to_numpy()])

    def _wants(self, table: str, family: bytes) -> bool:
        families = self._tables.get(table)
        return families is not None and (not families or family in families)


class FollowedTables:
    """Keeps events of tables that a subscription to namespaces, or to everything but some, follows.

    HBase ships no others. Edits of them that another sender ships are left out here.
    """

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __call__(self, batch: EditBatch) -> EditBatch:
        tables = batch.events["table"]
        wanted = np.array([self._follows(table) for table in tables.dictionary.to_pylist()], bool)
        return batch if wanted.all() else batch.filter(wanted[tables.indices.to_numpy()])

    def _follows(self, table: str) -> bool:
        subscription = self._subscription
        namespace = table.rpartition(":")[0] or DEFAULT_NAMESPACE
        if not subscription.follows_everything:
            return table in subscription.tables or namespace in subscription.namespaces
        families = subscription.exclude_tables.get(table)
        return families != () and namespace not in subscription.exclude_namespaces


class RowPrefixFilter:
    """Keeps events whose row begins with one of the prefixes."""

    def __init__(self, prefixes: Sequence[bytes]) -> None:
        if not prefixes:
            raise DefinitionError("a filter by row prefix has no prefix", expected="one or more")
        self._prefixes = tuple(prefixes)

    def __call__(self, batch: EditBatch) -> EditBatch:
        rows = batch.events["row"]
        wanted = np.zeros(batch.num_events, bool)
        for prefix in self._prefixes:
            wanted |= pc.starts_with(rows, prefix).to_numpy(zero_copy_only=False)
        return batch.filter(wanted)


class EventMaskFilter:
    """Keeps the events for which a user's function answers true: batch → a boolean for each event.

    DefinitionError: the function answers with anything else.
    """

    def __init__(self, name: str, mask: Callable[[EditBatch], NDArray[np.bool_] | pa.BooleanArray]) -> None:
        self._name, self._mask = name, mask

    def __call__(self, batch: EditBatch) -> EditBatch:
        answer = np.asarray(self._mask(batch))
        if answer.dtype != np.bool_ or answer.shape != (batch.num_events,):
            raise DefinitionError(
                f"the filter {self._name} does not answer as a filter",
                expected=f"{batch.num_events} booleans without nulls, one for each event",
                found=f"an array of {answer.dtype} and shape {answer.shape}",
            )
        return batch.filter(answer)
