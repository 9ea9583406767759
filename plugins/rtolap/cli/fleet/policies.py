"""`rtolap fleet policies` proposes what to do about failed disks and slow brokers.

Exit codes: 0 nothing is to be done, or it was done; 1 an error; 3 something is proposed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from rtolap.base.errors import Corrupted, RtolapError
from rtolap.base.settings import Settings
from rtolap.cli.fleet.access import ByOption, RegistryOption, operator, read_registry
from rtolap.cli.fleet.audit import EXIT_FOUND
from rtolap.cli.fleet.brokers import open_brokers
from rtolap.cli.output import JsonOption, print_table, success, warn
from rtolap.fleet.isolation.registry import registered_cluster
from rtolap.fleet.lifecycle.policies import Proposal, SlowVerdict, proposals
from rtolap.fleet.operations.brokers import OpenedBrokers

COLUMNS = ("broker", "symptom", "evidence", "operations", "held back")


def policies(
    cluster: Annotated[str, typer.Argument(help="Cluster of the fleet.")],
    slow: Annotated[
        Path | None, typer.Option(help="File with the output of `rtolap fleet slow --json`.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Carry out operations that the registry allows without a person.")
    ] = False,
    by: ByOption = None,
    registry: RegistryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Propose to cordon and drain slow brokers and brokers with failed disks. With --apply, do it."""
    settings = Settings()
    fleet = read_registry(registry, settings)
    policy = fleet.cluster(cluster).policy
    verdicts = () if slow is None else read_verdicts(slow)
    failed = False
    declared = registered_cluster(fleet, cluster)
    with open_brokers(declared.kafka_cluster, changing=apply, registered_of=lambda _: declared) as opened:
        found = proposals(policy, opened.snapshot, opened.operations.records(), verdicts)
        if apply:
            who = operator(settings, by)
            for proposal in found:
                if proposal.applies and not _apply(opened, proposal, who):
                    failed = True
                elif proposal.applies and not as_json:
                    success(f"broker {proposal.broker}: {', '.join(proposal.operations)}")
    print_table(COLUMNS, [_row(each) for each in found], as_json=as_json, document=found)
    if failed:
        raise typer.Exit(1)
    if any(each.operations and not (apply and each.applies) for each in found):
        raise typer.Exit(EXIT_FOUND)


def read_verdicts(path: Path) -> tuple[SlowVerdict, ...]:
    """Read the verdicts on slow brokers. Raises Corrupted where the file is not what the command prints."""
    try:
        told: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        rows = [row for row in told["rows"] if row["is_slow"]]
        verdicts = [
            SlowVerdict(
                int(row["broker"]),
                int(row["since_ms"]),
                f"{row['request']} p99 {row['p99_ms']:.0f} ms, most of it in {row['stage']}",
            )
            for row in rows
        ]
    except (OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise Corrupted(f"{path} is not what `rtolap fleet slow --json` prints", found=str(error)) from error
    return tuple(verdicts)


def _apply(opened: OpenedBrokers, proposal: Proposal, by: str) -> bool:
    reason = f"policy {proposal.symptom}: {proposal.evidence}"
    try:
        for operation in proposal.operations:
            opened.operate(proposal.broker, operation, by, reason)
    except RtolapError as error:
        warn(f"broker {proposal.broker}: {error}")
        return False
    return True


def _row(each: Proposal) -> tuple[object, ...]:
    how = "" if not each.operations else " (applies)" if each.applies else " (proposed)"
    return each.broker, each.symptom, each.evidence, ", ".join(each.operations) + how, each.held_back
