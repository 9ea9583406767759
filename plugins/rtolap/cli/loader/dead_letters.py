"""`rtolap loader dead-letters` lists what a loader has refused, loads it after all, or gives it up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from getpass import getuser
from typing import Annotated

import msgspec
import typer

from rtolap.base.settings import Settings
from rtolap.cli.output import JsonOption, console, print_json, print_table, report, success, warn
from rtolap.cli.watching import repeatable
from rtolap.kafka.schema_registry import SchemaRegistries
from rtolap.model.loader import Loader
from rtolap.model.quantities import instant_text
from rtolap.protocols.loader.letters import DropRequest, Letter, LetterSelection, ReplayRequest
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.stored.loader.assembly import sink_of
from rtolap.stored.loader.letters.access import LetterAccess
from rtolap.stored.loader.operations import job_access

app = typer.Typer(no_args_is_help=True, help="Records that a loader has refused: list, replay, drop.")

JobArgument = Annotated[str, typer.Argument(help="Name of the loader.")]
LimitOption = Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number, the newest.")]
ReasonOption = Annotated[str, typer.Option(help="Only those with this reason.")]
StateOption = Annotated[str, typer.Option(help="Only those in this state, such as OPEN.")]
AtOption = Annotated[
    list[str] | None,
    typer.Option("--at", help="Only the record of this place in the topic, PARTITION/OFFSET. Repeatable."),
]
ByOption = Annotated[
    str | None, typer.Option("--by", help="Name of the person. Default: the user of this shell.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

_COLUMNS = (
    "partition",
    "offset",
    "state",
    "reason",
    "detail",
    "value",
    "batch",
    "replay",
    "who",
    "at",
    "note",
)
_VALUE_CHARS_MAX = 120


@app.command("list")
@repeatable
def list_letters(
    job: JobArgument,
    limit: LimitOption = 50,
    reason: ReasonOption = "",
    state: StateOption = "",
    as_json: JsonOption = False,
) -> None:
    """List refused records, each once: where they came from, why, and what became of them."""
    with _letters(job) as letters:
        found = letters.list(limit, reason=reason, state=state.upper())
    listed = sorted(found.letters, key=lambda letter: (letter.partition, letter.offset))
    print_table(_COLUMNS, map(_row, listed), as_json=as_json)
    if not as_json:
        counts = ", ".join(f"{number} {state}" for state, number in sorted(found.counts.items()))
        console.print(f"{job}: {counts or 'none is noted in the ledger'}", soft_wrap=True)


@app.command()
def replay(
    job: JobArgument,
    reason: ReasonOption = "",
    at: AtOption = None,
    out_of_order: Annotated[
        bool,
        typer.Option("--out-of-order", help="Also where an older row takes the place of a newer one."),
    ] = False,
    by: ByOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Load open records into the table, by the loader's present definition, each exactly once.

    Repeat it as often as you like: what is loaded is not loaded again, and what was cut short is ended."""
    if not yes:
        typer.confirm(f"Load the open dead letters of {job}?", abort=True)
    with _letters(job) as letters:
        done = letters.replay(
            ReplayRequest(who=by or getuser(), selection=_selection(reason, at), out_of_order=out_of_order)
        )
    if as_json:
        print_json(done)
    else:
        success(f"loader {job}: {done.loaded} loaded, {done.refused} refused again")
        for problem in done.problems:
            warn(problem)
        if done.missing:
            warn(
                f"{done.missing} open letters were not found: their topic has lost them, or they are in the "
                "file of another host. Replay them there, or drop them"
            )
        if done.more:
            warn("there may be more open letters: replay again")


@app.command()
def drop(
    job: JobArgument,
    reason: ReasonOption = "",
    at: AtOption = None,
    why: Annotated[str, typer.Option(help="A reason, which is kept.")] = "",
    by: ByOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give open records up: they are never replayed. They stay where they are kept."""
    if not yes:
        typer.confirm(f"Give the open dead letters of {job} up for ever?", abort=True)
    with _letters(job) as letters:
        done = letters.drop(DropRequest(who=by or getuser(), why=why, selection=_selection(reason, at)))
    report(done, f"loader {job}: {done.dropped} dropped", as_json=as_json)


@contextmanager
def _letters(job: str) -> Iterator[LetterAccess]:
    settings = Settings()
    opened: list[StreamLoadClient] = []

    def open_sink(loader: Loader) -> StreamLoadClient:
        opened.append(sink_of(loader, settings))
        return opened[-1]

    with job_access(settings) as access:
        registries = SchemaRegistries.of_host(settings)
        try:
            yield access.dead_letters(job, open_sink, registries.get)
        finally:
            for sink in opened:
                sink.close()


def _selection(reason: str, at: list[str] | None) -> LetterSelection:
    return LetterSelection(reason=reason, places=tuple(at or ()))


def _row(letter: Letter) -> tuple[object, ...]:
    value = None if letter.value is None else letter.value[:_VALUE_CHARS_MAX]
    shown = {
        **msgspec.structs.asdict(letter),
        "value": value,
        "at": None if letter.at_ms is None else instant_text(letter.at_ms),
    }
    return tuple(shown[name] for name in _COLUMNS)
