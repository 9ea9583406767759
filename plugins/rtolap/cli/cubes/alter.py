"""`rtolap alter` changes settings of a running cube, and says before what that means."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from rtolap.base.errors import DefinitionError, Refused
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, console, print_json, print_table, success, warn
from rtolap.model.instants import instant_ms, utc_text
from rtolap.model.yaml_files import read_definitions
from rtolap.protocols.coordinator.messages import Alteration, AlterRequest
from rtolap.protocols.coordinator.operations import altered_cube


class OlderEvents(StrEnum):
    NULL = "null"
    REFUSE = "refuse"
    FILL = "fill"


app = typer.Typer(no_args_is_help=True, help="Changes of running cubes.")
_NAMED_MAX = 5


@app.command()
def alter(
    path: Annotated[Path, typer.Argument(help="YAML file, or folder, with the cubes and their tables.")],
    plan: Annotated[bool, typer.Option("--plan", help="Say what it means, and change nothing.")] = False,
    drop_segments: Annotated[
        bool, typer.Option("--drop-segments", help="Go on where a shorter retention drops segments for good.")
    ] = False,
    new_revision: Annotated[
        bool,
        typer.Option(
            "--new-revision",
            help="Go on where other dimensions, measures or another window take a revision of the cube.",
        ),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            help="The event time from which on the revision holds the events. Default: the end of the last "
            "segment that there is; with `--older fill`, the start of the first one."
        ),
    ] = None,
    renamed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NEW=OLD", help="A column that goes on with one that the change drops. Several times."
        ),
    ] = None,
    older: Annotated[
        OlderEvents,
        typer.Option(
            help="Of columns that older events do not have: null, or refuse the statements that need them, "
            "or fill older events in."
        ),
    ] = OlderEvents.NULL,
    as_json: JsonOption = False,
) -> None:
    """Change running cubes to the definitions of a file.

    Groups, retention, lateness and other settings change in place; dimensions, measures and the window by a
    revision, which holds the events from a moment on.

    What a running cube cannot change is refused by name, of all cubes before any is changed.
    """
    definitions = read_definitions(path)
    if not definitions.cubes:
        raise DefinitionError(f"{path} defines no cube", expected="at least one")
    names = _renamed(renamed or [])
    with coordinator_client() as client:
        wanted = {
            name: AlterRequest(
                definition=msgspec.to_builtins(cube),
                table=msgspec.to_builtins(definitions.tables[cube.table]),
                drop_segments=drop_segments,
                new_revision=new_revision,
                since_ms=None if since is None else instant_ms(since),
                renamed=names,
                older=older.value,
            )
            for name, cube in definitions.cubes.items()
        }
        planned = [
            altered_cube(client, name, request.model_copy(update={"dry_run": True}))
            for name, request in wanted.items()
        ]
        is_in_place = any(each.changes for each in planned) and not any(each.revision for each in planned)
        fills = older is OlderEvents.FILL
        if (names or since is not None or fills) and is_in_place:
            raise DefinitionError(
                "nothing of this file takes a revision",
                expected="--renamed, --since and --older fill with a change of dimensions, measures or the "
                "window",
                action="leave them out",
            )
        refused = [each.cube for each in planned if each.dropped_segments and not drop_segments]
        done = planned
        if not plan and not refused:
            done = [altered_cube(client, name, request) for name, request in wanted.items()]
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


def _renamed(given: list[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    wrong = [f"{new}{sign}{old}" for new, sign, old in pairs if not (new and old)]
    if wrong:
        raise DefinitionError("not a column for a column", expected="NEW=OLD", found=", ".join(wrong))
    return {new: old for new, _, old in pairs}


def _show(alteration: Alteration) -> None:
    if alteration.table_columns:
        console.print(f"the table gets: {', '.join(alteration.table_columns)}")
    if not alteration.changes:
        if not alteration.table_columns:
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
        ("columns that older events do not have", alteration.added_columns),
        ("columns that statements can name no more", alteration.gone_columns),
    ):
        if names:
            console.print(f"{what}: {_named(names)}")
    if alteration.segments_without_new_cuboids:
        console.print(f"`rtolap segments requeue {alteration.cube} SEGMENT` builds one again")
    if alteration.dropped_segments:
        warn(f"dropped for good by the next retention: {_named(alteration.dropped_segments)}")
    if alteration.revision is not None and alteration.since_ms is not None:
        console.print(
            f"{alteration.revision} holds the events from {utc_text(alteration.since_ms)} on; statements "
            f"name {alteration.cube}, and see all",
        )
        _show_filling(alteration)
        if not alteration.applied:
            console.print("`--new-revision` makes it")
    if alteration.applied:
        success(f"{alteration.cube} is changed")


def _show_filling(alteration: Alteration) -> None:
    if alteration.fills_from_ms is None:
        return
    since = utc_text(alteration.fills_from_ms)
    how = {
        "topic": f"the topic has all events from {since} on: it reads them again",
        "batch": f"the topic has not all events from {since} on: apply batches to {alteration.revision}",
    }
    console.print(
        f"{how[alteration.filled_by]}; as it is filled, it holds the events from {since} on",
    )


def _named(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
