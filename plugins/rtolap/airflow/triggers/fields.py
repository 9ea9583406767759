"""Triggers whose arguments are their fields: what is declared once is taken, kept and serialized."""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger classes carry no annotations.)
from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from airflow.triggers.base import BaseTrigger

from rtolap.airflow.hooks.connection import DEFAULT_CONN_ID
from rtolap.airflow.hooks.rtolap import RtolapHook


@dataclass(kw_only=True, eq=False, repr=False)
class FieldTrigger(BaseTrigger):
    """Subclasses are dataclasses of the same kind. `task_id` is no name for a field: Airflow sets it."""

    def __post_init__(self) -> None:
        super().__init__()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kind = type(self)
        arguments = {field.name: getattr(self, field.name) for field in fields(self)}
        return f"{kind.__module__}.{kind.__qualname__}", arguments


@dataclass(kw_only=True, eq=False, repr=False)
class RtolapTrigger(FieldTrigger):
    """Asks the coordinator, the agent or a loader, as the connection says, every `poll_s`."""

    poll_s: float = 5.0
    rtolap_conn_id: str = DEFAULT_CONN_ID

    @cached_property
    def _hook(self) -> RtolapHook:
        return RtolapHook(self.rtolap_conn_id)
