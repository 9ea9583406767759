"""Announces subscriptions that have caught up with HBase. Feeds the asset watcher of subscriptions."""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger classes carry no annotations.)
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from rtolap.airflow.hooks.on_demand import HBASE_DEFAULT, open_replication
from rtolap.airflow.triggers.fields import FieldTrigger
from rtolap.airflow.words import iso
from rtolap.base.clock import SystemClock
from rtolap.base.errors import RtolapError


@dataclass(kw_only=True, eq=False, repr=False)
class CaughtUpTrigger(FieldTrigger, BaseEventTrigger):
    """Fires {"subscription", "at"} when all queues of a subscription have nothing to replicate, after they
    had; and once for each that is so when it begins, or after a change of triggerer.

    That is as region servers report it, every few seconds. Whoever must know that what was written before an
    instant is delivered waits by `ReplicationWaitSensor`.
    """

    poll_s: float = 10.0
    hbase_conn_id: str = HBASE_DEFAULT

    async def run(self) -> AsyncIterator[TriggerEvent]:
        replication = await asyncio.to_thread(open_replication, self.hbase_conn_id)  # its client blocks
        announced: set[str] = set()
        try:
            while True:
                try:
                    states = await asyncio.to_thread(replication.caught_up)
                except RtolapError as error:
                    self.log.warning("HBase cannot be asked for its queues: %s", error)
                else:
                    caught_up = {name for name, is_so in states.items() if is_so}
                    for name in sorted(caught_up - announced):
                        yield TriggerEvent({"subscription": name, "at": iso(SystemClock().now_ms())})
                    announced = caught_up
                await asyncio.sleep(self.poll_s)
        finally:
            await asyncio.to_thread(replication.close)
