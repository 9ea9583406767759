"""The trigger of moves of partitions: it waits until the new assignment stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from airflow.triggers.base import TriggerEvent

from rtolap.airflow.triggers.base import ProgressLog, RtolapTrigger
from rtolap.base.errors import Unavailable
from rtolap.protocols.coordinator.messages import CubeStatus


@dataclass(kw_only=True, eq=False, repr=False)
class MoveTrigger(RtolapTrigger):
    """Fires {"stands", "found"} once the assignment of `epoch` stands, or was given up.

    It waits for a coordinator that does not answer; the sensor's time-out ends the wait.
    """

    cube: str
    epoch: int

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._hook.load()
        progress = ProgressLog(self.log)
        async with self._hook.async_coordinator() as coordinator:
            while True:
                try:
                    status = await coordinator.cube(self.cube)
                except Unavailable as error:
                    self.log.warning("cube %s cannot be looked at: %s", self.cube, error)
                else:
                    stands = move_stands(status, self.epoch)
                    if stands is not None:
                        yield TriggerEvent({"stands": stands, "found": move_state(status)})
                        return
                    progress.info(move_state(status))
                await asyncio.sleep(self.poll_s)


def move_stands(status: CubeStatus, epoch: int) -> bool | None:
    """Return True once the assignment of `epoch` stands, False if its move was given up, None meanwhile."""
    if status.assignment_epoch >= epoch:
        return True
    return None if status.next_epoch == epoch else False


def move_state(status: CubeStatus) -> str:
    waits = f"; waits for: {'; '.join(status.move_waits)}" if status.move_waits else ""
    planned = f", assignment {status.next_epoch} is prepared" if status.next_epoch is not None else ""
    return f"cube {status.name} follows assignment {status.assignment_epoch}{planned}{waits}"
