"""A trigger of stored tables: new versions, whoever has loaded them, by a loader or by Stream Load."""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger classes carry no annotations.)
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from rtolap.airflow.triggers.base import RtolapTrigger
from rtolap.base.decoding import convert
from rtolap.base.errors import RtolapError
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stored_tables.messages import TableName

ANSWER_S = 5.0
_KEY = "announced_versions"


@dataclass(kw_only=True, eq=False, repr=False)
class TableVersionTrigger(RtolapTrigger, BaseEventTrigger):
    """Fires {"database", "table", "version", "partitions"} when readers see new versions of a table.

    `version` sums the versions of its partitions: each commit raises it by the partitions that it touches.
    `partitions` are the raised ones with their versions. Commits between two looks are one event. What was
    fired is kept with the asset, so that another triggerer goes on where the former one ended. Requests
    without a response are retried without end.
    """

    database: str
    table: str

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._hook.load()
        known = await self._kept()
        client = await asyncio.to_thread(self._hook.stored_tables, read_timeout_s=ANSWER_S, retry_s=0.0)
        try:
            while True:
                try:
                    found = await asyncio.to_thread(self._look, client)
                except RtolapError as error:
                    self.log.warning("%s.%s cannot be asked for: %s", self.database, self.table, error)
                else:
                    raised = {name: at for name, at in sorted(found.items()) if at > known.get(name, 0)}
                    if raised:
                        yield TriggerEvent(self._told(found, raised))
                    if found != known:
                        known = found
                        await self._keep(known)
                await asyncio.sleep(self.poll_s)
        finally:
            await asyncio.to_thread(client.close)

    def _look(self, client: StoredTablesClient) -> dict[str, int]:
        parts = client.partitions(TableName(self.database, self.table))
        return {part.range.name: part.visible_version for part in parts}

    def _told(self, found: Mapping[str, int], raised: Mapping[str, int]) -> dict[str, Any]:
        return {
            "database": self.database,
            "table": self.table,
            "version": sum(found.values()),
            "partitions": dict(raised),
        }

    async def _kept(self) -> dict[str, int]:
        """Return the versions that were fired; none where Airflow keeps no state for this trigger."""
        if self.asset_state_store is None:
            return {}
        kept = await self.asset_state_store.aget(_KEY, default={})
        try:
            return convert(kept, dict[str, int])
        except msgspec.ValidationError:
            self.log.warning("what is kept of %s.%s is in no form: %r", self.database, self.table, kept)
            return {}

    async def _keep(self, versions: Mapping[str, int]) -> None:
        if self.asset_state_store is not None:
            await self.asset_state_store.aset(_KEY, dict(versions))
