"""A look at a cluster for people: its brokers and their disks, and the progress of its plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtolap.base.errors import PlanChanged
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.standing import PlanStanding, standing
from rtolap.fleet.moves.status import PlanStatus, plan_status
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.moves.window import PlanMoves
from rtolap.fleet.operations.cluster import OpenedFleet, plan_path
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.plan_file import plan_digest, plan_from
from rtolap.kafka.administration.values import BrokerDescription
from rtolap.object_store.store import ObjectStore


@dataclass(frozen=True)
class DiskUse:
    """A log directory of a broker. Bytes are None where the broker does not say."""

    broker: int
    path: str
    total_bytes: int | None
    used_bytes: int | None
    offline: bool


@dataclass(frozen=True)
class StageProgress:
    """A stage of a plan. It begins when the stages before it have ended.

    Attributes:
        stage: from 1 on.
        ended: moves that are done, cancelled or failed, of `moves`.
        moved_bytes: of moves that are done, of `total_bytes`.
    """

    stage: int
    moves: int
    ended: int
    moved_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class PlanLook:
    """The plan that is carried out, or the last one that was."""

    status: PlanStatus
    standing: PlanStanding
    stages: tuple[StageProgress, ...]


@dataclass(frozen=True)
class FleetLook:
    """A cluster at one moment.

    Attributes:
        missing: why a broker has not told its disks, by its id.
        plan: None where no plan was submitted.
    """

    cluster_id: str
    at_ms: int
    brokers: tuple[BrokerDescription, ...]
    disks: tuple[DiskUse, ...]
    missing: dict[int, str]
    plan: PlanLook | None


def look_at_fleet(fleet: OpenedFleet) -> FleetLook:
    """Look at brokers, disks and the plan. Raises what the brokers and the store raise.

    No partition is described but those that are to be moved, so that a look at a large cluster is cheap.
    """
    now_ms = fleet.clock.now_ms()
    described = fleet.administration.describe_cluster()
    dirs = fleet.administration.describe_log_dirs(list(described.serving), ())
    disks = [
        DiskUse(
            broker,
            each.path,
            each.total_bytes,
            None
            if each.total_bytes is None or each.usable_bytes is None
            else each.total_bytes - each.usable_bytes,
            each.offline,
        )
        for broker, told in sorted(dirs.items())
        for each in sorted(told.log_dirs, key=lambda each: each.path)
    ]
    missing = {broker: str(told.missing) for broker, told in sorted(dirs.items()) if told.missing is not None}
    plan = _plan_look(fleet, FleetStore(fleet.metadata, described.cluster_id), now_ms)
    return FleetLook(described.cluster_id, now_ms, described.brokers, tuple(disks), missing, plan)


def _plan_look(fleet: OpenedFleet, fleet_store: FleetStore, now_ms: int) -> PlanLook | None:
    current = fleet_store.current()
    known = () if current is not None else fleet_store.plans()
    record = current.record if current is not None else known[-1] if known else None
    if record is None:
        return None
    planned = PlanMoves.of(fleet_store.read_moves(record.plan_id, record.moves_digest))
    return PlanLook(
        plan_status(record, planned, now_ms, MoverSettings()),
        standing(fleet_store, fleet.administration, record, planned, now_ms),
        stages_of(record, planned),
    )


def stages_of(record: PlanRecord, planned: PlanMoves) -> tuple[StageProgress, ...]:
    """Return the stages of a plan with how far each is."""
    outcomes = np.frombuffer(record.outcomes.encode(), np.uint8)
    done, ended = outcomes == ord("d"), np.isin(outcomes, np.frombuffer(b"dcf", np.uint8))
    stages = []
    for stage in np.unique(planned.stages).tolist():
        mine = planned.stages == stage
        stages.append(
            StageProgress(
                stage + 1,
                int(mine.sum()),
                int((ended & mine).sum()),
                int(planned.copies_bytes[done & mine].sum()),
                int(planned.copies_bytes[mine].sum()),
            )
        )
    return tuple(stages)


def stored_plan(plans: ObjectStore, digest: str) -> Plan:
    """Return the plan of this digest that a DAG has made. Raises NotFound; PlanChanged where the file is
    another plan by now."""
    path = plan_path(digest)
    plan = plan_from(plans.read(path), path)
    if plan_digest(plan) != digest:
        raise PlanChanged(
            "the file of the plan is another plan by now", expected=digest, found=plan_digest(plan)
        )
    return plan
