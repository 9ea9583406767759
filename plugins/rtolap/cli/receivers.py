"""`rtolap receivers` shows and arranges receivers and replica sets."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from rtolap.base.addresses import host_port
from rtolap.base.errors import DefinitionError
from rtolap.cli import retirement
from rtolap.cli.coordinator_access import coordinator_client, warn_of_replica_sets
from rtolap.cli.output import JsonOption, print_json, print_table, report, success, warn
from rtolap.cli.watching import repeatable
from rtolap.protocols.coordinator.messages import CubeReport, LevelledBy, Reassignment
from rtolap.protocols.coordinator.operations import (
    apply_move,
    reassignment_plan,
    wait_for_move,
)
from rtolap.protocols.query.messages import refused_text

MOVE_COLUMNS = ("partition", "from", "to", "reads again from", "log end", "records")
MOVE_BY_LOAD_COLUMNS = (*MOVE_COLUMNS, "load %")

app = typer.Typer(no_args_is_help=True, help="Receivers and replica sets.")
app.command("drain")(retirement.drain)
app.command("remove-set")(retirement.remove_set)
app.command("remove")(retirement.remove)


@app.command("list")
@repeatable
def list_receivers(as_json: JsonOption = False) -> None:
    """List receivers with their health: HEALTHY, WARN, UNREACHABLE or DOWN."""
    with coordinator_client() as client:
        receivers = client.receivers()
        replica_sets = client.replica_sets()
    if as_json:
        print_json(receivers)
        return
    print_table(
        (
            "receiver",
            "address",
            "machine",
            "rack",
            "replica set",
            "leader",
            "version",
            "health",
            "reason",
            "cubes",
        ),
        [
            (
                receiver.receiver_id,
                host_port(receiver.host, receiver.port),
                receiver.machine,
                receiver.rack,
                receiver.replica_set,
                "yes" if receiver.is_leader else "",
                receiver.program,
                receiver.health,
                receiver.reason,
                ", ".join(f"{cube} {_standing(report)}" for cube, report in receiver.cubes.items()),
            )
            for receiver in receivers
        ],
    )
    warn_of_replica_sets(replica_sets)


def _standing(report: CubeReport) -> str:
    hostless = sum(partition.hostless_events for partition in report.partitions.values())
    counted = f", {hostless} events without a usable host" if hostless else ""
    filtered = sum(partition.filtered_records for partition in report.partitions.values())
    counted += f", {filtered} records left out by the table's condition" if filtered else ""
    refused: Counter[str] = Counter()
    for partition in report.partitions.values():
        refused.update(partition.refused)
    refusals = refused_text(refused, report.refused_example)
    return f"{report.state} {sorted(report.partitions)}{counted}{', ' if refusals else ''}{refusals}"


@app.command("replica-sets")
@repeatable
def list_replica_sets(as_json: JsonOption = False) -> None:
    """List replica sets, their receivers and leaders."""
    with coordinator_client() as client:
        replica_sets = client.replica_sets()
    if as_json:
        print_json(replica_sets)
        return
    print_table(
        ("replica set", "receivers", "leader", "drained"),
        [
            (found.name, ", ".join(found.receivers), found.leader, "yes" if found.draining else "")
            for found in replica_sets
        ],
    )
    warn_of_replica_sets(replica_sets)


@app.command("put-replica-set")
def put_replica_set(
    name: Annotated[str, typer.Argument(help="Name of the replica set.")],
    receivers: Annotated[list[str], typer.Argument(help="Ids of its receivers.")],
    as_json: JsonOption = False,
) -> None:
    """Define the receivers of a replica set."""
    with coordinator_client() as client:
        replica_set = client.put_replica_set(name, receivers)
    report(
        replica_set, f"replica set {replica_set.name}: {', '.join(replica_set.receivers)}", as_json=as_json
    )


@app.command()
def rebalance(
    cube: Annotated[str, typer.Argument(help="Name of the cube.")],
    over: Annotated[
        list[str] | None,
        typer.Option("--over", help="Replica set over which partitions are spread. Repeatable."),
    ] = None,
    move: Annotated[
        list[str] | None,
        typer.Option("--move", help="PARTITION=REPLICA_SET: move only this partition. Repeatable."),
    ] = None,
    by: Annotated[
        LevelledBy,
        typer.Option("--by", help="What is levelled: the number of partitions, or the reported load."),
    ] = "count",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    wait_s: Annotated[
        float, typer.Option("--wait-s", min=0, help="Seconds to wait until the new owners have caught up.")
    ] = 0.0,
    warm_up: Annotated[
        bool | None,
        typer.Option(
            "--warm-up/--at-once",
            help="The new owners read beside the old ones, which answer until the new ones can; or the "
            "assignment changes at once, and queries wait. Without either: at once where nobody answers.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Move partitions of a running cube between replica sets; without options, level them.

    The new owner reads a partition again from where history ends. The old one answers meanwhile.
    With --at-once, queries wait until the new owner has caught up.
    """
    if move and over:
        raise DefinitionError("--move and --over exclude each other")
    if move and by == "load":
        raise DefinitionError(
            "--move and --by load exclude each other", action="leave one out: a plan by load says what moves"
        )
    with coordinator_client() as client:
        plan = reassignment_plan(client, cube, over=over, moves=move, by=by)
        if plan.moves and not dry_run:
            if not as_json:
                _show_plan(plan)
            if not yes:
                typer.confirm(f"Move {len(plan.moves)} partitions of {cube}?", abort=True)
            plan = apply_move(client, plan, wait_s=wait_s, warm_up=warm_up)
    if as_json:
        print_json(plan)
    elif plan.applied:
        success(f"{cube} follows assignment {plan.epoch}; `rtolap receivers list` shows how far everybody is")
    elif plan.planned_epoch is not None:
        _show_warming(plan)
    elif plan.moves:
        _show_plan(plan)
    else:
        _show_loads(plan)
        success(f"nothing of {cube} has to move")


@app.command("cancel-move")
def cancel_move(
    cube: Annotated[str, typer.Argument(help="Name of the cube.")], as_json: JsonOption = False
) -> None:
    """End a move that warms up; the assignment stays as it is."""
    with coordinator_client() as client:
        status = client.cancel_move(cube)
    report(status, f"{cube} stays with assignment {status.assignment_epoch}", as_json=as_json)


@app.command("undo-move")
def undo_move(
    cube: Annotated[str, typer.Argument(help="Name of the cube.")],
    wait_s: Annotated[
        float, typer.Option("--wait-s", min=0, help="Seconds to wait until the old assignment stands again.")
    ] = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Move back what the last move with warm-up has moved, in the same way."""
    with coordinator_client() as client:
        plan = wait_for_move(client, client.undo_move(cube), wait_s=wait_s)
    if as_json:
        print_json(plan)
    elif plan.applied:
        success(f"{cube} follows assignment {plan.epoch}")
    else:
        _show_warming(plan)


def _show_warming(plan: Reassignment) -> None:
    success(
        f"{plan.cube} warms up for assignment {plan.planned_epoch}; `rtolap describe` shows what it waits for"
    )


def _show_plan(plan: Reassignment) -> None:
    _show_loads(plan)
    print_table(
        MOVE_COLUMNS if plan.load is None else MOVE_BY_LOAD_COLUMNS,
        [
            (m.partition, m.source, m.target, m.read_from, m.log_end, m.log_end - m.read_from)
            + (() if plan.load is None else (m.load_percent,))
            for m in plan.moves
        ],
        title=f"assignment {plan.epoch} of {plan.cube}",
    )


def _show_loads(plan: Reassignment) -> None:
    """Show what each replica set carries before and after a plan by load; nothing for other plans."""
    if plan.load is None:
        return
    print_table(
        ("replica set", "when", "load %", "partitions", "records/s", "lag", "held_bytes"),
        [
            (
                one.replica_set,
                when,
                one.load_percent,
                one.partitions,
                one.records_per_s,
                one.lag_records,
                one.held_bytes,
            )
            for pair in zip(plan.load.before, plan.load.after, strict=True)
            for when, one in zip(("before", "after"), pair, strict=True)
        ],
        title=f"loads: all cubes; partitions of {plan.cube}; a move pays from {plan.load.pays_percent} % on",
    )
    if plan.load.unreported:
        warn(
            f"no loads are reported of partitions {list(plan.load.unreported)}: each counts as the mean of "
            "the others"
        )
