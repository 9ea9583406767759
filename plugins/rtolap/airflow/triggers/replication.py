"""Triggers of HBase's replication: what was written before an instant is delivered, all is caught up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from rtolap.airflow.hooks.hbase_connection import HBASE_DEFAULT, DueArguments
from rtolap.airflow.hooks.on_demand import open_replication
from rtolap.airflow.triggers.base import FieldTrigger, ProgressLog
from rtolap.airflow.words import iso
from rtolap.base.clock import SystemClock
from rtolap.base.errors import RtolapError, Unavailable


@dataclass(kw_only=True, eq=False, repr=False)
class ReplicationWaitTrigger(FieldTrigger):
    """A trigger that fires {"peer": …} once no log that was `due` stands in a queue of the peer.

    `due` has the logs that were noted at the instant, so that a change of triggerer waits for the same ones;
    it is None where the instant `before_ms` is yet to come. It waits for an HBase that does not answer; the
    sensor's time-out ends the wait.
    """

    peer: str
    before_ms: int
    due: DueArguments | None = None
    poll_s: float = 5.0
    hbase_conn_id: str = HBASE_DEFAULT

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(max(0, self.before_ms - SystemClock().now_ms()) / 1000)
        progress = ProgressLog(self.log)
        due = self.due
        replication = await asyncio.to_thread(open_replication, self.hbase_conn_id)  # its client blocks
        await replication.load()
        try:
            while True:
                try:
                    if due is None:
                        due = await asyncio.to_thread(replication.due, self.peer, self.before_ms)
                    due = await asyncio.to_thread(replication.advance, due)
                except Unavailable as error:
                    self.log.warning("HBase is waited for: %s", error)
                else:
                    if not due["logs"]:
                        yield TriggerEvent({"peer": self.peer})
                        return
                    progress.info(f"{self.peer}: {len(due['logs'])} logs are not delivered yet")
                await asyncio.sleep(self.poll_s)
        finally:
            await asyncio.to_thread(replication.close)


@dataclass(kw_only=True, eq=False, repr=False)
class CaughtUpTrigger(FieldTrigger, BaseEventTrigger):
    """Fires {"subscription", "at"} when all queues of a subscription have nothing to replicate, after they
    had; and once for each that is so when it begins, or after a change of triggerer.

    Region servers report it every few seconds. `ReplicationWaitSensor` waits until all edits that were
    written before an instant are delivered.
    """

    poll_s: float = 10.0
    hbase_conn_id: str = HBASE_DEFAULT

    async def run(self) -> AsyncIterator[TriggerEvent]:
        replication = await asyncio.to_thread(open_replication, self.hbase_conn_id)  # its client blocks
        await replication.load()
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
