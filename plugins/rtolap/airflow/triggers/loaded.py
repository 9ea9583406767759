"""Triggers of loaded tables: a loader is far enough, partitions are complete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from rtolap.airflow.completeness import CaughtUp, LoadedTableProgress, behind, complete_until_ms
from rtolap.airflow.declared import RunningLoader, loader_of
from rtolap.airflow.triggers.base import ProgressLog, RtolapTrigger
from rtolap.airflow.words import iso
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.model.stored.partitions import PartitionRange
from rtolap.protocols.coordinator.client import AsyncCoordinatorClient
from rtolap.protocols.loader.messages import LoaderStatus


@dataclass(kw_only=True, eq=False, repr=False)
class LoadedTrigger(RtolapTrigger):
    """A trigger that fires `outcome` once `offsets` are reached. Without them, it fires once everything is
    loaded that was in the topic at `until_ms`, by the clock. Partitions are strings, as JSON has them.

    It waits for a loader that does not answer, which may be starting again; the sensor's time-out ends the
    wait.
    """

    loader: str
    port: int
    until_ms: int | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        if self.until_ms is not None:
            await asyncio.sleep(max(0.0, self.until_ms / 1000 - time.time()))
        await self._hook.load()
        topic, progress = CaughtUp(), ProgressLog(self.log)
        async with self._hook.async_loader(self.port) as loader:
            while True:
                try:
                    status = await loader.status()
                except Unavailable as error:
                    self.log.warning("loader %s is waited for: %s", self.loader, error)
                else:
                    if self._reached(status, topic):
                        yield TriggerEvent(outcome(status))
                        return
                    progress.info(words(status, offsets_of(self.offsets)))
                await asyncio.sleep(self.poll_s)

    def _reached(self, status: LoaderStatus, topic: CaughtUp) -> bool:
        if self.offsets:
            return not behind(status, offsets_of(self.offsets))
        return topic.observe(status)


def offsets_of(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


def outcome(status: LoaderStatus) -> dict[str, Any]:
    """Return the result of a task that has waited for a loader; partitions as JSON has them.

    `rows` counts what the loader's processes have loaded since they started.
    """
    return {
        "loaded": {str(partition): offset for partition, offset in sorted(status.visible.items())},
        "loader": status.job,
        "topic": status.topic,
        "database": status.database,
        "table": status.table,
        "rows": status.rows_loaded,
        "kafka_cluster": status.kafka_cluster,
        "target": status.target,
        "server": status.server,
    }


def words(status: LoaderStatus, offsets: Mapping[int, int]) -> str:
    """Describe how far the loader is: to `offsets`, or to the end of its topic where none are given."""
    ends = offsets or status.log_ends
    missing = ", ".join(
        f"partition {partition} can be read up to {at} of {ends[partition]}"
        for partition, at in behind(status, ends).items()
    )
    reason = f": {status.reason}" if status.reason else ""
    return f"loader {status.job} is {status.state}{reason}; {missing or 'all can be read'}"


@dataclass(kw_only=True, eq=False, repr=False)
class PartitionsTrigger(RtolapTrigger, BaseEventTrigger):
    """Fires {"loader", "database", "table", "partition", "start", "end"} for each partition that is complete.

    It looks at all loaders on the agent that say by which rule their tables are complete. When it begins, and
    after a change of triggerer, the last complete partition of each table is announced once more: an event
    says that all is complete up to there. Requests without a response are retried without end.
    """

    poll_s: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._tables: dict[str, LoadedTableProgress] = {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._hook.load()
        async with self._hook.async_coordinator() as coordinator, self._hook.async_agent() as agent:
            while True:
                try:
                    running = [loader_of(status) for status in await agent.processes() if status.is_live]
                except RtolapError as error:
                    self.log.warning("the agent cannot be asked for loaders: %s", error)
                    running = []
                for loader in running:
                    if loader is None or loader.complete is None:
                        continue
                    try:
                        progress_found = await self._look(loader, coordinator)
                    except RtolapError as error:
                        self.log.warning("loader %s: %s", loader.name, error)
                        continue
                    for event in progress_found:
                        yield event
                await asyncio.sleep(self.poll_s)

    async def _look(self, loader: RunningLoader, coordinator: AsyncCoordinatorClient) -> list[TriggerEvent]:
        assert loader.complete is not None
        until_ms = await complete_until_ms(coordinator, loader.complete)
        async with self._hook.async_loader(loader.port) as client:
            status = await client.status()
        progress = self._tables.setdefault(loader.name, LoadedTableProgress())
        found_progress = progress.observe(status, loader.complete.unit, until_ms)
        return [_event(loader, status.database, status.table, partition) for partition in found_progress]


def _event(loader: RunningLoader, database: str, table: str, partition: PartitionRange) -> TriggerEvent:
    return TriggerEvent(
        {
            "loader": loader.name,
            "database": database,
            "table": table,
            "partition": partition.name,
            "start": iso(partition.start_ms),
            "end": iso(partition.end_ms),
        }
    )
