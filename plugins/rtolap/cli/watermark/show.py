"""`rtolap watermark show`: the levels of one application or all, and their units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rtolap.base.decoding import convert
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, TextTable, console, print_json, success, text_table, warn
from rtolap.cli.watching import repeatable
from rtolap.cli.watermark.words import at, complete_application, span
from rtolap.model.application import Application
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.watermark.messages import ApplicationInfo, ApplicationWatermarks, UnitInfo, UnitsInfo

_NOTHING = "no application is declared"
UNITS_MAX = 20_000  # as many as there can be


@repeatable
def show(
    application: Annotated[
        str | None,
        typer.Argument(help="Name of the application. Default: all.", autocompletion=complete_application),
    ] = None,
    units: Annotated[
        bool, typer.Option("--units", help="Also show every unit: processor/key group.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the input and output watermark of every level, and the global one."""
    with coordinator_client() as client:
        standings = [standing(client, name, units=units) for name in _names(client, application)]
    if as_json:
        print_json([application_standing.as_json() for application_standing in standings])
        return
    for application_standing in standings:
        console.print(application_standing.table())
        for note in application_standing.notes():
            console.print(note)
        for problem in application_standing.info.problems:
            warn(problem)
    if not standings:
        success(_NOTHING)


def _names(client: CoordinatorClient, application: str | None) -> list[str]:
    return client.applications() if application is None else [application]


@dataclass(frozen=True, slots=True)
class ShownWatermarks:
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

    def table(self) -> TextTable:
        declared = convert(self.info.definition, Application)
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
        approved_ms = self.marks.approved_until_ms
        return [] if approved_ms is None else [f"windows up to {at(approved_ms)} were approved"]

    def _behind(self, instant_ms: int | None) -> str | None:
        return None if instant_ms is None else span(self.marks.now_ms - instant_ms)


def standing(client: CoordinatorClient, application: str, *, units: bool) -> ShownWatermarks:
    return ShownWatermarks(
        client.application_watermarks(application),
        client.application(application),
        client.application_units(application, limit=UNITS_MAX) if units else None,
    )


def unit_state(unit: UnitInfo) -> str:
    if unit.awaited:
        return "awaited since the owner changed"
    if unit.oldest_work_ms is None:
        return "no work"
    return "holds" if unit.holds else ""


def _unit_row(unit: UnitInfo) -> tuple[str | None, ...]:
    kind = ", ".join(filter(None, ("unit", unit_state(unit))))
    return (f"  {unit.processor}/{unit.key_group}", kind, None, at(unit.oldest_work_ms), span(unit.behind_ms))
