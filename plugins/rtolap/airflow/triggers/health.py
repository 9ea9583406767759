"""Logs each change of a service's health once, in the log of the task that waits for it."""

from __future__ import annotations

import time
from typing import Any

from rtolap.airflow.declared import loader_of, receiver_of
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.base.errors import RtolapError
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.loader.messages import LoaderStatus

LOOK_S = 15.0


class HealthLog:
    """Follows the health of receivers, as the coordinator has it, and the state of loaders."""

    def __init__(self, hook: RtolapHook, log: Any) -> None:
        self._hook = hook
        self._log = log
        self._looked_s = -LOOK_S
        self._last = ""

    async def look(self, status: ProcessStatus) -> None:
        """Log the health of the process if it has changed; that it does not answer is a change, too."""
        if time.monotonic() - self._looked_s < LOOK_S:
            return
        self._looked_s = time.monotonic()
        try:
            said = await self._said(status)
        except RtolapError as error:
            said = f"health unknown: {error}"
        if said and said != self._last:
            self._log.info("%s: %s", status.key, said)
            self._last = said

    async def _said(self, status: ProcessStatus) -> str:
        """Return "" for a process of another kind."""
        receiver, loader = receiver_of(status), loader_of(status)
        if receiver is not None:
            async with self._hook.async_coordinator() as coordinator:
                infos = [info for info in await coordinator.receivers() if info.receiver_id == receiver]
            return f"{infos[0].health} {infos[0].reason}".strip() if infos else "not registered yet"
        if loader is not None:
            async with self._hook.async_loader(loader.port) as client:
                reported = await client.status()
            return ", ".join(
                filter(
                    None,
                    (
                        reported.state,
                        reported.phase,
                        processes_of(reported),
                        reported.reason or reported.last_error,
                    ),
                )
            )
        return ""


def processes_of(status: LoaderStatus) -> str:
    """Return which process has which partitions of a loader's topic; "" for a loader with one process."""
    parts = [
        f"process {process.number}: "
        + (f"partitions {_ranges(process.partition_numbers)}" if process.alive else "does not answer")
        for process in status.processes
    ]
    return f"{'; '.join(parts)}; {status.processes_wanted} wanted" if parts else ""


def _ranges(partitions: tuple[int, ...]) -> str:
    return " ".join(map(str, partitions)) or "none"
