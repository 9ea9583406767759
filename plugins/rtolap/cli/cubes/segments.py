"""`rtolap segments`: look at a cube's segments, close, rebuild, accept what is lost, purge."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from rtolap.base.settings import Settings
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.cubes.merging import merge
from rtolap.cli.output import JsonOption, print_json, print_table, report, success, warn
from rtolap.cli.progress import tracked
from rtolap.cli.watching import repeatable
from rtolap.cubes.format.batch_compare import compare, read_batch
from rtolap.model.completeness import offsets_text
from rtolap.model.instants import instant_ms
from rtolap.model.offsets import PartRange
from rtolap.model.quantities import instant_text
from rtolap.object_store.store import open_store
from rtolap.protocols.coordinator.messages import PartitionRange, SegmentInfo

__all__ = ["app", "instant_ms"]

app = typer.Typer(no_args_is_help=True, help="Segments of a cube.")

Cube = Annotated[str, typer.Argument(help="Name of the cube.")]
Segment = Annotated[str, typer.Argument(help="Name of the segment: YYYYMMDDhhmmss_YYYYMMDDhhmmss, UTC.")]


@app.command("list")
@repeatable
def list_segments(
    cube: Cube,
    state: Annotated[str | None, typer.Option(help="Only segments in this state.")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="Only segments that end after this instant.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="Only segments that begin before this instant.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List segments by event time."""
    with coordinator_client() as client:
        segments = client.segments(
            cube,
            state=state.upper() if state else None,
            start_ms=instant_ms(start) if start else None,
            end_ms=instant_ms(end) if end else None,
        )
    print_table(
        (
            *("segment", "state", "version", "events", "staged events", "staged rows"),
            *("missing at most", "late", "parts", "build"),
        ),
        [
            (s.segment, _state(s), s.version, *_counts(s), _missing(s), _late(s), len(s.parts), _build(s))
            for s in segments
        ],
        as_json=as_json,
        document=segments,
    )


@app.command()
@repeatable
def show(cube: Cube, segment: Segment, as_json: JsonOption = False) -> None:
    """Show a segment, with the history of its states."""
    with coordinator_client() as client:
        info = client.segment(cube, segment)
    if as_json:
        print_json(info)
        return
    rows: list[tuple[str, object]] = [
        ("state", _state(info)),
        ("version", info.version),
        ("location", info.location),
        *zip(("events", "staged events", "staged rows"), _counts(info), strict=True),
        *_completeness(info),
        ("late events", _late(info)),
        ("covered", info.covered),
        ("target", info.target),
        ("build", _build(info)),
        *_losses(cube, info),
        *(("part", f"{part.replica_set}: {part.events} events, {part.path}") for part in info.parts),
    ]
    print_table(("", f"{cube}/{segment}"), rows)
    print_table(
        ("at", "event", "state", "note"),
        [(instant_text(line.at_ms), line.event, line.state, line.note) for line in info.state_history],
    )


@app.command()
def close(cube: Cube, segment: Segment, as_json: JsonOption = False) -> None:
    """Close a segment and all earlier ones now, without waiting for the watermark."""
    with coordinator_client() as client:
        info = client.close_segment(cube, segment)
    report(info, f"the leaders are asked to close {cube} up to {segment} (now {info.state})", as_json=as_json)


@app.command()
def requeue(cube: Cube, segment: Segment, as_json: JsonOption = False) -> None:
    """Rebuild a segment. Its receivers upload lost or damaged files again, a base cuboid
    from Kafka."""
    with coordinator_client() as client:
        info = client.requeue(cube, segment)
    needed = (
        "a build" if info.state == "REMOTE_PERSISTED" else "its receivers to upload it again, and a build"
    )
    waits = f"{cube}/{segment} is {_state(info)} and waits for {needed} of version {info.version + 1}"
    if info.lost:
        waits = f"{waits}; {_lost(cube, info)}"
    report(info, waits, as_json=as_json)


app.command()(merge)


@app.command()
def verify(
    cube: Cube,
    batch: Annotated[str, typer.Argument(help="Id of a staged batch: what the source says.")],
    as_json: JsonOption = False,
) -> None:
    """Compare READY segments with a staged batch, group by group. Exits with 1 for a difference.

    Sketches are left out. Plan and stage the batch first; it need not be applied.
    """
    with coordinator_client() as client:
        folder = client.batch_progress(cube, batch).folder
        records = {segment.segment: segment for segment in client.segments(cube)}
    store = open_store(Settings().object_store)
    spec, parts = read_batch(store, folder)
    lines = []
    for part in tracked(parts, "comparing segments"):
        record = records.get(part.segment)
        location = record.location if record is not None and record.version else None
        lines.append((part.segment, compare(store, spec, location, part.part.path)))
    differ = [name for name, difference in lines if not difference.is_none]
    if as_json:
        print_json([{"segment": name} | difference._asdict() for name, difference in lines])
    else:
        print_table(
            ("segment", "events in history", "in the source", "only history", "only source", "different"),
            [(name, *difference) for name, difference in lines],
        )
        success(f"{len(lines) - len(differ)} of {len(lines)} segments are what batch {batch} says")
    if differ:
        raise typer.Exit(1)


@app.command("accept-loss")
def accept_loss(
    cube: Cube,
    segment: Segment,
    reason: Annotated[str, typer.Option("--reason", help="Reason, which is recorded.")],
    by: Annotated[
        str | None, typer.Option("--by", help="Name of the person. Default: the user of this shell.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Accept the loss of events that neither receivers nor Kafka have any more. The loss is recorded."""
    with coordinator_client() as client:
        info = client.accept_loss(cube, segment, by or getpass.getuser(), reason)
    report(info, f"{cube} goes on without what {segment} waited for; recorded", as_json=as_json)


@app.command()
def purge(
    cube: Cube,
    before: Annotated[
        str, typer.Option(help="Instant. Segments that end at or before it are deleted for good.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete old segments for good. A replay does not restore them."""
    before_ms = instant_ms(before)
    if not yes:
        typer.confirm(f"Drop everything of {cube} before {instant_text(before_ms)} for ever?", abort=True)
    with coordinator_client() as client:
        result = client.purge(cube, before_ms)
    report(result, f"{len(result.segments)} segments of {cube} are purged", as_json=as_json)


@app.command()
def cleanup(cube: Cube, as_json: JsonOption = False) -> None:
    """Delete unneeded files in the object store."""
    with coordinator_client() as client:
        result = client.cleanup(cube)
    deleted = f"{len(result.folders)} folders and {len(result.records)} records are deleted"
    report(result, deleted, as_json=as_json)
    for waiting in () if as_json else result.waiting:
        warn(waiting)


def _counts(segment: SegmentInfo) -> list[object]:
    """Return events of history, events and rows that are staged for the next version; what is unknown is no
    zero.
    """
    known = (segment.events, segment.staged_events, segment.staged_rows)
    return ["—" if count is None else count for count in known]


def _missing(segment: SegmentInfo) -> str:
    """Return the bound when it was closed, and by what where the watermark did not close it."""
    known = segment.completeness
    if known is None:
        return ""
    by = "" if known.closed_by == "watermark" else f" ({known.closed_by})"
    return f"{_ppm(known.bound_ppm)}{by}"


def _state(segment: SegmentInfo) -> str:
    beside = [
        mark
        for mark, is_so in (
            ("base cuboid lost", segment.base_lost),
            (f"of batch {segment.batch}", bool(segment.batch)),
            (f"replaced by batch {segment.pending_batch}", bool(segment.pending_batch)),
            (f"merged to a {' and a '.join(segment.merged)}", bool(segment.merged)),
            ("events lost", segment.lost),
            ("bound breached", segment.breached),
        )
        if is_so
    ]
    return ", ".join([segment.state, *beside])


def _lost(cube: str, segment: SegmentInfo) -> str:
    action = f"`rtolap segments accept-loss {cube} {segment.segment} --reason TEXT` goes on without them"
    return f"offsets {_offsets(segment.lost)}, which nobody holds any more: {action}"


def _losses(cube: str, segment: SegmentInfo) -> list[tuple[str, object]]:
    losses: list[tuple[str, object]] = []
    if segment.lost:
        losses.append(("lost", _lost(cube, segment)))
    for loss in segment.losses:
        accepted = f"accepted by {loss.by} at {instant_text(loss.at_ms)}: {loss.reason}"
        losses.append(("lacks", f"the events of offsets {_offsets(loss.ranges)}, {accepted}"))
    return losses


def _offsets(ranges: tuple[PartitionRange, ...]) -> str:
    return offsets_text(PartRange(piece.partition, piece.start, piece.end) for piece in ranges)


def _completeness(segment: SegmentInfo) -> list[tuple[str, object]]:
    known = segment.completeness
    if known is None:
        return []
    by = known.closed_by if known.approved_by is None else f"{known.closed_by} of {known.approved_by}"
    watermark = "unknown" if known.watermark_ms is None else instant_text(known.watermark_ms)
    return [
        ("closed by", f"{by}, application {known.application} at {watermark}"),
        (
            "missing then",
            f"{_ppm(known.expected_missing_ppm)} expected, at most {_ppm(known.bound_ppm)}"
            f" of a window that ends {instant_text(known.window_end_ms)}",
        ),
    ]


def _late(segment: SegmentInfo) -> str:
    if segment.late_events is None:
        return "—"
    return f"{segment.late_events} ({_ppm(segment.late_ppm)})" if segment.late_events else "0"


def _ppm(share_ppm: int | None) -> str:
    return "unknown" if share_ppm is None else f"{share_ppm} ppm"


def _build(segment: SegmentInfo) -> str:
    if segment.build is None:
        return ""
    return f"{segment.build.build_id}{' failed: ' + segment.build.error if segment.build.error else ''}"
