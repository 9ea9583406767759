"""`rtolap build`: what waits to be built, and how builds fare."""

from __future__ import annotations

from typing import Annotated

import typer

from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, print_table
from rtolap.cli.watching import repeatable
from rtolap.model.quantities import instant_text

app = typer.Typer(no_args_is_help=True, help="Builds of closed segments.")


@app.command()
def queue(as_json: JsonOption = False) -> None:
    """List the segments that wait for a build, in order."""
    with coordinator_client() as client:
        entries = client.queue().entries
    print_table(
        ("cube", "segment", "version", "parts", "events", "building", "waits for"),
        [
            (e.cube, e.segment, e.version, e.parts, e.events, "yes" if e.building else "", e.waits_for)
            for e in entries
        ],
        as_json=as_json,
        document=entries,
    )


@app.command()
@repeatable
def status(
    cube: Annotated[str, typer.Argument(help="Name of the cube.")], as_json: JsonOption = False
) -> None:
    """Show the newest build of each segment of a cube."""
    with coordinator_client() as client:
        built = [segment for segment in client.segments(cube) if segment.build is not None]
    rows = []
    for segment in built:
        build = segment.build
        assert build is not None, "filtered above"
        started = instant_text(build.started_ms)
        if segment.version >= build.version:
            outcome = "promoted"
        else:
            outcome = f"failed: {build.error}" if build.error else "running"
        rows.append((segment.segment, segment.state, build.build_id, build.version, started, outcome))
    columns = ("segment", "state", "build", "version", "started", "outcome")
    print_table(columns, rows, as_json=as_json, document=built)
