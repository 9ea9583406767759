"""`rtolap alter` changes settings of a running cube, and says before what that means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from rtolap.base.decoding import convert
from rtolap.base.errors import DefinitionError, Refused
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, console, print_json, print_table, success, warn
from rtolap.model.table import Table
from rtolap.model.yaml_files import Definitions, read_definitions
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import Alteration, AlterRequest

app = typer.Typer(no_args_is_help=True, help="Changes of running cubes.")
_NAMED_MAX = 5


@app.command()
def alter(
    path: Annotated[Path, typer.Argument(help="YAML file, or folder, with the cubes and their tables.")],
    plan: Annotated[bool, typer.Option("--plan", help="Say what it means, and change nothing.")] = False,
    drop_segments: Annotated[
        bool, typer.Option("--drop-segments", help="Go on where a shorter retention drops segments for good.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Change running cubes to the definitions of a file: groups, retention, lateness and other settings.

    What a running cube cannot change is refused by name, of all cubes before any is changed.
    """
    definitions = read_definitions(path)
    if not definitions.cubes:
        raise DefinitionError(f"{path} defines no cube", expected="at least one")
    with coordinator_client() as client:
        _check_tables(client, definitions)
        wanted = {
            name: AlterRequest(definition=msgspec.to_builtins(cube), drop_segments=drop_segments)
            for name, cube in definitions.cubes.items()
        }
        planned = [
            client.alter_cube(name, request.model_copy(update={"dry_run": True}))
            for name, request in wanted.items()
        ]
        refused = [each.cube for each in planned if each.dropped_segments and not drop_segments]
        done = planned
        if not plan and not refused:
            done = [client.alter_cube(name, request) for name, request in wanted.items()]
    if as_json:
        print_json([each.model_dump(mode="json") for each in done])
    else:
        for each in done:
            _show(each)
    if refused and not plan:
        raise Refused(
            f"segments of {', '.join(refused)} would be dropped for good",
            expected="leave to drop them",
            action="`--drop-segments` gives it",
        )


def _check_tables(client: CoordinatorClient, definitions: Definitions) -> None:
    """Raise Refused where the file has another table than the cluster: tables of running cubes do not
    change."""
    for cube in definitions.cubes.values():
        running = convert(client.table(cube.table), Table)
        if running != definitions.tables[cube.table]:
            raise Refused(
                f"table {cube.table} differs from the one that cube {cube.name} runs on",
                expected="the same columns and topic",
                action="`rtolap describe` shows the running one; another table needs another cube",
            )


def _show(alteration: Alteration) -> None:
    if not alteration.changes:
        success(f"{alteration.cube} has this definition already")
        return
    print_table(
        (f"setting of {alteration.cube}", "before", "after", "what follows"),
        [
            (each.setting, _short(each.before), _short(each.after), each.meaning)
            for each in alteration.changes
        ],
    )
    for what, names in (
        ("new cuboids", alteration.new_cuboids),
        ("cuboids that are built no more", alteration.gone_cuboids),
        ("READY segments without the new cuboids", alteration.segments_without_new_cuboids),
    ):
        if names:
            console.print(f"{what}: {_named(names)}", highlight=False)
    if alteration.segments_without_new_cuboids:
        console.print(
            f"`rtolap segments requeue {alteration.cube} SEGMENT` builds one again", highlight=False
        )
    if alteration.dropped_segments:
        warn(f"dropped for good by the next retention: {_named(alteration.dropped_segments)}")
    if alteration.applied:
        success(f"{alteration.cube} is changed")


def _named(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
