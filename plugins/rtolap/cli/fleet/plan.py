"""`rtolap fleet plan`: what should move where. Nothing is changed by it: `rtolap fleet submit` does that.

A plan is made of a recorded snapshot (`--snapshot`), or of the cluster as it is now. `--out plan.json` keeps
it, and beside it `plan.kafka.json` for `kafka-reassign-partitions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from rtolap.base.clock import SystemClock
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.cli.fleet.access import ClusterOption, open_administration
from rtolap.cli.fleet.plan_text import MOVE_COLUMNS, move_rows, print_plan, size_text, summary, time_text
from rtolap.cli.fleet.registry import RegistryOption, read_registry
from rtolap.cli.output import JsonOption, print_json, print_table, success, write_file
from rtolap.draw.figure import picture_format
from rtolap.draw.fleet_utilisation import DiskUse, draw_fleet_utilisation
from rtolap.fleet.isolation.audit import check_cluster_id
from rtolap.fleet.isolation.placement import placement_rules
from rtolap.fleet.planning.add_brokers import plan_add
from rtolap.fleet.planning.disks import TOLERANCE, plan_disks
from rtolap.fleet.planning.drain import plan_drain, plan_remove_disk
from rtolap.fleet.planning.factor import plan_factor
from rtolap.fleet.planning.leaders import plan_leaders
from rtolap.fleet.planning.misplaced import plan_placement
from rtolap.fleet.planning.placement import DISK_LIMIT
from rtolap.fleet.planning.plan import THROTTLE_BYTES_PER_S, Limits, Plan
from rtolap.fleet.planning.plan_diff import difference
from rtolap.fleet.planning.plan_file import check_applies, kafka_json, load_plan, save_plan
from rtolap.fleet.planning.racks import plan_racks
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.file import load
from rtolap.fleet.snapshot.model import Snapshot
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

app = typer.Typer(no_args_is_help=True, help="What should move where, why, and what it costs.")

SnapshotOption = Annotated[
    Path | None, typer.Option("--snapshot", help="Of this recorded fleet instead of the cluster as it is.")
]
OutOption = Annotated[Path | None, typer.Option("--out", help="Keep the plan in this file.")]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw disks before and after: a name ending in .svg or .png.")
]
LimitOption = Annotated[
    float, typer.Option("--disk-limit", min=0.01, max=1.0, help="No disk gets more than this share of it.")
]
ThrottleOption = Annotated[
    int, typer.Option("--throttle", min=1, help="Bytes a second and broker, by which time is told.")
]
MovesOption = Annotated[int, typer.Option("--moves", min=0, help="List so many, the largest first.")]
PlanArgument = Annotated[Path, typer.Argument(help="A file that `--out` has kept.")]


@dataclass(frozen=True)
class _Request:
    """What all planning commands take."""

    snapshot: Path | None
    cluster: str
    out: Path | None
    plot: Path | None
    limits: Limits
    moves: int
    as_json: bool

    def run(self, planner: Callable[[Snapshot, Limits], Plan]) -> None:
        form = picture_format(self.plot) if self.plot else None
        plan = planner(self._snapshot(), self.limits)
        if self.out is not None:
            save_plan(plan, self.out)
            write_file(kafka_file(self.out), kafka_json(plan))
        if self.plot is not None and form is not None:
            _draw(plan, self.plot)
        if self.as_json:
            print_json(summary(plan))
            return
        print_plan(plan, moves=self.moves)
        if self.out is not None:
            success(f"{self.out}, and for Kafka's tool {kafka_file(self.out)}")

    def _snapshot(self) -> Snapshot:
        if self.snapshot is not None:
            return load(self.snapshot)
        with open_administration(self.cluster) as administration:
            return collect_snapshot(administration, SystemClock())


def kafka_file(path: Path) -> Path:
    """Beside a plan: what Kafka's tool reads."""
    return path.with_suffix(".kafka.json")


@app.command()
def disks(
    tolerance: Annotated[
        float, typer.Option(help="How far from the mean a disk may be, as a share of it.")
    ] = TOLERANCE,
    snapshot: SnapshotOption = None,
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    out: OutOption = None,
    plot: PlotOption = None,
    disk_limit: LimitOption = DISK_LIMIT,
    throttle: ThrottleOption = THROTTLE_BYTES_PER_S,
    moves: MovesOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Bring every disk to about the same share of used bytes, by few moves."""
    request = _Request(snapshot, cluster, out, plot, Limits(disk_limit, throttle), moves, as_json)
    request.run(lambda fleet, limits: plan_disks(fleet, tolerance=tolerance, limits=limits))


@app.command()
def leaders(
    snapshot: SnapshotOption = None,
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    out: OutOption = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let brokers lead about as many partitions each, without moving data."""
    request = _Request(snapshot, cluster, out, plot, Limits(), 0, as_json)
    request.run(lambda fleet, limits: plan_leaders(fleet, limits=limits))


@app.command()
def rack(
    snapshot: SnapshotOption = None,
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    out: OutOption = None,
    plot: PlotOption = None,
    disk_limit: LimitOption = DISK_LIMIT,
    throttle: ThrottleOption = THROTTLE_BYTES_PER_S,
    moves: MovesOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Bring replicas that share a rack to others."""
    request = _Request(snapshot, cluster, out, plot, Limits(disk_limit, throttle), moves, as_json)
    request.run(lambda fleet, limits: plan_racks(fleet, limits=limits))


@app.command()
def placement(
    cluster: Annotated[str, typer.Argument(help="Cluster of the registry, whose placement rules are kept.")],
    snapshot: SnapshotOption = None,
    registry: RegistryOption = None,
    out: OutOption = None,
    plot: PlotOption = None,
    disk_limit: LimitOption = DISK_LIMIT,
    throttle: ThrottleOption = THROTTLE_BYTES_PER_S,
    moves: MovesOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Bring replicas that stand where the registry does not let them to where it does."""
    declared = read_registry(registry, Settings())
    rules_of = declared.cluster(cluster)
    name = declared.kafka_cluster(cluster)

    def repair(fleet: Snapshot, limits: Limits) -> Plan:
        check_cluster_id(cluster, rules_of, fleet)
        rules = placement_rules(rules_of, fleet)
        return plan_placement(fleet, rules.rules, rules.allowed_by_rule, limits=limits)

    request = _Request(snapshot, name, out, plot, Limits(disk_limit, throttle), moves, as_json)
    request.run(repair)


@app.command()
def drain(
    brokers: Annotated[list[int], typer.Argument(help="Ids of the brokers that are to be empty.")],
    snapshot: SnapshotOption = None,
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    out: OutOption = None,
    plot: PlotOption = None,
    disk_limit: LimitOption = DISK_LIMIT,
    throttle: ThrottleOption = THROTTLE_BYTES_PER_S,
    moves: MovesOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Bring everything away from brokers, which may be dead."""
    request = _Request(snapshot, cluster, out, plot, Limits(disk_limit, throttle), moves, as_json)
    request.run(lambda fleet, limits: plan_drain(fleet, brokers, limits=limits))


@app.command()
def add(
    brokers: Annotated[list[int], typer.Argument(help="Ids of the brokers that are to get their share.")],
    snapshot: SnapshotOption = None,
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    out: OutOption = None,
    plot: PlotOption = None,
    disk_limit: LimitOption = DISK_LIMIT,
    throttle: ThrottleOption = THROTTLE_BYTES_PER_S,
    moves: MovesOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Give new brokers their share; nothing moves between the others."""
    request = _Request(snapshot, cluster, out, plot, Limits(disk_limit, throttle), moves, as_json)
    request.run(lambda fleet, limits: plan_add(fleet, brokers, limits=limits))


@app.command("remove-disk")
def remove_disk(
    disk: Annotated[str, typer.Argument(help="Broker and log directory: 3:/data/1.")],
    snapshot: SnapshotOption = None,
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    out: OutOption = None,
    plot: PlotOption = None,
    disk_limit: LimitOption = DISK_LIMIT,
    throttle: ThrottleOption = THROTTLE_BYTES_PER_S,
    moves: MovesOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Bring everything away from a disk, which may have failed."""
    broker, colon, path = disk.partition(":")
    if not broker.isdecimal() or not colon or not path:
        raise DefinitionError("not a disk of a broker", expected="BROKER:PATH", found=disk)
    request = _Request(snapshot, cluster, out, plot, Limits(disk_limit, throttle), moves, as_json)
    request.run(lambda fleet, limits: plan_remove_disk(fleet, int(broker), path, limits=limits))


@app.command()
def factor(
    replicas: Annotated[int, typer.Argument(min=1, help="So many replicas of each partition.")],
    topic: Annotated[list[str], typer.Option(help="Of this topic; may be repeated.")],
    snapshot: SnapshotOption = None,
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    out: OutOption = None,
    plot: PlotOption = None,
    disk_limit: LimitOption = DISK_LIMIT,
    throttle: ThrottleOption = THROTTLE_BYTES_PER_S,
    moves: MovesOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Raise the replication factor of topics."""
    request = _Request(snapshot, cluster, out, plot, Limits(disk_limit, throttle), moves, as_json)
    request.run(lambda fleet, limits: plan_factor(fleet, topic, replicas, limits=limits))


@app.command()
def show(
    plan: PlanArgument,
    snapshot: Annotated[
        Path | None, typer.Option("--snapshot", help="Say whether it may be carried out on this fleet.")
    ] = None,
    plot: PlotOption = None,
    moves: MovesOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Show a plan that was kept; a plan that was edited is refused."""
    found = load_plan(plan)
    if snapshot is not None:
        check_applies(found, load(snapshot))
    if plot is not None:
        _draw(found, plot)
    if as_json:
        rows = move_rows(found, np.argsort(-found.moves.size_bytes, kind="stable")[:moves])
        print_json({**summary(found), "largest": [dict(zip(MOVE_COLUMNS, row, strict=True)) for row in rows]})
        return
    print_plan(found, moves=moves)
    if snapshot is not None:
        success(f"it may be carried out on {snapshot}")


@app.command()
def diff(one: PlanArgument, other: PlanArgument, as_json: JsonOption = False) -> None:
    """Say in what two plans differ."""
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
        ("time", time_text(first.expected_s), time_text(second.expected_s)),
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


def _draw(plan: Plan, path: Path) -> None:
    use = DiskUse(
        [f"{broker}:{name}" for broker, name in zip(plan.disks.brokers, plan.disks.paths, strict=True)],
        plan.disks.utilisation(plan.disks.before_bytes),
        plan.disks.utilisation(plan.disks.after_bytes),
    )
    title = f"Plan {plan.kind} of cluster {plan.cluster_id}"
    write_file(
        path, draw_fleet_utilisation(use, title=title, limit=plan.disk_limit, form=picture_format(path))
    )
