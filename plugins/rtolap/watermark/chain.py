"""Downstream of another system: its producers state their global low watermark in every record, and in a
control record a second to every partition.

Of a producer in a partition the latest generation counts, and of that the largest watermark; together the
smallest. A partition in which a producer has no statement yet is unknown, so that is the whole. Where its
generation has ended, nothing of it is to come, so it is not waited for there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class ProducerStatement(NamedTuple):
    """A statement of a producer, in the order in which a later one replaces an earlier one. Without a
    watermark: -1."""

    generation: int
    watermark_ms: int
    ended: bool


UNKNOWN_MS = -1


class Chain:
    """The watermarks that one reader of `partitions` has read. Order and repetition of records make no
    difference."""

    def __init__(self, partitions: Iterable[int], producers: Iterable[str]) -> None:
        self._partitions = frozenset(partitions)
        self._statements: dict[str, dict[int, ProducerStatement]] = {producer: {} for producer in producers}
        self._published_ms: int | None = None

    @property
    def producers(self) -> tuple[str, ...]:
        return tuple(self._statements)

    def observe(
        self,
        producer: str,
        partition: int,
        watermark_ms: int | None,
        generation: int = 0,
        *,
        ended: bool = False,
    ) -> None:
        """Note a statement in a record of that partition. An unknown producer joins."""
        if partition not in self._partitions:
            return  # given away meanwhile: another consumer reads it
        statements = self._statements.setdefault(producer, {})
        new = ProducerStatement(generation, UNKNOWN_MS if watermark_ms is None else watermark_ms, ended)
        statements[partition] = max(statements.get(partition, new), new)

    def join(self, producer: str) -> None:
        self._statements.setdefault(producer, {})

    def leave(self, producer: str) -> None:
        """Forget a producer that has ended, or whose lease has; its statements no longer count."""
        self._statements.pop(producer, None)

    def assign(self, partitions: Iterable[int]) -> None:
        """Read these partitions from now on, and forget those that are given away."""
        self._partitions = frozenset(partitions)
        for statements in self._statements.values():
            for partition in statements.keys() - self._partitions:
                del statements[partition]

    def statement_of(self, producer: str, partition: int) -> ProducerStatement | None:
        return self._statements.get(producer, {}).get(partition)

    def watermark_ms(self) -> int | None:
        """Return the watermark, which never falls; None while unknown."""
        if self._statements and self._partitions and not self.missing_statements():
            statements = [
                statement
                for by_partition in self._statements.values()
                for statement in by_partition.values()
                if not statement.ended
            ]
            least = min((statement.watermark_ms for statement in statements), default=None)
            if least is not None:
                self._published_ms = least if self._published_ms is None else max(least, self._published_ms)
        return self._published_ms

    def missing_statements(self) -> Mapping[str, tuple[int, ...]]:
        """Return producer → partitions in which it has no statement yet."""
        missing_in = {}
        for producer, statements in self._statements.items():
            stated_in = {
                at
                for at, statement in statements.items()
                if statement.ended or statement.watermark_ms != UNKNOWN_MS
            }
            if missing := self._partitions - stated_in:
                missing_in[producer] = tuple(sorted(missing))
        return missing_in

    def ended(self) -> Mapping[str, int | None]:
        """Return the producers that have ended in all partitions read here.

        Each has its last watermark, None if it knew none.
        """
        ended: dict[str, int | None] = {}
        for producer, statements in self._statements.items():
            if (
                statements
                and statements.keys() == self._partitions
                and all(statement.ended for statement in statements.values())
            ):
                last_ms = min(statement.watermark_ms for statement in statements.values())
                ended[producer] = None if last_ms == UNKNOWN_MS else last_ms
        return ended
