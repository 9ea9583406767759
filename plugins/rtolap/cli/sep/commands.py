"""`rtolap sep` manages subscriptions to changes of HBase's tables.

Exit codes: 0 done; 1 an error, reported on stderr; `list` and `describe` end with 3 when a subscription is
half made, half removed or broken.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from rtolap.base.clock import SystemClock
from rtolap.base.complete import complete
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.cli.kafka_access import kafka_cluster
from rtolap.cli.output import JsonOption, console, print_json, print_table, report, success, warn
from rtolap.cli.sep.cluster import ClusterOption, source_of
from rtolap.cli.sep.serve import serve
from rtolap.cli.sep.status import plot, status, wait
from rtolap.cli.sep.verify import verify
from rtolap.cli.watching import repeatable
from rtolap.kafka.dead_letters import read_dead_letters
from rtolap.model.quantities import instant_text
from rtolap.model.subscription import dead_letter_topic
from rtolap.model.yaml_files import read_definitions
from rtolap.sep.delivery.requests import Request
from rtolap.sep.operations import create_subscription, drop_subscription, open_source_to_change
from rtolap.sep.shares.requests import post_to_shares
from rtolap.sep.subscriptions import commands, states
from rtolap.sep.subscriptions.records import load
from rtolap.sep.subscriptions.source import open_source
from rtolap.sep.subscriptions.states import ShareState, SubscriptionState

EXIT_BROKEN = 3
_SOUND = frozenset(("running", "waiting", "paused"))
_SHARE_COLUMNS = (
    "share",
    "consumer",
    "delivered",
    "events/s",
    "duplicates",
    "late",
    "waiting events",
    "oldest waiting ms",
    "rows apart",
    "trouble",
)
_LETTER_COLUMNS = ("table", "sequence_id", "detail", "value")

NameArgument = Annotated[str, typer.Argument(help="Name of the subscription.")]

app = typer.Typer(no_args_is_help=True, help="HBase change capture: subscriptions and their progress.")
app.command()(serve)


@app.command("dead-letters")
def dead_letters(
    name: NameArgument,
    cluster: ClusterOption = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number, the oldest first.")] = 50,
    replay: Annotated[
        bool, typer.Option("--replay", help="Deliver the records of blocked rows now.")
    ] = False,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="With --replay: also deliver skipped records, as late ones.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the events that its poison policy has skipped, and those of rows that are set apart."""
    with open_source(source_of(cluster)) as source:
        record = load(source.store, name)
        subscription = record.subscription
        if replay:
            post_to_shares(source.store, record, Request("replay_skipped" if skipped else "replay"))
            success(f"what delivers it replays; `rtolap sep describe {name}` shows how far it is")
            return
    letters = read_dead_letters(
        kafka_cluster(Settings(), subscription.listener.cluster), dead_letter_topic(name)
    )
    rows = [(letter.topic, letter.offset, letter.detail, letter.value) for letter in islice(letters, limit)]
    print_table(_LETTER_COLUMNS, rows, as_json=as_json)


for _command in (verify, status, wait, plot):
    app.command()(_command)


@app.command()
def create(
    path: Annotated[Path, typer.Argument(help="Definition file, or a folder of them.")],
    as_json: JsonOption = False,
) -> None:
    """Create subscriptions on the clusters that they name.

    Repeating it changes nothing, and completes an interrupted command.
    """
    subscriptions = read_definitions(path).subscriptions
    if not subscriptions:
        raise DefinitionError(f"no subscriptions in {path}", expected="documents of kind: subscription")
    created, settings = [], Settings()
    for declared in subscriptions.values():
        made = create_subscription(declared, settings.hbase, settings, SystemClock(), warn)
        for warning in made.warnings:
            warn(f"{declared.name}: {warning}")
        created.append(made.state)
    messages = (f"subscription {state.name}, {state.state}" for state in created)
    report([_document(state) for state in created], *messages, as_json=as_json)


@app.command("list")
@repeatable
def list_(cluster: ClusterOption = "", as_json: JsonOption = False) -> None:
    """List the subscriptions of a cluster."""
    with open_source(source_of(cluster)) as source:
        found = states.all_states(source)
    print_table(
        ("subscription", "state", "follows", "listener", "ports", "consumers"),
        [(state.name, state.state, *_summary(state), len(state.ports), _active(state)) for state in found],
        as_json=as_json,
        document=[_document(state) for state in found],
    )
    _end(found, quiet=as_json)


@app.command()
@repeatable
def describe(name: NameArgument, cluster: ClusterOption = "", as_json: JsonOption = False) -> None:
    """Show a subscription: its definition, its state, and the tables that HBase does not ship."""
    with open_source(source_of(cluster)) as source:
        state = states.state(source, name)
        record = state.record
        warnings = commands.scope_warnings(source, record.subscription) if record else []
    if as_json:
        print_json({**_document(state), "warnings": warnings})
    else:
        console.print(f"[bold]subscription {state.name}[/bold]  {state.state}")
        rows = [("ports", ", ".join(state.ports) or "none")]
        if record is not None:
            rows += [("cluster id", record.cluster_id), ("start", instant_text(record.start_ms))]
            values = complete(record.subscription)
            rows += [(key, msgspec.json.encode(value).decode()) for key, value in values.items()]
        if state.delivery is not None:
            values = msgspec.to_builtins(state.delivery)
            rows += [(key, msgspec.json.encode(value).decode()) for key, value in values.items()]
        if state.shares:
            rows.append(("live consumers", ", ".join(state.consumers) or "none"))
        print_table(("key", "value"), rows)
        if state.shares:
            print_table(_SHARE_COLUMNS, [_share_row(share) for share in state.shares])
        for warning in warnings:
            warn(warning)
    _end((state,), quiet=as_json)


@app.command()
def pause(name: NameArgument, cluster: ClusterOption = "", as_json: JsonOption = False) -> None:
    """Have HBase store edits without delivering them, until `resume`."""
    with open_source_to_change(source_of(cluster), Settings(), warn) as source:
        commands.pause(source, name)
        _report(states.state(source, name), as_json)


@app.command()
def resume(name: NameArgument, cluster: ClusterOption = "", as_json: JsonOption = False) -> None:
    """Have HBase deliver again, from where it stopped."""
    with open_source_to_change(source_of(cluster), Settings(), warn) as source:
        commands.resume(source, name)
        _report(states.state(source, name), as_json)


@app.command()
def drop(
    name: NameArgument,
    cluster: ClusterOption = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a subscription with its peer and its journal, also an incomplete one.

    Edits that are not delivered yet are lost.
    """
    if not yes and not typer.confirm(f"Drop subscription {name}? What is not delivered yet is lost to it"):
        raise typer.Exit(1)
    drop_subscription(name, source_of(cluster), Settings(), warn)
    report({"dropped": name}, f"subscription {name} dropped", as_json=as_json)


def _report(state: SubscriptionState, as_json: bool) -> None:
    report(_document(state), f"subscription {state.name}, {state.state}", as_json=as_json)


def _document(state: SubscriptionState) -> dict[str, object]:
    record = state.record
    return {
        "name": state.name,
        "state": state.state,
        "problem": state.problem,
        "ports": state.ports,
        "cluster_id": None if record is None else record.cluster_id,
        "start_ms": None if record is None else record.start_ms,
        "delivery": None if state.delivery is None else msgspec.to_builtins(state.delivery),
        "shares": msgspec.to_builtins(state.shares),
        "consumers": state.consumers,
        "definition": None if record is None else complete(record.subscription),
    }


def _summary(state: SubscriptionState) -> tuple[str, str]:
    if state.record is None:
        return "", ""
    subscription = state.record.subscription
    return subscription.followed, subscription.listener.kind


def _active(state: SubscriptionState) -> str:
    """Return how many consumers are active, of how many that may be."""
    if state.record is None:
        return ""
    active = len({share.consumer for share in state.shares if share.consumer})
    if not state.shares:
        active = 1 if state.ports else 0
    return f"{active} of {state.record.subscription.consumers}"


def _share_row(share: ShareState) -> tuple[object, ...]:
    delivery = share.delivery
    if delivery is None:
        return (share.share, share.consumer or "none", *[""] * (len(_SHARE_COLUMNS) - 2))
    return (
        share.share,
        share.consumer or "none",
        delivery.delivered,
        delivery.events_per_s,
        delivery.duplicates,
        delivery.late,
        delivery.waiting_events,
        delivery.oldest_waiting_ms,
        delivery.rows_apart,
        delivery.stopped or delivery.last_error,
    )


def _end(found: tuple[SubscriptionState, ...], *, quiet: bool) -> None:
    """Exit with 3, and say why, where one is not sound."""
    unsound = [state for state in found if state.state not in _SOUND]
    if not quiet:
        for state in unsound:
            warn(f"{state.name} is {state.state}: {state.problem}")
    if unsound:
        raise typer.Exit(EXIT_BROKEN)
