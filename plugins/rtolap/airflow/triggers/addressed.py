"""Triggers whose events name what was waited for, and so whom they are meant for.

Where Airflow's database gives a trigger the number of one that was just deleted, as SQLite does, a triggerer
may still run the deleted one under that number: what it says then comes to the task of the new one.
"""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger classes carry no annotations.)
from __future__ import annotations

from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent


class AddressedTrigger(BaseTrigger):
    """Fires {"waited_for", "said"}: what `inner` waits for (`address_of`), and what it fires first."""

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
    """As JSON has it: equal for triggers that wait for the same."""
    return [trigger.inner, trigger.arguments]
