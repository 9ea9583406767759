"""`rtolap fleet submit | moves | throttle | pause | resume | cancel`: plans carried out, by the mover of the
cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.clock import SystemClock
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.cli.fleet.access import (
    ByOption,
    ClusterNameOption,
    ClusterOption,
    OperatorOptions,
    RegistryOption,
    find_cluster,
    open_administration,
    open_metadata,
    operator,
)
from rtolap.cli.fleet.moves_text import print_audit, print_status, status_document
from rtolap.cli.fleet.plan_request import with_option_groups
from rtolap.cli.output import JsonOption, print_json, report, success
from rtolap.cli.watching import repeatable
from rtolap.fleet.moves.records import Hours
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.standing import standing
from rtolap.fleet.moves.status import plan_status
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.moves.submitting import MoverRequests
from rtolap.fleet.moves.window import PlanMoves
from rtolap.fleet.operations.plans import check_approved, submit_plan
from rtolap.fleet.planning.plan_file import load_plan, plan_digest
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")

ReasonOption = Annotated[str, typer.Option("--reason", help="Reason, stored with the request.")]


def submit(
    plan: Annotated[Path, typer.Argument(help="File of the plan.")],
    throttle: Annotated[
        int | None,
        typer.Option(
            help="Maximum bytes per second that a broker sends and receives. 0: no throttle.", min=0
        ),
    ] = None,
    hours: Annotated[
        str, typer.Option(help="Hours in which moves may begin, UTC, such as 22:00-06:00.")
    ] = "",
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Undo unfinished moves at the end of the hours. They begin again later."),
    ] = False,
    digest: Annotated[
        str, typer.Option(help="Digest that was approved, or its beginning. Another plan is refused.")
    ] = "",
    reason: ReasonOption = "",
    by: ByOption = None,
    registry: RegistryOption = None,
    cluster_name: ClusterNameOption = None,
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    as_json: JsonOption = False,
) -> None:
    """Submit a plan to the mover.

    The cluster must not have changed since, and the plan has to follow the present placement rules of the
    registry.
    """
    loaded = load_plan(plan)
    if digest:
        check_approved(loaded, digest, f"{plan} is not the plan that was approved")
    rate = loaded.throttle_bytes_per_s if throttle is None else throttle
    settings, clock = Settings(), SystemClock()

    @contextmanager
    def open_requests() -> Iterator[MoverRequests]:
        who = operator(settings, by)
        with open_metadata(settings) as store:
            yield MoverRequests(FleetStore(store, loaded.cluster_id), clock, settings.token(), who)

    with open_administration(cluster) as administration:
        plan_id = submit_plan(
            *(loaded, administration, clock),
            lambda snapshot: find_cluster(snapshot, cluster, cluster_name, registry, settings),
            open_requests,
            rate_bytes_per_s=rate or None,
            hours=parse_hours(hours, undo),
            reason=reason,
        )
    submitted = {"plan": plan_id, "digest": plan_digest(loaded), "partitions": len(loaded)}
    message = f"plan {plan_id}: {len(loaded)} partitions; `rtolap fleet moves` shows how far it is"
    report(submitted, message, as_json=as_json)


@repeatable
def moves(
    plan_id: Annotated[str, typer.Argument(help="Id of a plan. Default: the current one, or the last.")] = "",
    audit: Annotated[bool, typer.Option("--audit", help="Show the audit of requests instead.")] = False,
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    as_json: JsonOption = False,
) -> None:
    """Show how far a plan is: what moves, what stalls, who is last."""
    with _opened(cluster) as (fleet_store, administration):
        if audit:
            print_audit(fleet_store, as_json)
            return
        current = fleet_store.current()
        known = fleet_store.plans()
        chosen = next((each for each in known if each.plan_id == plan_id), None) if plan_id else None
        record = chosen or (current.record if current else known[-1] if known else None)
        if plan_id and chosen is None:
            raise DefinitionError(f"there is no plan {plan_id}", expected=", ".join(r.plan_id for r in known))
        if record is None:
            if as_json:
                print_json({"plan": None, "mover": fleet_store.working_mover()})
            else:
                success("no plan was submitted")
            return
        planned = PlanMoves.of(fleet_store.read_moves(record.plan_id, record.moves_digest))
        now_ms = SystemClock().now_ms()
        stands = standing(fleet_store, administration, record, planned, now_ms)
    status = plan_status(record, planned, now_ms, MoverSettings())
    if as_json:
        print_json(status_document(status, stands))
        return
    print_status(status, stands)


@with_option_groups
def throttle(
    rate: Annotated[
        int,
        typer.Argument(
            metavar="BYTES",
            help="Maximum bytes per second that a broker sends and receives. 0: no throttle.",
            min=0,
        ),
    ],
    reason: ReasonOption = "",
    *,
    options: OperatorOptions,
) -> None:
    """Change the throttle of the plan while its moves run. It is removed at the end of the plan."""
    _ask(RequestKind.THROTTLE, reason, options, rate_bytes_per_s=rate or None)


@with_option_groups
def pause(reason: ReasonOption = "", *, options: OperatorOptions) -> None:
    """Pause the plan: no further move begins. Active moves go on."""
    _ask(RequestKind.PAUSE, reason, options)


@with_option_groups
def resume(reason: ReasonOption = "", *, options: OperatorOptions) -> None:
    """Resume the plan: moves begin again."""
    _ask(RequestKind.RESUME, reason, options)


@with_option_groups
def cancel(
    partitions: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC:P]...", help="Partitions of the plan.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Cancel the whole plan.")] = False,
    reason: ReasonOption = "",
    *,
    options: OperatorOptions,
) -> None:
    """Cancel moves. Incomplete ones are undone, also between disks of one broker."""
    if bool(partitions) == everything:
        raise DefinitionError("name partitions, or say --all", expected="TOPIC:P …, or --all")
    named = tuple(parse_partition(text) for text in partitions or ())
    _ask(RequestKind.CANCEL, reason, options, partitions=named)


def parse_hours(text: str, undo: bool) -> Hours | None:
    if not text:
        if undo:
            raise DefinitionError("--undo needs --hours")
        return None
    found = _HOURS.fullmatch(text)
    if found is None:
        raise DefinitionError("no hours of the day", expected="22:00-06:00", found=text)
    first_hour, first_minute, end_hour, end_minute = map(int, found.groups())
    hours = Hours(first_hour * 60 + first_minute, end_hour * 60 + end_minute, undo)
    if hours.first_minute == hours.end_minute:
        raise DefinitionError("hours that end when they begin", expected="22:00-06:00", found=text)
    return hours


def parse_partition(text: str) -> tuple[str, int]:
    topic, colon, number = text.rpartition(":")
    if not colon or not topic or not number.isdecimal():
        raise DefinitionError("no partition", expected="TOPIC:NUMBER", found=text)
    return topic, int(number)


@contextmanager
def _opened(cluster: str) -> Iterator[tuple[FleetStore, FleetAdministration]]:
    with open_administration(cluster) as administration:
        cluster_id = administration.describe_cluster().cluster_id
        with open_metadata(Settings()) as store:
            yield FleetStore(store, cluster_id), administration


def _ask(
    kind: RequestKind,
    reason: str,
    options: OperatorOptions,
    *,
    partitions: tuple[tuple[str, int], ...] = (),
    rate_bytes_per_s: int | None = None,
) -> None:
    settings = Settings()
    who = operator(settings, options.by)
    with _opened(options.cluster) as (fleet_store, _):
        requests = MoverRequests(fleet_store, SystemClock(), settings.token(), who)
        answer = requests.ask(kind, reason=reason, partitions=partitions, rate_bytes_per_s=rate_bytes_per_s)
    answered = {"asked": kind, "answer": answer.message, "at_ms": answer.at_ms}
    report(answered, answer.message, as_json=options.as_json)
