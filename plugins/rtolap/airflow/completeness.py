"""Finds the partitions of a loaded table that are complete.

An application says up to where windows may close: their events are in the topic then. What was in the topic
at that moment has to be in the table too. So, each time the application allows another partition's end:

    1. request where the loader's topic ends now, in every partition (it queries the broker each time),
    2. the table's partition is complete once all up to there can be read in the table.
"""

from __future__ import annotations

from collections.abc import Mapping

from rtolap.airflow.declared import Completeness
from rtolap.airflow.windows import Window, explain_async
from rtolap.model.stored.partitions import PartitionRange, partition_of
from rtolap.model.stored.table import PartitionUnit
from rtolap.protocols.coordinator.client import AsyncCoordinatorClient
from rtolap.protocols.loader.messages import LoaderStatus

ANNOUNCED_MAX = 1_000  # partitions in one step, the newest: an application that jumps by years says no more


async def complete_until_ms(coordinator: AsyncCoordinatorClient, complete: Completeness) -> int | None:
    """Return the latest end of a partition whose events are all in the topic, or that a person approved.

    None where the application does not know yet. Raises NotFound for an application that does not exist.
    """
    marks = await coordinator.application_watermarks(complete.application)
    known = [
        at_ms
        for at_ms in (
            None if marks.global_ms is None else marks.global_ms - complete.lateness_ms,
            marks.approved_until_ms,
        )
        if at_ms is not None
    ]
    if not known:
        return None
    end_ms = partition_of(max(known), complete.unit).start_ms
    explanation = await explain_async(coordinator, Window(complete.application, end_ms, complete.lateness_ms))
    return end_ms if explanation.may_close else None


class CaughtUp:
    """A check that says when the table shows all records that were in the loader's topic at the first
    look."""

    def __init__(self) -> None:
        self._ends: dict[int, int] | None = None

    def observe(self, status: LoaderStatus) -> bool:
        if self._ends is None and status.lag_records is not None:
            self._ends = dict(status.log_ends)
        return self._ends is not None and not behind(status, self._ends)


def behind(status: LoaderStatus, ends: Mapping[int, int]) -> dict[int, int]:
    """Return how far each partition can be read that cannot be read up to `ends`. A row may be loaded for a
    while before it is visible."""
    return {
        partition: status.visible.get(partition, 0)
        for partition, end in sorted(ends.items())
        if status.visible.get(partition, 0) < end
    }


class LoadedTableProgress:
    """The progress of one table, between two looks. It is pure except for its memory."""

    def __init__(self) -> None:
        self._announced_ms: int | None = None
        self._wanted_ms: int | None = None
        self._topic = CaughtUp()

    def observe(
        self, status: LoaderStatus, unit: PartitionUnit, until_ms: int | None
    ) -> list[PartitionRange]:
        """Return partitions that are complete and were not announced, in order; at first the last one only.

        `until_ms`: see `complete_until_ms`; `status` was requested after it was known.
        """
        if self._wanted_ms is None and until_ms is not None and until_ms != self._announced_ms:
            self._wanted_ms, self._topic = until_ms, CaughtUp()
        if self._wanted_ms is None or not self._topic.observe(status):
            return []
        complete_ms, before_ms = self._wanted_ms, self._announced_ms
        self._announced_ms, self._wanted_ms = complete_ms, None
        return _between(before_ms, complete_ms, unit)


def _between(before_ms: int | None, complete_ms: int, unit: PartitionUnit) -> list[PartitionRange]:
    ranges: list[PartitionRange] = []
    end_ms = complete_ms
    while len(ranges) < ANNOUNCED_MAX and (not ranges or (before_ms is not None and end_ms > before_ms)):
        partition = partition_of(end_ms - 1, unit)
        ranges.append(partition)
        end_ms = partition.start_ms
    return ranges[::-1]
