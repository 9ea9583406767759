"""Rows of a real HBase that are put in part, deleted and put again, and a stored table that follows them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from random import Random

from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient
from tests.support.hbase.client_pb2 import MutationProto

State = tuple[int | None, str | None]  # of the columns `a` and `b`
ROWS = [f"row-{number}" for number in range(10)]
ABSENT: State = (None, None)  # HBase has no row without a cell


class RewrittenRows:
    """`stored` reads the table: by row, its columns `a` and `b`."""

    def __init__(
        self, client: HBaseClient, table: str, random: Random, stored: Callable[[], Mapping[str, State]]
    ) -> None:
        self._client, self._table, self._random, self._stored = client, table, random, stored
        self._states: dict[str, list[State]] = {row: [ABSENT] for row in ROWS}
        self._seen = dict.fromkeys(ROWS, 0)  # which of its states each row of the stored table had last
        self._last = ""
        self._written = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            # not twice in a row: HBase lets a delete win over a put of the same millisecond
            self._write_to(self._random.choice([row for row in ROWS if row != self._last]))

    def look(self) -> bool:
        """Return True where the stored table equals a scan of HBase. Until then each of its rows is as HBase
        had it once, and not as it was before what the last look has seen."""
        stored = {row: state for row, state in self._stored().items() if state != ABSENT}
        for row, states in self._states.items():
            found = stored.get(row, ABSENT)
            later = states[self._seen[row] :]
            assert found in later, f"{row} is {found}; it was {states}, seen as the {self._seen[row]}th"
            self._seen[row] += later.index(found)
        return stored == self._scanned()

    def _write_to(self, row: str) -> None:
        self._last, at = row, self._written
        self._written += 1
        mutation, state = self._drawn(row, at)
        self._client.write(self._table, mutation)
        self._states[row].append(state)

    def _drawn(self, row: str, at: int) -> tuple[MutationProto, State]:
        key, (a, b) = row.encode(), self._states[row][-1]
        kind = self._random.random()
        if kind < 0.1:
            return mutations.delete_row(key), ABSENT
        if kind < 0.2:
            return mutations.delete_column(key, "cf:b"), (a, None)
        text = f"text {at}"
        columns = self._random.choice(("a", "b", "ab"))
        values = {"a": struct.pack(">q", at), "b": text.encode()}
        put = mutations.put(key, {f"cf:{name}": values[name] for name in columns})
        return put, (at if "a" in columns else a, text if "b" in columns else b)

    def _scanned(self) -> dict[str, State]:
        rows: dict[str, State] = {}
        for row, cells in self._client.scan(self._table).items():
            a, b = cells.get("cf:a"), cells.get("cf:b")
            rows[row.decode()] = (
                None if a is None else struct.unpack(">q", a[1])[0],
                None if b is None else b[1].decode(),
            )
        return rows
