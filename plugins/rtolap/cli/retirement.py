"""The commands that retire receivers: `rtolap receivers drain`, `remove-set` and `remove`."""

from __future__ import annotations

from typing import Annotated

import typer

from rtolap.base.errors import DefinitionError
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, print_json, print_table, report, success
from rtolap.protocols.coordinator.messages import Drain, DrainRequest
from rtolap.protocols.coordinator.operations import drained_replica_set

ReplicaSet = Annotated[str, typer.Argument(help="Name of the replica set.")]


def drain(
    replica_set: ReplicaSet,
    undo: Annotated[
        bool, typer.Option("--undo", help="Let it be given partitions again. Moves that run are cancelled.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the moves, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    cubes_max: Annotated[
        int, typer.Option("--cubes-max", min=1, help="Cubes that move at the same time.")
    ] = 1,
    wait_s: Annotated[
        float,
        typer.Option("--wait-s", min=0, help="Seconds to wait until it is over. 0 begins it only."),
    ] = 600.0,
    as_json: JsonOption = False,
) -> None:
    """Move the partitions of all cubes off a replica set, with warm-up, and give it none any more.

    The receivers of the replica set answer until the new owners can. The leader of the coordinators goes on,
    cube after cube, also where this command is interrupted; --undo ends it.
    """
    if undo and dry_run:
        raise DefinitionError("--undo and --dry-run exclude each other")
    with coordinator_client() as client:
        if undo:
            drained = client.drain_replica_set(replica_set, DrainRequest(undo=True))
            report(drained, f"replica set {replica_set} may be given partitions again", as_json=as_json)
            return
        drained = client.drain_replica_set(replica_set, DrainRequest(dry_run=True))
        if not dry_run:
            if not as_json:
                _show(drained)
            if not yes:
                typer.confirm(f"Drain {replica_set}, {len(drained.cubes)} cubes?", abort=True)
            drained = drained_replica_set(
                client,
                replica_set,
                cubes_max=cubes_max,
                wait_s=wait_s,
                progress=(lambda found: None) if as_json else _show_left,
            )
    if as_json:
        print_json(drained)
    elif drained.cubes:
        _show(drained)
    else:
        after = f"stop its receivers, then `rtolap receivers remove-set {replica_set}`"
        success(
            f"no cube has partitions in {replica_set}: {after}"
            if drained.draining
            else f"no cube has partitions in {replica_set}; without --dry-run it gets none any more"
        )


def remove_set(replica_set: ReplicaSet, as_json: JsonOption = False) -> None:
    """Remove a replica set that is drained, and the records of its receivers.

    Refused while it has partitions, staged segments that are not in history, or a living receiver.
    """
    with coordinator_client() as client:
        client.remove_replica_set(replica_set)
    removed = {"removed": replica_set, "kind": "replica set"}
    report(removed, f"replica set {replica_set} is removed", as_json=as_json)


def remove(
    receiver: Annotated[str, typer.Argument(help="Id of the receiver.")], as_json: JsonOption = False
) -> None:
    """Remove a receiver that has stopped from the cluster's records.

    Refused where its replica set has partitions and no other living receiver.
    """
    with coordinator_client() as client:
        client.remove_receiver(receiver)
    removed = {"removed": receiver, "kind": "receiver"}
    report(removed, f"receiver {receiver} is removed", as_json=as_json)


def _show(drained: Drain) -> None:
    print_table(
        ("cube", "partitions", "moves to", "records read again", "it waits for"),
        [
            (
                cube.cube,
                ", ".join(map(str, cube.partitions)),
                ", ".join(f"{move.partition}={move.target}" for move in cube.moves),
                sum(move.log_end - move.read_from for move in cube.moves) if cube.moves else None,
                cube.refused or "; ".join(cube.waits),
            )
            for cube in drained.cubes
        ],
        title=f"partitions in {drained.replica_set}",
    )


def _show_left(drained: Drain) -> None:
    moving = [
        f"{cube.cube} (assignment {cube.planned_epoch})" for cube in drained.cubes if cube.planned_epoch
    ]
    success(f"{len(drained.cubes)} cubes left; moving: {', '.join(moving) or 'none'}")
