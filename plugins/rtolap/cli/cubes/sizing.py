"""`rtolap cube` predicts the sizes of a cube's cuboids, and proposes further ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.markup import escape

from rtolap.base.clock import SystemClock
from rtolap.base.decoding import convert
from rtolap.base.errors import DefinitionError, NotFound
from rtolap.base.settings import Settings
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.kafka_access import kafka_connections, open_consumer
from rtolap.cli.output import JsonOption, console, print_json, print_table, success, warn
from rtolap.cli.progress import progress_of
from rtolap.cubes.sizing.advice import Advice, Needed, advise, candidates, rows_read
from rtolap.cubes.sizing.estimate import CuboidSize, SegmentSample, per_day, segment_sample
from rtolap.cubes.sizing.sample import Sample, of_file, of_topic
from rtolap.model.cube import Cube, Schema, cuboids
from rtolap.model.durations import format_duration
from rtolap.model.evolution.revisions import declared
from rtolap.model.quantities import size_text
from rtolap.model.table import Table
from rtolap.model.yaml_files import read_definitions
from rtolap.protocols.query.client import QueryClient

app = typer.Typer(no_args_is_help=True, help="Sizes of cubes, and groups that would pay.")

LAST = 100_000
SampleOption = Annotated[
    Path | None, typer.Option("--sample", help="File with a record a line. Default: the topic.")
]
LastOption = Annotated[int, typer.Option("--last", min=1, help="Records of the topic that are sampled.")]
EventsOption = Annotated[
    int | None,
    typer.Option(
        "--events-per-segment",
        min=1,
        help="Events of a whole segment. Needed for a thin sample; default: what the sample's rate gives.",
    ),
]


@app.command()
def size(
    path: Annotated[Path, typer.Argument(help="YAML file, or folder, with the cube and its table.")],
    cube: Annotated[str | None, typer.Option(help="The cube, where there are several.")] = None,
    sample: SampleOption = None,
    last: LastOption = LAST,
    events_per_segment: EventsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict rows and bytes of each cuboid in a segment and in a day."""
    schema = _defined(path, cube)
    with progress_of("reading a sample"):
        taken = _sampled(schema, sample, last)
    segment = segment_sample(schema, taken.events, events_per_segment)
    sizes = [segment.size(cuboid.dimensions) for cuboid in cuboids(schema.cube)]
    if as_json:
        print_json({**_sample_json(taken, segment), "cuboids": [_size_json(each, schema) for each in sizes]})
        return
    _show_sample(schema, taken, segment)
    print_table(
        ("cuboid", "rows a segment", "bytes a segment", "bytes a day"),
        [
            (each.name, each.rows, size_text(each.bytes), size_text(per_day(each.bytes, schema)))
            for each in sizes
        ],
    )
    total = sum(each.bytes for each in sizes)
    kept_ms = schema.cube.retention.after_ms
    kept = "" if kept_ms is None else f", {size_text(total * kept_ms // schema.cube.segment.window_ms)} kept"
    success(f"{size_text(total)} a segment, {size_text(per_day(total, schema))} a day{kept}")


@app.command("advise")
def advise_groups(
    cube: Annotated[str, typer.Argument(help="A cube of the cluster.")],
    days: Annotated[int, typer.Option(min=1, help="Days of the query log that are looked at.")] = 7,
    most: Annotated[int, typer.Option(min=1, max=20, help="Cuboids that are proposed, at most.")] = 3,
    bytes_max: Annotated[
        int | None, typer.Option("--bytes-max", min=1, help="Bytes a segment of all of them together.")
    ] = None,
    sample: SampleOption = None,
    last: LastOption = LAST,
    events_per_segment: EventsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Propose cuboids from the query log of the query service, and name those that no statement has read."""
    schema = _of_cluster(cube)
    workload, used = _logged(cube, days)
    known = set(schema.cube.all_dimensions)
    workload = Counter({needed: count for needed, count in workload.items() if needed <= known})
    if not workload:
        raise NotFound(
            f"the query log has no statement about cube {cube}",
            expected=f"at least one in the last {days} days",
            action="ask the cube first, or look further back with --days",
        )
    with progress_of("reading a sample"):
        taken = _sampled(schema, sample, last)
    segment = segment_sample(schema, taken.events, events_per_segment)
    stored = [segment.size(cuboid.dimensions) for cuboid in cuboids(schema.cube)]
    wanted = candidates(workload, [frozenset(each.dimensions) for each in stored])
    proposed = [segment.size(_in_order(schema, needed)) for needed in wanted]
    advice = advise(stored, proposed, workload, most=most, bytes_max=bytes_max)
    before = rows_read(stored, workload)
    after = rows_read([*stored, *(each.cuboid for each in advice)], workload)
    unused = [each for each in stored[1:] if each.name not in used]
    if as_json:
        print_json(
            {
                **_sample_json(taken, segment),
                "statements": workload.total(),
                "rows_read_before": before,
                "rows_read_after": after,
                "advice": [_advice_json(each, schema) for each in advice],
                "unused": [_size_json(each, schema) for each in unused],
            }
        )
        return
    _show_sample(schema, taken, segment)
    _show_advice(advice, workload.total(), before, after)
    if unused:
        print_table(
            ("cuboid no statement has read", "bytes a segment"),
            [(each.name, size_text(each.bytes)) for each in unused],
        )


def _defined(path: Path, name: str | None) -> Schema:
    definitions = read_definitions(path)
    found = definitions.cubes
    if name is None and len(found) == 1:
        (name,) = found
    if name is None or name not in found:
        raise DefinitionError(
            f"{path}: which cube?",
            expected=f"--cube, one of {', '.join(found)}" if found else "a definition of a cube",
            found=name or "none",
        )
    return Schema(definitions.tables[found[name].table], found[name])


def _of_cluster(name: str) -> Schema:
    with coordinator_client() as client:
        status = client.cube(name)
        newest = client.cube(status.revisions[-1]) if status.revisions else status
        cube = declared(convert(newest.definition, Cube))
        return Schema(convert(client.table(cube.table), Table), cube)


def _sampled(schema: Schema, sample: Path | None, last: int) -> Sample:
    clock = SystemClock()
    if sample is not None:
        return of_file(schema, sample, clock.now_ms())
    settings = Settings()
    connections = kafka_connections(settings, "rtolap-cube-size")
    with closing(open_consumer(connections, schema.table, "rtolap-cube-size", settings)) as consumer:
        return of_topic(schema, consumer, last, clock)


def _logged(cube: str, days: int) -> tuple[Counter[Needed], set[str]]:
    """Return statements by what they needed, and the names of the cuboids that were read."""
    settings = Settings()
    with QueryClient(settings.query_url(), token=settings.token(), ca_file=settings.query_ca) as client:
        answer = client.query(
            "select `reads`, count(*) as statements from information_schema.query_log "
            "where outcome = 'ok' and cubes like ? and finished_at > now() - interval ? day group by `reads`",
            [f"%{cube}%", days],
        )
    workload: Counter[Needed] = Counter()
    used: set[str] = set()
    for reads, statements in answer.rows:
        for read in json.loads(str(reads)):
            if read["cube"] == cube:
                workload[frozenset(read["dimensions"])] += int(str(statements))
                used.update(read["cuboids"], read["realtime_cuboids"])
    return workload, used


def _in_order(schema: Schema, needed: Needed) -> tuple[str, ...]:
    return tuple(name for name in schema.cube.all_dimensions if name in needed)


def _show_sample(schema: Schema, sample: Sample, segment: SegmentSample) -> None:
    window = format_duration(schema.cube.segment.window_ms)
    console.print(
        f"{segment.events} of {sample.records} records lie in one segment of {window} and cover "
        f"{segment.covered:.1%} of it, which has {segment.all_events:.0f} events",
        highlight=True,
    )
    for reason, detail in sample.refused.items():
        warn(f"refused: {reason}: {detail}")


def _show_advice(advice: Sequence[Advice], statements: int, before: int, after: int) -> None:
    if not advice:
        success(f"the cuboids that there are answer {statements} statements best")
        return
    print_table(
        ("cuboid", "rows", "bytes a segment", "statements", "rows saved a segment"),
        [
            (
                each.cuboid.name,
                each.cuboid.rows,
                size_text(each.cuboid.bytes),
                each.statements,
                each.saved_rows,
            )
            for each in advice
        ],
    )
    console.print(escape(_groups_yaml(advice)))
    success(f"{statements} statements would read {after} rows a segment instead of {before}")


def _groups_yaml(advice: Sequence[Advice]) -> str:
    """Return groups of one cuboid each, to be added to the cube's definition."""
    groups = [
        {"include": list(each.cuboid.dimensions), "mandatory": list(each.cuboid.dimensions)}
        for each in advice
    ]
    text: str = yaml.safe_dump({"aggregation_groups": groups}, sort_keys=False, default_flow_style=None)
    return text


def _sample_json(sample: Sample, segment: SegmentSample) -> dict[str, Any]:
    return {
        "records": sample.records,
        "refused": sample.refused,
        "events_in_segment": segment.events,
        "covered": segment.covered,
        "events_per_segment": round(segment.all_events),
    }


def _size_json(size: CuboidSize, schema: Schema) -> dict[str, Any]:
    return {
        "cuboid": size.name,
        "dimensions": list(size.dimensions),
        "rows": size.rows,
        "bytes": size.bytes,
        "bytes_per_day": per_day(size.bytes, schema),
        "sampled_rows": size.sampled_rows,
    }


def _advice_json(advice: Advice, schema: Schema) -> dict[str, Any]:
    return {
        **_size_json(advice.cuboid, schema),
        "statements": advice.statements,
        "saved_rows": advice.saved_rows,
    }
