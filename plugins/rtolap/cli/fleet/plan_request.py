"""The common part of the planning commands: their options, where the snapshot and the placement rules come
from, and where the plan goes.

Options that several commands have in common are declared once, as a dataclass: see `with_option_groups`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from rtolap.base.clock import SystemClock
from rtolap.base.settings import Settings
from rtolap.cli.fleet.access import (
    ClusterNameOption,
    ClusterOption,
    RegistryOption,
    find_cluster,
    open_administration,
    read_cluster,
)
from rtolap.cli.fleet.looking import SourcesOption
from rtolap.cli.fleet.plan_text import print_plan, summary
from rtolap.cli.output import JsonOption, print_json, success, warn, write_file
from rtolap.cli.progress import progress_of
from rtolap.draw.figure import picture_format
from rtolap.draw.fleet_utilisation import DiskUse, draw_fleet_utilisation
from rtolap.fleet.isolation.registry import RegisteredCluster
from rtolap.fleet.operations.plans import make_plan
from rtolap.fleet.operations.rates import rate_reader
from rtolap.fleet.planning.decisions import Planner
from rtolap.fleet.planning.placement import DISK_LIMIT
from rtolap.fleet.planning.plan import THROTTLE_BYTES_PER_S, Plan
from rtolap.fleet.planning.plan_file import kafka_json, save_plan
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.file import load
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

SnapshotOption = Annotated[
    Path | None, typer.Option("--snapshot", help="Plan for this saved snapshot instead of the cluster.")
]
OutOption = Annotated[Path | None, typer.Option("--out", help="Write the plan to this file.")]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw disks before and after. The name ends in .svg or .png.")
]
LimitOption = Annotated[
    float, typer.Option("--disk-limit", min=0.01, max=1.0, help="Maximum share of a disk that may be used.")
]
ThrottleOption = Annotated[
    int, typer.Option("--throttle", min=1, help="Bytes per second and broker, for the estimate of the time.")
]
MovesOption = Annotated[
    int, typer.Option("--moves", min=0, help="Number of moves to list, the largest first.")
]


LEFT_OUT_EXIT = 3
_LEFT_OUT_SHOWN = 20


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses: each of their fields is an option (or argument) of the command line,
    in the place of the parameter."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        hint = hints[name]
        if not is_dataclass(hint):
            parameters.append(parameter.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY))
            continue
        groups[name] = hint
        own = get_type_hints(hint, include_extras=True)
        parameters += [
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if field.default is MISSING else field.default,
                annotation=own[field.name],
            )
            for field in fields(hint)
        ]

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@dataclass(frozen=True)
class PlanOutput:
    """Options that say where the fleet is recorded, if it is, and where the plan goes."""

    snapshot: SnapshotOption = None
    sources: SourcesOption = None
    out: OutOption = None
    plot: PlotOption = None
    as_json: JsonOption = False

    def read_snapshot(self, cluster: str) -> FleetSnapshot:
        """Read the snapshot. `cluster` names the cluster where the snapshot is not recorded."""
        if self.snapshot is not None:
            return load(self.snapshot)
        rates = rate_reader(self.sources or Settings().fleet_sources)
        with open_administration(cluster) as administration, progress_of("asking the brokers"):
            return collect_snapshot(administration, SystemClock(), rates)

    def show(self, plan: Plan, moves: int) -> None:
        if self.out is not None:
            save_plan(plan, self.out)
            for stage, file in enumerate(kafka_files(self.out, plan)):
                write_file(file, kafka_json(plan, stage))
        if self.plot is not None:
            draw_plan(plan, self.plot)
        if self.as_json:
            print_json(summary(plan))
        else:
            self._print(plan, moves)
        if plan.left_out:
            raise typer.Exit(LEFT_OUT_EXIT)

    def _print(self, plan: Plan, moves: int) -> None:
        print_plan(plan, moves=moves)
        for left_out in plan.left_out[:_LEFT_OUT_SHOWN]:
            warn(f"left out: {left_out.name}: {left_out.reason}")
        if len(plan.left_out) > _LEFT_OUT_SHOWN:
            warn(f"left out: {len(plan.left_out) - _LEFT_OUT_SHOWN} more; --json and --out list all")
        if self.out is not None:
            files = ", then ".join(map(str, kafka_files(self.out, plan)))
            success(f"{self.out}, and for Kafka's tool {files}")

    def refuse_other_pictures(self) -> None:
        """Refuse an unsupported form of picture file before anything is planned."""
        if self.plot is not None:
            picture_format(self.plot)


@dataclass(frozen=True)
class LeadersOptions(PlanOutput):
    """Options of plans that move no replica."""

    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER

    def run(self, planner: Planner) -> None:
        self.refuse_other_pictures()
        snapshot = self.read_snapshot(self.cluster)
        with progress_of("planning"):
            plan = make_plan(planner, snapshot, None)
        self.show(plan, 0)


@dataclass(frozen=True)
class PlacementOptions(PlanOutput):
    """Options of plans that move replicas of a cluster of the registry, which the command names."""

    registry: RegistryOption = None
    disk_limit: LimitOption = DISK_LIMIT
    throttle: ThrottleOption = THROTTLE_BYTES_PER_S
    moves: MovesOption = 20

    def run_registered(self, planner: Planner, name: str) -> None:
        self.refuse_other_pictures()
        registered = read_cluster(name, self.registry, Settings())
        self.plan(planner, self.read_snapshot(registered.kafka_cluster), registered)

    def plan(self, planner: Planner, snapshot: FleetSnapshot, registered: RegisteredCluster | None) -> None:
        with progress_of("planning"):
            plan = make_plan(
                *(planner, snapshot, registered),
                disk_limit=self.disk_limit,
                throttle_bytes_per_s=self.throttle,
            )
        self.show(plan, self.moves)


@dataclass(frozen=True)
class PlanOptions(PlacementOptions):
    """Options of plans that move replicas."""

    cluster_name: ClusterNameOption = None
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER

    def run(self, planner: Planner) -> None:
        """Plan, print and write. A cluster named in the registry is reached as the registry says, unless
        another is named."""
        self.refuse_other_pictures()
        settings, cluster = Settings(), self.cluster
        if self.cluster_name is not None and cluster == DEFAULT_KAFKA_CLUSTER:
            cluster = read_cluster(self.cluster_name, self.registry, settings).kafka_cluster
        snapshot = self.read_snapshot(cluster)
        taken_of = cluster if self.snapshot is None else None
        registered = find_cluster(snapshot, taken_of, self.cluster_name, self.registry, settings)
        self.plan(planner, snapshot, registered)


def kafka_files(path: Path, plan: Plan) -> list[Path]:
    """Return the paths, beside a plan, of what Kafka's tool reads: for each stage, in their order."""
    if plan.stage_count == 1:
        return [path.with_suffix(".kafka.json")]
    return [path.with_suffix(f".kafka.{stage + 1}.json") for stage in range(plan.stage_count)]


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
