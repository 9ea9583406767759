"""`rtolap fleet plan`: what should move where. Nothing is changed by it: `rtolap fleet submit` does that.

A plan is made of a recorded snapshot (`--snapshot`), or of the cluster as it is now. `--out plan.json` keeps
it, and beside it `plan.kafka.json` for `kafka-reassign-partitions`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.cli.fleet.access import ClusterNameOption, RegistryOption, find_cluster
from rtolap.cli.fleet.plan_request import (
    LeadersOptions,
    MovesOption,
    PlacementOptions,
    PlanOptions,
    PlotOption,
    draw_plan,
    with_option_groups,
)
from rtolap.cli.fleet.plan_text import MOVE_COLUMNS, move_rows, print_plan, summary, time_text
from rtolap.cli.output import JsonOption, print_json, print_table, success
from rtolap.fleet.isolation.registry import check_submittable
from rtolap.fleet.planning import decisions
from rtolap.fleet.planning.disks import TOLERANCE
from rtolap.fleet.planning.plan_diff import difference
from rtolap.fleet.planning.plan_file import load_plan
from rtolap.fleet.snapshot.file import load
from rtolap.model.quantities import size_text

app = typer.Typer(no_args_is_help=True, help="Plans: which replicas move where, why, and the cost.")

PlanArgument = Annotated[Path, typer.Argument(help="Plan file that `--out` has written.")]


@app.command()
@with_option_groups
def disks(
    options: PlanOptions,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Maximum distance of a disk from the mean, as a share.")
    ] = TOLERANCE,
) -> None:
    """Balance the used share of all disks by few moves."""
    options.run(decisions.disks(tolerance))


@app.command()
@with_option_groups
def leaders(
    options: LeadersOptions,
    by_load: Annotated[
        bool, typer.Option("--by-load", help="Balance the bytes per second that brokers send instead.")
    ] = False,
) -> None:
    """Balance the number of partitions that brokers lead, without moving data."""
    options.run(decisions.LEADERS_BY_LOAD if by_load else decisions.LEADERS)


@app.command()
@with_option_groups
def rack(options: PlanOptions) -> None:
    """Move replicas that share a rack to other racks."""
    options.run(decisions.RACKS)


@app.command()
@with_option_groups
def placement(
    cluster: Annotated[str, typer.Argument(help="Cluster of the registry whose placement rules apply.")],
    options: PlacementOptions,
) -> None:
    """Move replicas from brokers where the registry does not allow them to allowed ones."""
    options.run_registered(decisions.PLACEMENT, cluster)


@app.command()
@with_option_groups
def drain(
    brokers: Annotated[list[int], typer.Argument(min=0, help="Ids of the brokers to empty.")],
    options: PlanOptions,
) -> None:
    """Move all replicas away from brokers, which may be dead."""
    options.run(decisions.drain(brokers))


@app.command()
@with_option_groups
def add(
    brokers: Annotated[list[int], typer.Argument(min=0, help="Ids of the new brokers.")],
    options: PlanOptions,
) -> None:
    """Give new brokers their share. No data moves between the others."""
    options.run(decisions.add(brokers))


@app.command("remove-disk")
@with_option_groups
def remove_disk(
    disk: Annotated[str, typer.Argument(help="Broker and log directory: 3:/data/1.")],
    options: PlanOptions,
) -> None:
    """Move all replicas away from a disk, which may have failed."""
    broker, colon, path = disk.partition(":")
    if not broker.isdecimal() or not colon or not path:
        raise DefinitionError("not a disk of a broker", expected="BROKER:PATH", found=disk)
    options.run(decisions.remove_disk(int(broker), path))


@app.command()
@with_option_groups
def factor(
    replicas: Annotated[int, typer.Argument(min=1, help="Number of replicas of each partition.")],
    topic: Annotated[list[str], typer.Option(help="Topic to plan. Repeatable.")],
    options: PlanOptions,
) -> None:
    """Raise the replication factor of topics."""
    options.run(decisions.factor(topic, replicas))


@app.command()
def show(
    plan: PlanArgument,
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", help="Check whether the plan may be carried out on this snapshot."),
    ] = None,
    registry: RegistryOption = None,
    cluster_name: ClusterNameOption = None,
    plot: PlotOption = None,
    moves: MovesOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Show a plan file. A file that was edited is refused."""
    found = load_plan(plan)
    if snapshot is not None:
        fleet = load(snapshot)
        check_submittable(found, fleet, find_cluster(fleet, None, cluster_name, registry, Settings()))
    if plot is not None:
        draw_plan(found, plot)
    if as_json:
        rows = move_rows(found, np.argsort(-found.moves.size_bytes, kind="stable")[:moves])
        print_json({**summary(found), "largest": [dict(zip(MOVE_COLUMNS, row, strict=True)) for row in rows]})
        return
    print_plan(found, moves=moves)
    if snapshot is not None:
        success(f"it may be carried out on {snapshot}")


@app.command()
def diff(one: PlanArgument, other: PlanArgument, as_json: JsonOption = False) -> None:
    """Show the differences of two plans."""
    first, second = load_plan(one), load_plan(other)
    found = difference(first, second)
    if as_json:
        print_json({"one": summary(first), "other": summary(second), "partitions": found})
        return
    rows: list[tuple[str, Any, Any]] = [
        ("kind", first.kind, second.kind),
        ("arguments", dict(first.arguments), dict(second.arguments)),
        ("snapshot", first.snapshot_digest[:12], second.snapshot_digest[:12]),
        ("partitions", len(first), len(second)),
        ("moves", len(first.moves), len(second.moves)),
        ("bytes", size_text(first.moved_bytes), size_text(second.moved_bytes)),
        ("time", time_text(first.copy_time.expected_s), time_text(second.copy_time.expected_s)),
        ("left over", size_text(first.bounds.after_bytes), size_text(second.bounds.after_bytes)),
    ]
    print_table(("figure", str(one), str(other)), rows)
    print_table(
        ("partitions", "count", "such as"),
        [
            ("the same in both", found.same, ""),
            ("only in the first", len(found.only_first), ", ".join(found.only_first[:3])),
            ("only in the second", len(found.only_second), ", ".join(found.only_second[:3])),
            ("to other places", len(found.elsewhere), ", ".join(found.elsewhere[:3])),
        ],
    )
