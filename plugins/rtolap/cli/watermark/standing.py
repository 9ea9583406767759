"""The state of an application: its levels, the global low watermark, and its units if they are requested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from rich.table import Table

from rtolap.cli.output import text_table
from rtolap.cli.watermark.words import at, span
from rtolap.model.application import Application
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.watermark.messages import ApplicationInfo, ApplicationWatermarks, UnitInfo, UnitsInfo

UNITS_MAX = 20_000  # as many as there can be


@dataclass(frozen=True, slots=True)
class Standing:
    """`units` is None where nobody asked for them."""

    marks: ApplicationWatermarks
    info: ApplicationInfo
    units: UnitsInfo | None = None

    def as_json(self) -> dict[str, Any]:
        units = (
            {}
            if self.units is None
            else {"units": [unit.model_dump(mode="json") for unit in self.units.units]}
        )
        return {**self.marks.model_dump(mode="json"), "problems": self.info.problems, **units}

    def table(self) -> Table:
        declared = msgspec.convert(self.info.definition, Application)
        rows: list[tuple[str | None, ...]] = []
        for name in declared.in_order():
            marks = self.marks.levels.get(name)  # none before the first turn of publishing
            input_ms, output_ms = (None, None) if marks is None else (marks.input_ms, marks.output_ms)
            rows.append((name, declared.role(name), at(input_ms), at(output_ms), self._behind(output_ms)))
            rows += [
                _unit_row(unit) for unit in (self.units.units if self.units else ()) if unit.level == name
            ]
        rows.append(("global", None, None, at(self.marks.global_ms), self._behind(self.marks.global_ms)))
        return text_table(
            ("level", "is", "input", "output", "behind the clock"), rows, title=self.marks.application
        )

    def notes(self) -> list[str]:
        let_go_ms = self.marks.approved_until_ms
        return [] if let_go_ms is None else [f"windows up to {at(let_go_ms)} were let go"]

    def _behind(self, instant_ms: int | None) -> str | None:
        return None if instant_ms is None else span(self.marks.now_ms - instant_ms)


def standing(client: CoordinatorClient, application: str, *, units: bool) -> Standing:
    return Standing(
        client.application_watermarks(application),
        client.application(application),
        client.application_units(application, limit=UNITS_MAX) if units else None,
    )


def unit_state(unit: UnitInfo) -> str:
    if unit.awaited:
        return "awaited since the leader changed"
    if unit.oldest_work_ms is None:
        return "no work"
    return "holds" if unit.holds else ""


def _unit_row(unit: UnitInfo) -> tuple[str | None, ...]:
    kind = ", ".join(filter(None, ("unit", unit_state(unit))))
    return (f"  {unit.processor}/{unit.key_group}", kind, None, at(unit.oldest_work_ms), span(unit.behind_ms))
