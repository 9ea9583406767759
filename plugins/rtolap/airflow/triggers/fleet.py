"""Waits for the state of a Kafka cluster: the looks of `fleet_looks`, in the triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from rtolap.airflow.errors import FINAL
from rtolap.airflow.fleet_looks import LookResult, look
from rtolap.airflow.hooks.on_demand import open_fleet
from rtolap.airflow.triggers.base import FieldTrigger, ProgressLog
from rtolap.base.errors import RtolapError
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

if TYPE_CHECKING:
    from rtolap.airflow.hooks.fleet import FleetHook


@dataclass(kw_only=True, eq=False, repr=False)
class FleetTrigger(FieldTrigger):
    """Fires {"result"} once the look called `look_name` sees the awaited state, and {"failed"} with the
    reason once it never will. It waits for a cluster that does not answer, up to the sensor's time-out."""

    look_name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    cluster: str = DEFAULT_KAFKA_CLUSTER
    kafka_conn_id: str | None = None
    poll_s: float = 60.0

    async def run(self) -> AsyncIterator[TriggerEvent]:
        hook = await asyncio.to_thread(open_fleet, self.cluster, self.kafka_conn_id)  # its clients block
        await hook.load()
        progress = ProgressLog(self.log)
        while True:
            try:
                seen = await asyncio.to_thread(self._look, hook)
            except FINAL as error:
                yield TriggerEvent({"failed": str(error)})
                return
            except RtolapError as error:
                self.log.warning("cluster %s is waited for: %s", self.cluster, error)
            else:
                if seen.failed is not None:
                    yield TriggerEvent({"failed": seen.failed})
                    return
                if seen.done:
                    yield TriggerEvent({"result": seen.result})
                    return
                progress.info(seen.text)
            await asyncio.sleep(self.poll_s)

    def _look(self, hook: FleetHook) -> LookResult:
        with hook.opened() as fleet:
            return look(fleet, self.look_name, self.arguments)
