"""`rtolap fleet brokers | join | cordon | uncordon | drain | repair | retire`: the life of brokers.

Exit codes: 0 done; 1 an error: refused, or pending because the cluster does not take it now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from rtolap.base.clock import SystemClock
from rtolap.base.settings import Settings
from rtolap.cli.fleet.access import (
    ClusterNameOption,
    ClusterOption,
    OperatorOptions,
    RegistryOption,
    find_cluster,
    open_administration,
    open_metadata,
    operator,
)
from rtolap.cli.fleet.plan_request import with_option_groups
from rtolap.cli.fleet.plan_text import print_plan
from rtolap.cli.output import JsonOption, print_json, print_table, report, warn
from rtolap.cli.watching import repeatable
from rtolap.fleet.isolation.registry import HostRegistry, RegisteredOf
from rtolap.fleet.lifecycle.observations import adopted_state, host_of, observed, replicas_of
from rtolap.fleet.lifecycle.states import BrokerEvent, BrokerLife, BrokerRecord
from rtolap.fleet.operations.brokers import FleetBrokers, OpenedBrokers
from rtolap.fleet.operations.plans import make_plan
from rtolap.fleet.operations.rates import rate_reader
from rtolap.fleet.planning import decisions
from rtolap.fleet.planning.plan import THROTTLE_BYTES_PER_S, Plan
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.model import BrokerState, FleetSnapshot
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

COLUMNS = ("broker", "host", "rack", "kafka", "state", "replicas", "pending", "since_ms", "by", "why")
_MOVES_SHOWN = 20
AUDIT_COLUMNS = ("number", "at_ms", "by", "operation", "before", "after", "why")

BrokerArgument = Annotated[int, typer.Argument(min=0, help="Id of the broker.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Reason, stored in the broker's history.")]
ThrottleOption = Annotated[
    int, typer.Option("--throttle", min=1, help="Maximum bytes per second that a broker sends and receives.")
]


@contextmanager
def open_brokers(
    cluster: str,
    *,
    changing: bool = True,
    approved: Plan | None = None,
    registered_of: RegisteredOf | None = None,
    throttle_bytes_per_s: int = THROTTLE_BYTES_PER_S,
) -> Iterator[OpenedBrokers]:
    """Open the brokers of a cluster.

    `changing`: operations follow, which the cluster's token signs. `approved`: the plan of a drain, which is
    checked against the cluster first. `registered_of`: returns the registry's cluster of a snapshot. Default:
    by this host's registry.
    """
    settings = Settings()
    token = settings.token() if changing else ""
    registered_of = registered_of or HostRegistry(settings.include_dir, cluster).cluster_of
    with open_administration(cluster) as administration, open_metadata(settings) as store:
        fleet = FleetBrokers(administration, store, token, SystemClock(), registered_of, throttle_bytes_per_s)
        yield fleet.look() if approved is None else fleet.approved_drain(approved)


@repeatable
def brokers(
    broker: Annotated[
        int | None,
        typer.Argument(
            min=0, help="Id of a broker whose history is shown. Default: the state of all brokers."
        ),
    ] = None,
    note: Annotated[
        bool,
        typer.Option("--note", help="Record observed changes, and continue pending actions."),
    ] = False,
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    as_json: JsonOption = False,
) -> None:
    """Show brokers and where each is in its life; or every change of one."""
    with open_brokers(cluster, changing=note) as opened:
        if note:
            for failed, error in opened.note().items():
                warn(f"broker {failed}: {error}")
        if broker is not None:
            entries = opened.operations.entries(broker)
            rows = [
                (each.number, each.at_ms, each.by, each.event, each.before, each.after, each.reason)
                for each in entries
            ]
            print_table(AUDIT_COLUMNS, rows, as_json=as_json, document=entries)
            return
        documents = [
            broker_document(number, record, opened.snapshot) for number, record in opened.known().items()
        ]
    if as_json:
        print_json(documents)
        return
    print_table(COLUMNS, [tuple(document[name] for name in COLUMNS) for document in documents])
    for document in documents:
        if document["problem"]:
            warn(f"broker {document['broker']}: {document['pending']} pending: {document['problem']}")
        if document["observed"]:
            warn(f"broker {document['broker']}: {document['observed']} is not noted yet: --note does")


def broker_document(broker: int, record: BrokerRecord | None, snapshot: FleetSnapshot) -> dict[str, Any]:
    ids = snapshot.brokers.ids.tolist()
    row = ids.index(broker) if broker in ids else None
    last = record.last if record else None
    return {
        "broker": broker,
        "host": record.host if record else host_of(broker, snapshot),
        "rack": None if row is None else snapshot.brokers.racks[row],
        "kafka": (BrokerState.ABSENT if row is None else BrokerState(snapshot.brokers.states[row])).name,
        "state": record.state if record else adopted_state(broker, snapshot),
        "recorded": record is not None,
        "replicas": replicas_of(broker, snapshot),
        "pending": ", ".join(record.pending) if record else "",
        "problem": record.problem if record else None,
        "observed": observed(record, snapshot) if record else None,
        "since_ms": last.at_ms if last else None,
        "by": last.by if last else None,
        "why": last.reason if last else None,
    }


@with_option_groups
def join(
    broker: BrokerArgument,
    reason: ReasonOption,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", help="Name of the machine. Default: the one from which the broker has registered."
        ),
    ] = None,
    *,
    options: OperatorOptions,
) -> None:
    """Record a new machine whose broker is about to join. It serves once it is seen."""
    who = operator(Settings(), options.by)
    with open_brokers(options.cluster) as opened:
        record = opened.known().get(broker)
        if record is None or record.state is BrokerLife.RETIRED:
            opened.operations.register_broker(broker, host or opened.host_of(broker), who, reason)
        _operate(opened, broker, BrokerEvent.JOIN, who, reason, as_json=options.as_json)


@with_option_groups
def cordon(broker: BrokerArgument, reason: ReasonOption, options: OperatorOptions) -> None:
    """Stop the placement of new replicas on a broker. Its replicas stay."""
    _one(broker, BrokerEvent.CORDON, reason, options)


@with_option_groups
def uncordon(broker: BrokerArgument, reason: ReasonOption, options: OperatorOptions) -> None:
    """Allow the placement of new replicas on a broker again."""
    _one(broker, BrokerEvent.UNCORDON, reason, options)


@with_option_groups
def drain(
    broker: BrokerArgument,
    reason: ReasonOption,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel a drain. The broker stays cordoned.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    throttle: ThrottleOption = THROTTLE_BYTES_PER_S,
    registry: RegistryOption = None,
    cluster_name: ClusterNameOption = None,
    *,
    options: OperatorOptions,
) -> None:
    """Show what a drain would move, and with your consent cordon the broker and have all of it moved."""
    if cancel:
        _one(broker, BrokerEvent.CANCEL_DRAIN, reason, options)
        return
    who, cluster = operator(Settings(), options.by), options.cluster
    with open_administration(cluster) as administration:
        snapshot = collect_snapshot(administration, SystemClock(), rate_reader(Settings().fleet_sources))
    registered = find_cluster(snapshot, cluster, cluster_name, registry, Settings())
    plan = make_plan(decisions.drain([broker]), snapshot, registered, throttle_bytes_per_s=throttle)
    if not options.as_json:
        print_plan(plan, moves=_MOVES_SHOWN)
    if not yes and not typer.confirm(f"Drain broker {broker}?"):
        raise typer.Exit(1)
    with open_brokers(
        cluster, approved=plan, registered_of=lambda _: registered, throttle_bytes_per_s=throttle
    ) as opened:
        _operate(opened, broker, BrokerEvent.DRAIN, who, reason, as_json=options.as_json)


@with_option_groups
def repair(
    broker: BrokerArgument,
    reason: ReasonOption,
    done: Annotated[
        bool, typer.Option("--done", help="The machine is repaired. Its broker may be started.")
    ] = False,
    *,
    options: OperatorOptions,
) -> None:
    """Begin the repair of a broker, after which it may be stopped.

    Refused while partitions could not be written without it.
    """
    _one(broker, BrokerEvent.REPAIRED if done else BrokerEvent.REPAIR, reason, options)


@with_option_groups
def retire(broker: BrokerArgument, reason: ReasonOption, options: OperatorOptions) -> None:
    """Retire an empty broker. It is refused while it has a replica."""
    _one(broker, BrokerEvent.RETIRE, reason, options)


def _one(broker: int, event: BrokerEvent, reason: str, options: OperatorOptions) -> None:
    who = operator(Settings(), options.by)
    with open_brokers(options.cluster) as opened:
        _operate(opened, broker, event, who, reason, as_json=options.as_json)


def _operate(
    opened: OpenedBrokers, broker: int, event: BrokerEvent, by: str, reason: str, *, as_json: bool
) -> None:
    """Operate on the broker's present state, after changes that happened by themselves are noted."""
    for failed, error in opened.note().items():
        warn(f"broker {failed}: {error}")
    record = opened.operate(broker, event, by, reason)
    report(record, f"broker {record.broker}: {record.state}", as_json=as_json)
