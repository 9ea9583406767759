"""`rtolap fleet audit`: compares clusters with the registry.

Exit codes: 0 no finding as severe as `--fail-on`; 1 an error, or a cluster that could not be read; 3 a
finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.clock import SystemClock
from rtolap.base.errors import DefinitionError, RtolapError
from rtolap.base.settings import Settings
from rtolap.cli.fleet.access import RegistryOption, open_administration, read_clients, read_registry
from rtolap.cli.output import EXIT_ERROR, JsonOption, print_json, print_table, success, warn
from rtolap.fleet.isolation.audit import audit as audit_fleet
from rtolap.fleet.isolation.clients import clients_elsewhere
from rtolap.fleet.isolation.findings import SEVERITIES, Audit, Finding, Severity, some
from rtolap.fleet.isolation.topic_users import CollectedUsers, collect_users
from rtolap.fleet.isolation.topics import misplaced_topics
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.file import load
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.model.fleet import KafkaFleet
from rtolap.model.quantities import instant_text

EXIT_FOUND = 3
COLUMNS = ("severity", "cluster", "kind", "subject", "what", "expected", "found", "repair")
USER_COLUMNS = ("cluster", "topic", "used by", "state", "partitions", "lag or last write", "clients")


def audit(
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            help="Only this cluster, by its name in the registry or the one by which this host reaches it;"
            " may be repeated.",
        ),
    ] = None,
    snapshot: Annotated[
        list[str] | None,
        typer.Option(
            help="Read this snapshot instead of the cluster: FILE of the one --cluster, or CLUSTER=FILE."
        ),
    ] = None,
    registry: RegistryOption = None,
    fail_on: Annotated[
        Severity, typer.Option(help="Exit with 3 for findings of this severity or a higher one.")
    ] = Severity.WARNING,
    as_json: JsonOption = False,
) -> None:
    """Find differences from the registry: racks, placement, replicas, owners, roles, reserves, quotas.

    Tables, loaders and subscriptions of the same files are checked too."""
    fleet, clients = read_registry(registry, Settings()), read_clients(registry, Settings())
    names = [fleet.declared_name(name) for name in cluster] if cluster else list(fleet.clusters)
    silent: dict[str, str] = {}
    users: dict[str, CollectedUsers] = {}
    if snapshot:
        snapshots = _loaded(fleet, names, snapshot)
    else:
        snapshots, users, silent = _collected(fleet, names)
    reached = {fleet.kafka_cluster(name) for name in names}
    mine = [each for each in clients if each.kafka_cluster in reached]
    result = audit_fleet(fleet, snapshots, mine, users)
    passed_over = [f"{name}: {reason}" for name, reason in silent.items()]
    if not cluster:
        passed_over += clients_elsewhere(fleet, clients)
    unchecked = [each for each in result.unchecked if each.partition(":")[0] in snapshots] + passed_over
    _show(Audit(result.findings, tuple(unchecked)), as_json)
    severest = SEVERITIES.index(fail_on)
    if any(SEVERITIES.index(finding.severity) <= severest for finding in result.findings):
        raise typer.Exit(EXIT_FOUND)
    if silent:
        raise typer.Exit(EXIT_ERROR)
    if not as_json:
        success(f"{', '.join(snapshots)}: as declared")


def _loaded(fleet: KafkaFleet, names: list[str], files: list[str]) -> dict[str, FleetSnapshot]:
    found: dict[str, FleetSnapshot] = {}
    for file in files:
        name, equals, path = file.partition("=")
        if not equals:
            if len(names) != 1:
                raise DefinitionError(
                    f"the cluster of snapshot {file} is not given",
                    expected="CLUSTER=FILE, or one --cluster",
                    found=file,
                )
            name, path = names[0], file
        fleet.cluster(name)
        found[name] = load(Path(path))
    return found


def _collected(
    fleet: KafkaFleet, names: list[str]
) -> tuple[dict[str, FleetSnapshot], dict[str, CollectedUsers], dict[str, str]]:
    """Collect snapshots and the users of misplaced topics by cluster, and the reasons for missing snapshots.

    A cluster that is away does not hide the problems of others.
    """
    found: dict[str, FleetSnapshot] = {}
    users: dict[str, CollectedUsers] = {}
    silent: dict[str, str] = {}
    for name in names:
        try:
            with open_administration(fleet.kafka_cluster(name)) as administration:
                snapshot = collect_snapshot(administration, SystemClock())
                misplaced = misplaced_topics(fleet, name, snapshot.topics.names)
                found[name] = snapshot
                users[name] = collect_users(administration, snapshot, misplaced)
        except RtolapError as error:
            silent[name] = str(error)
    return found, users, silent


def _show(result: Audit, as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    if result.findings:
        rows = [
            (
                finding.severity,
                finding.cluster,
                finding.kind,
                finding.subject,
                finding.message,
                finding.expected,
                finding.found,
                finding.repair,
            )
            for finding in result.findings
        ]
        print_table(COLUMNS, rows)
    used = [row for finding in result.findings for row in user_rows(finding)]
    if used:
        print_table(USER_COLUMNS, used)
    for unchecked in result.unchecked:
        warn(f"not checked: {unchecked}")


def user_rows(finding: Finding) -> Iterator[tuple[object, ...]]:
    """Yield who uses the topic of the finding, a line each."""
    if finding.users is None:
        return
    subject = (finding.cluster, finding.subject)
    for what in finding.users.declared:
        yield *subject, what, "declared", "", "", ""
    for group in finding.users.groups or ():
        members = "members not reported" if group.members is None else _counted(group.members, "member")
        partitions = sorted({*group.assigned, *group.committed})
        lag = "lag not known" if group.lag_records is None else f"lag {group.lag_records}"
        state = f"{group.kind or 'group'}, {group.state}, {members}"
        yield *subject, f"group {group.group}", state, some(partitions), lag, some(group.clients)
    for each in finding.users.producers or ():
        state = (
            f"{_counted(each.open_transactions, 'transaction')} open" if each.open_transactions else "active"
        )
        yield (
            *subject,
            _counted(each.producers, "producer"),
            state,
            each.partition,
            _time(each.last_written_ms),
            "",
        )


def _time(at_ms: int) -> str:
    return instant_text(at_ms) if at_ms >= 0 else ""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
