"""The common part of the planning commands: their options, where the snapshot and the placement rules come
from, and where the plan goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.clock import SystemClock
from rtolap.cli.fleet.access import open_administration
from rtolap.cli.fleet.plan_text import print_plan, summary
from rtolap.cli.fleet.registry import DeclaredCluster
from rtolap.cli.output import print_json, success, write_file
from rtolap.draw.figure import picture_format
from rtolap.draw.fleet_utilisation import DiskUse, draw_fleet_utilisation
from rtolap.fleet.planning.plan import Limits, Plan
from rtolap.fleet.planning.plan_file import kafka_json, save_plan
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.file import load
from rtolap.fleet.snapshot.model import Snapshot
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

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


@dataclass(frozen=True)
class PlanRequest:
    """Options of all planning commands. declared: the cluster whose placement rules the plan keeps to."""

    snapshot: Path | None
    cluster: str
    out: Path | None
    plot: Path | None
    limits: Limits
    moves: int
    as_json: bool
    declared: DeclaredCluster | None = None

    def run(self, planner: Callable[[Snapshot, Limits], Plan]) -> None:
        form = picture_format(self.plot) if self.plot else None
        snapshot = self._snapshot()
        allowed = None if self.declared is None else self.declared.allowed_brokers(snapshot)
        plan = planner(snapshot, replace(self.limits, allowed=allowed))
        if self.out is not None:
            save_plan(plan, self.out)
            write_file(kafka_file(self.out), kafka_json(plan))
        if self.plot is not None and form is not None:
            draw_plan(plan, self.plot)
        if self.as_json:
            print_json(summary(plan))
            return
        print_plan(plan, moves=self.moves)
        if self.out is not None:
            success(f"{self.out}, and for Kafka's tool {kafka_file(self.out)}")

    def _snapshot(self) -> Snapshot:
        if self.snapshot is not None:
            return load(self.snapshot)
        cluster = self.cluster
        if self.declared is not None and cluster == DEFAULT_KAFKA_CLUSTER:
            cluster = self.declared.kafka_cluster
        with open_administration(cluster) as administration:
            return collect_snapshot(administration, SystemClock())


def kafka_file(path: Path) -> Path:
    """Return the path, beside a plan, of what Kafka's tool reads."""
    return path.with_suffix(".kafka.json")


def draw_plan(plan: Plan, path: Path) -> None:
    use = DiskUse(
        [f"{broker}:{name}" for broker, name in zip(plan.disks.brokers, plan.disks.paths, strict=True)],
        plan.disks.utilisation(plan.disks.before_bytes),
        plan.disks.utilisation(plan.disks.after_bytes),
    )
    title = f"Plan {plan.kind} of cluster {plan.cluster_id}"
    write_file(
        path, draw_fleet_utilisation(use, title=title, limit=plan.disk_limit, form=picture_format(path))
    )
