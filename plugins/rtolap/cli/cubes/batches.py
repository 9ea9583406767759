"""`rtolap batch`: segments of a cube out of another source than its topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from rtolap.base.errors import DefinitionError
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, report
from rtolap.cli.watching import repeatable
from rtolap.model.instants import instant_ms
from rtolap.protocols.coordinator.messages import BatchProgress
from rtolap.protocols.coordinator.operations import HEARD_WITHIN_S, applied_batch, planned_batch

app = typer.Typer(
    no_args_is_help=True,
    help="Batches: what another source says of a range, in place of the topic.",
)

Cube = Annotated[str, typer.Argument(help="Name of the cube.")]
Batch = Annotated[str, typer.Argument(help="Id of the batch: letters, digits, - and _.")]


@app.command()
def plan(
    cube: Cube,
    batch: Batch,
    start: Annotated[str, typer.Option("--from", help="Instant at which the range begins.")],
    end: Annotated[str, typer.Option("--to", help="Instant at which the range ends.")],
    source: Annotated[Path, typer.Option(help="YAML file of the source: format, path, options, columns.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write the plan to, which stage_batch.py reads.")
    ] = None,
    wait_s: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until the receivers of the cube were heard.")
    ] = HEARD_WITHIN_S,
    as_json: JsonOption = False,
) -> None:
    """Plan a batch. Nothing is read or changed yet."""
    with coordinator_client() as client:
        start_ms, end_ms = instant_ms(start), instant_ms(end)
        planned = planned_batch(client, cube, batch, start_ms, end_ms, _source(source), wait_s=wait_s)
    if out is not None:
        out.write_text(json.dumps(planned.spec))
    staging = f"spark-submit stage_batch.py {out or 'PLAN'}{'' if out else ' with --out PLAN'}"
    report(
        planned,
        f"batch {batch} of {cube} replaces {planned.replaced} segments, and may begin {planned.fresh} more; "
        f"next: {staging}, then rtolap batch apply {cube} {batch}",
        as_json=as_json,
    )


@app.command()
def apply(cube: Cube, batch: Batch, as_json: JsonOption = False) -> None:
    """Hand over the segments of a staged batch: they are built like all others."""
    with coordinator_client() as client:
        progress = applied_batch(client, cube, batch)
    report(progress, _text(progress), as_json=as_json)


@app.command()
@repeatable
def show(cube: Cube, batch: Batch, as_json: JsonOption = False) -> None:
    """Show how far a staged batch is."""
    with coordinator_client() as client:
        progress = client.batch_progress(cube, batch)
    report(progress, _text(progress), as_json=as_json)


def _source(path: Path) -> dict[str, Any]:
    """Raises DefinitionError for a file that cannot be read or is no mapping."""
    try:
        found = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        raise DefinitionError(f"the batch source {path} cannot be read", found=str(error)) from error
    if not isinstance(found, dict):
        raise DefinitionError(
            f"the batch source {path}", expected="a mapping with format and path", found=type(found).__name__
        )
    return found


def _text(progress: BatchProgress) -> str:
    failed = "".join(f"; {name} failed: {error}" for name, error in progress.failed.items())
    return (
        f"batch {progress.batch} of {progress.cube}: {progress.events} events, {progress.ready} of "
        f"{len(progress.segments)} segments READY, {len(progress.building)} wait for their build, "
        f"{progress.left} are not handed over{failed}"
    )
