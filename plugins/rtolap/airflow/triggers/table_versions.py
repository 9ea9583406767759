"""A trigger of stored tables: new versions, whoever has loaded them, by a loader or by Stream Load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from rtolap.airflow.triggers.base import RtolapTrigger
from rtolap.base.decoding import convert
from rtolap.base.errors import NotFound, RtolapError
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stored_tables.messages import LoadedVersions, LoadedVersionsRequest, TableName

ANSWER_S = 5.0
_KEY, _INCARNATIONS_KEY = "announced_versions", "announced_incarnations"


@dataclass(kw_only=True, eq=False, repr=False)
class TableVersionTrigger(RtolapTrigger, BaseEventTrigger):
    """Fires {"database", "table", "version", "partitions", "rows"} when readers see new versions of a table.

    `version` sums the versions of its partitions: each commit raises it by the partitions that it touches.
    `partitions` are the raised ones with their versions. `rows` counts the rows that were loaded in these
    versions; None where the front ends do not know it any more, as in the first event of a table. Commits
    between two looks are one event. What was fired is kept with the asset, so that another triggerer goes on
    where the former one ended. Requests without a response are retried without end.
    """

    database: str
    table: str

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._hook.load()
        known, incarnations = await self._kept(_KEY), await self._kept(_INCARNATIONS_KEY)
        client = await asyncio.to_thread(self._hook.stored_tables, read_timeout_s=ANSWER_S, retry_s=0.0)
        try:
            while True:
                try:
                    asked = LoadedVersionsRequest(known, incarnations)
                    seen = await asyncio.to_thread(self._look, client, asked)
                except RtolapError as error:
                    self.log.warning("%s.%s cannot be asked for: %s", self.database, self.table, error)
                else:
                    found = seen.versions
                    raised = {name: at for name, at in sorted(found.items()) if at > known.get(name, 0)}
                    if raised:
                        yield TriggerEvent(self._told(seen, raised))
                    if (found, seen.incarnations) != (known, incarnations):
                        known, incarnations = found, seen.incarnations
                        await self._keep(_INCARNATIONS_KEY, incarnations)
                        await self._keep(_KEY, known)
                await asyncio.sleep(self.poll_s)
        finally:
            await asyncio.to_thread(client.close)

    def _look(self, client: StoredTablesClient, asked: LoadedVersionsRequest) -> LoadedVersions:
        name = TableName(self.database, self.table)
        try:
            return client.loaded_versions(name, asked)
        except NotFound:  # no such table, or a front end of before, which has no such route
            parts = client.partitions(name)
        versions = {part.range.name: part.visible_version for part in parts}
        return LoadedVersions(versions=versions, incarnations={})

    def _told(self, seen: LoadedVersions, raised: Mapping[str, int]) -> dict[str, Any]:
        return {
            "database": self.database,
            "table": self.table,
            "version": sum(seen.versions.values()),
            "partitions": dict(raised),
            "rows": seen.rows,
        }

    async def _kept(self, key: str) -> dict[str, int]:
        """Return numbers by partition as they were kept; none where Airflow keeps no state for this."""
        if self.asset_state_store is None:
            return {}
        kept = await self.asset_state_store.aget(key, default={})
        try:
            return convert(kept, dict[str, int])
        except msgspec.ValidationError:
            self.log.warning("what is kept of %s.%s is in no form: %r", self.database, self.table, kept)
            return {}

    async def _keep(self, key: str, numbers: Mapping[str, int]) -> None:
        if self.asset_state_store is not None:
            await self.asset_state_store.aset(key, dict(numbers))
