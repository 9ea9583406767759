"""`rtolap fleet quotas` compares client quotas as declared and as they are.

Exit codes: 0 they are as declared, or are now; 1 an error; 2 --apply without a reason; 3 they differ.
"""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from rtolap.base.clock import SystemClock
from rtolap.base.settings import Settings
from rtolap.cli.fleet.access import (
    ByOption,
    RegistryOption,
    open_administration,
    open_metadata,
    operator,
    read_registry,
)
from rtolap.cli.fleet.audit import EXIT_FOUND
from rtolap.cli.output import JsonOption, print_json, print_table, success
from rtolap.fleet.isolation.quotas import QuotaDifference, apply_quotas, live_differences, quota_changes

COLUMNS = ("entity", "key", "declared", "live", "applying")
AUDIT_COLUMNS = ("at_ms", "by", "entity", "key", "declared", "live", "taken", "why")


def quotas(
    cluster: Annotated[str, typer.Argument(help="Cluster of the fleet.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Set the declared quotas, and read them again.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Reason for the log of changes. With --apply.")] = "",
    audit: Annotated[bool, typer.Option("--audit", help="Show the log of changes instead.")] = False,
    by: ByOption = None,
    registry: RegistryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show client quotas that differ from the registry; with --apply, set them."""
    settings = Settings()
    fleet = read_registry(registry, settings)
    declared = fleet.cluster(cluster)
    if apply and not reason:
        raise typer.BadParameter("say why, with --reason", param_hint="--apply")
    if audit:
        _print_audit(fleet.kafka_cluster(cluster), settings, as_json)
        return
    with open_administration(fleet.kafka_cluster(cluster)) as administration:
        differences = live_differences(declared, administration)
        if apply:
            who = operator(settings, by)
            with open_metadata(settings) as store:
                differences = apply_quotas(
                    declared,
                    differences,
                    administration,
                    store,
                    SystemClock(),
                    operation_id=uuid.uuid4().hex,
                    by=who,
                    reason=reason,
                )
    if as_json:
        print_json(differences)
    elif differences:
        print_table(COLUMNS, [_row(each) for each in differences])
    else:
        success(f"quotas of {cluster} are as declared")
    if any(each.applies for each in differences):
        raise typer.Exit(EXIT_FOUND)


def _print_audit(kafka_cluster: str, settings: Settings, as_json: bool) -> None:
    """Print a line for each changed value; its column `live` has the value before the change."""
    with open_administration(kafka_cluster) as administration:
        cluster_id = administration.describe_cluster().cluster_id
    with open_metadata(settings) as store:
        changes = quota_changes(store, cluster_id)
    rows = [
        (change.at_ms, change.by, each.named, each.key, each.declared, each.live, change.taken, change.reason)
        for change in changes
        for each in change.differences
    ]
    print_table(AUDIT_COLUMNS, rows, as_json=as_json, document=changes)


def _row(each: QuotaDifference) -> tuple[object, ...]:
    change = "sets it" if each.declared is not None else "removes it" if each.applies else "leaves it"
    return each.named, each.key, each.declared, each.live, change
