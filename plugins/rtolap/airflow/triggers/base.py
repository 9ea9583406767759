"""Bases of the triggers: arguments that are fields, and events that name what was waited for."""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger classes carry no annotations.)
from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import import_module
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from rtolap.airflow.hooks.connection import DEFAULT_CONN_ID
from rtolap.airflow.hooks.rtolap import RtolapHook

LOG_EVERY_S = 60.0


class ProgressLog:
    """Writes the progress of a wait to the task's log, at once and then at most every `LOG_EVERY_S`."""

    def __init__(self, log: Any, last_s: float = -LOG_EVERY_S) -> None:
        self._log = log
        self._last_s = last_s

    def info(self, text: str) -> None:
        if time.monotonic() - self._last_s > LOG_EVERY_S:
            self._last_s = time.monotonic()
            self._log.info("%s", text)


@dataclass(kw_only=True, eq=False, repr=False)
class FieldTrigger(BaseTrigger):
    """A trigger whose arguments are its fields: declared once, stored and serialized.

    Subclasses are dataclasses of the same kind. `task_id` is no name for a field: Airflow sets it.
    """

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


class AddressedTrigger(BaseTrigger):
    """Fires {"waited_for", "said"}: what `inner` waits for (`address_of`), and what it fires first.

    Where Airflow's database gives a trigger the number of one that was just deleted, as SQLite does, a
    triggerer may still run the deleted one under that number: its event then comes to the task of the new
    one.
    """

    def __init__(self, *, inner: str, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.inner = inner
        self.arguments = arguments

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.AddressedTrigger", {"inner": self.inner, "arguments": self.arguments}

    def made(self) -> BaseTrigger:
        module, _, name = self.inner.rpartition(".")
        trigger: BaseTrigger = getattr(import_module(module), name)(**self.arguments)
        return trigger

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async for event in self.made().run():
            yield TriggerEvent({"waited_for": address_of(self), "said": event.payload})
            return


def addressed(trigger: BaseTrigger) -> AddressedTrigger:
    inner, arguments = trigger.serialize()
    return AddressedTrigger(inner=inner, arguments=arguments)


def address_of(trigger: AddressedTrigger) -> list[Any]:
    """Return the address as JSON: equal for triggers that wait for the same."""
    return [trigger.inner, trigger.arguments]
