"""Announces partitions of tables that are complete. Feeds the asset watcher of loaded tables."""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger classes carry no annotations.)
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from rtolap.airflow.completeness import TableProgress, complete_until_ms
from rtolap.airflow.loaders import RunningLoader, loader_of
from rtolap.airflow.triggers.fields import RtolapTrigger
from rtolap.airflow.words import iso
from rtolap.base.errors import RtolapError
from rtolap.model.stored.partitions import PartitionRange
from rtolap.protocols.coordinator.client import AsyncCoordinatorClient


@dataclass(kw_only=True, eq=False, repr=False)
class PartitionsTrigger(RtolapTrigger, BaseEventTrigger):
    """Fires {"loader", "database", "table", "partition", "start", "end"} for each partition that is complete.

    Looks at all loaders that the agent runs and that say by what their tables are complete. When it begins,
    and after a change of triggerer, the last complete partition of each table is announced once more: an
    event says that all is complete up to there. Requests without a response are retried without end.
    """

    poll_s: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._tables: dict[str, TableProgress] = {}

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
        progress = self._tables.setdefault(loader.name, TableProgress())
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
