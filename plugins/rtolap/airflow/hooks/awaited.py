"""Hooks of triggers that read their connection before their client is used, in a thread that must not ask."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.definitions.connection import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from rtolap.airflow.hooks import supervisor


class AwaitedConnections(BaseHook):
    """A hook that reads connections ahead by `read`, and others when they are needed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awaited: dict[str, Connection | None] = {}

    async def read(self, conn_id: str) -> None:
        """Read the connection without blocking, unless that was done. Airflow is asked until it answers."""
        if conn_id not in self._awaited:
            self._awaited[conn_id] = await supervisor.loaded_connection(conn_id, self.log)

    def get_connection(self, conn_id: str) -> Connection:  # type: ignore[override]
        if conn_id not in self._awaited:
            return super().get_connection(conn_id)
        known = self._awaited[conn_id]
        if known is None:
            raise AirflowNotFoundException(f"there is no connection {conn_id}")
        return known

    def optional_connection(self, conn_id: str, *, required: bool) -> Connection | None:
        """Return the connection; None where there is none, if it is not `required`."""
        try:
            return self.get_connection(conn_id)
        except AirflowNotFoundException:
            if required:
                raise
            return None
