"""Waits until what reads a topic is near its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.triggers.base import TriggerEvent

from rtolap.airflow.hooks.on_demand import open_kafka
from rtolap.airflow.triggers.base import ProgressLog, RtolapTrigger
from rtolap.base.errors import Unavailable
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER


@dataclass(kw_only=True, eq=False, repr=False)
class LagTrigger(RtolapTrigger):
    """A trigger that fires {"lag": {partition: records}} once no partition of `topic` lags by more than
    `lag_max`.

    Positions are those of the receivers of `cube`, or of `loader` at `port`; the log's ends are requested
    from Kafka by its connection when the wait begins. It waits for peers that do not respond; the sensor's
    time-out ends the wait.
    """

    topic: str
    cube: str | None = None
    loader: str | None = None
    port: int = 0
    lag_max: int = 0
    kafka_cluster: str = DEFAULT_KAFKA_CLUSTER
    kafka_conn_id: str | None = None

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._hook.load()
        progress = ProgressLog(self.log)
        kafka = await asyncio.to_thread(
            open_kafka, self.kafka_cluster, self.kafka_conn_id
        )  # its client blocks
        await kafka.load()
        while True:
            try:
                ends = await asyncio.to_thread(kafka.log_ends, self.topic)
                partition_lags = lag(ends, await self._positions())
            except Unavailable as error:
                self.log.warning("%s is waited for: %s", self.cube or self.loader, error)
            else:
                if reached(partition_lags, self.lag_max):
                    yield TriggerEvent(outcome(partition_lags))
                    return
                progress.info(f"{self.cube or self.loader}: {words(partition_lags, self.lag_max)}")
            await asyncio.sleep(self.poll_s)

    async def _positions(self) -> Mapping[int, int]:
        if self.cube is None:
            async with self._hook.async_loader(self.port) as loader:
                return (await loader.status()).loaded
        async with self._hook.async_coordinator() as coordinator:
            partitions = (await coordinator.watermark(self.cube)).partitions
        return {partition: report.position for partition, report in partitions.items()}


def lag(ends: Mapping[int, int], positions: Mapping[int, int]) -> dict[int, int | None]:
    """Partition → records that are not read yet; None where no position is known."""
    return {
        partition: max(0, end - positions[partition]) if partition in positions else None
        for partition, end in sorted(ends.items())
    }


def reached(partition_lags: Mapping[int, int | None], lag_max: int) -> bool:
    return all(records is not None and records <= lag_max for records in partition_lags.values())


def outcome(partition_lags: Mapping[int, int | None]) -> dict[str, Any]:
    """Return the result of a task that has waited for a lag; partitions as JSON has them."""
    return {"lag": {str(partition): records for partition, records in partition_lags.items()}}


def words(partition_lags: Mapping[int, int | None], lag_max: int) -> str:
    behind = ", ".join(
        f"partition {partition} " + ("has no reader" if records is None else f"lags by {records} records")
        for partition, records in partition_lags.items()
        if records is None or records > lag_max
    )
    return f"{behind or 'no partition lags'}; expected a lag of at most {lag_max}"
