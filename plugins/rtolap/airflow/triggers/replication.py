"""Waits until what was written before an instant has been delivered to a peer of HBase."""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger classes carry no annotations.)
from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from airflow.triggers.base import TriggerEvent

from rtolap.airflow.hooks.on_demand import HBASE_DEFAULT, DueArguments, open_replication
from rtolap.airflow.triggers.fields import FieldTrigger
from rtolap.base.clock import SystemClock
from rtolap.base.errors import Unavailable

TELL_S = 60.0  # how often the task's log is told how far it is


@dataclass(kw_only=True, eq=False, repr=False)
class ReplicationWaitTrigger(FieldTrigger):
    """Fires {"peer": …} once no log that was `due` stands in a queue of the peer.

    `due`: what was noted at the instant, so that a change of triggerer waits for the same; None where the
    instant `before_ms` is yet to come. HBase that does not answer is waited for: the sensor's time-out ends
    that.
    """

    peer: str
    before_ms: int
    due: DueArguments | None = None
    poll_s: float = 5.0
    hbase_conn_id: str = HBASE_DEFAULT

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(max(0, self.before_ms - SystemClock().now_ms()) / 1000)
        told_s = 0.0
        due = self.due
        replication = await asyncio.to_thread(open_replication, self.hbase_conn_id)  # its client blocks
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
                    if time.monotonic() - told_s > TELL_S:
                        told_s = time.monotonic()
                        self.log.info("%s: %d logs are not delivered yet", self.peer, len(due["logs"]))
                await asyncio.sleep(self.poll_s)
        finally:
            await asyncio.to_thread(replication.close)
