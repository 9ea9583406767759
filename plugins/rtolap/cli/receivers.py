"""`rtolap receivers`: receivers and replica sets."""

from __future__ import annotations

from typing import Annotated

import typer

from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, print_json, print_table, success

app = typer.Typer(no_args_is_help=True, help="Receivers and replica sets.")


@app.command("list")
def list_receivers(as_json: JsonOption = False) -> None:
    """Receivers with their health: HEALTHY, WARN, UNREACHABLE or DOWN."""
    with coordinator_client() as client:
        found = client.receivers()
    if as_json:
        print_json([receiver.model_dump(mode="json") for receiver in found])
        return
    print_table(
        ("receiver", "address", "replica set", "leader", "health", "reason", "cubes"),
        [
            (
                receiver.receiver_id,
                f"{receiver.host}:{receiver.port}",
                receiver.replica_set,
                "yes" if receiver.is_leader else "",
                receiver.health,
                receiver.reason,
                ", ".join(
                    f"{cube} {report.state} {sorted(report.partitions)}"
                    for cube, report in receiver.cubes.items()
                ),
            )
            for receiver in found
        ],
    )


@app.command("replica-sets")
def list_replica_sets(as_json: JsonOption = False) -> None:
    """Replica sets, their receivers and leaders."""
    with coordinator_client() as client:
        found = client.replica_sets()
    if as_json:
        print_json([replica_set.model_dump(mode="json") for replica_set in found])
        return
    print_table(
        ("replica set", "receivers", "leader"),
        [(found_set.name, ", ".join(found_set.receivers), found_set.leader) for found_set in found],
    )


@app.command("put-replica-set")
def put_replica_set(
    name: Annotated[str, typer.Argument(help="Name of the replica set.")],
    receivers: Annotated[list[str], typer.Argument(help="Ids of its receivers.")],
) -> None:
    """Say which receivers form a replica set."""
    with coordinator_client() as client:
        found = client.put_replica_set(name, receivers)
    success(f"replica set {found.name}: {', '.join(found.receivers)}")
