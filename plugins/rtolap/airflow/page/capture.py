"""Change capture: queues of region servers, subscriptions with their consumers, and events that fail.

Pure: looks at the clusters, the definitions of this host, and the processes of the agent → one answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from rtolap.airflow.declared import consumer_key
from rtolap.airflow.page.asking import Asked
from rtolap.airflow.page.tasks import TaskLink, task_link
from rtolap.airflow.shared_processes import SharedProcess, processes_of_subscription
from rtolap.model.subscription import Subscription, SubscriptionListener
from rtolap.protocols.agent.messages import ProcessStatus

if TYPE_CHECKING:
    from rtolap.sep.delivery.state import DeliveryState
    from rtolap.sep.operations import CaptureLook
    from rtolap.sep.status.model import QueueStatus
    from rtolap.sep.subscriptions.states import SubscriptionState

QUEUES_MAX = 2000  # the furthest behind; `rtolap sep status` lists all
TEXT_MAX = 300  # characters of a row's key or of a reason, which come from records
NOT_MADE = "not made"
_MADE_BY = "a run of rtolap_subscription_definitions makes it"


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """The queue of a region server for a peer. None: not known.

    Attributes:
        recovered_from: the failed servers that had it, the last one first.
        log: the write-ahead log that is shipped now, up to `position_bytes`.
        lag_ms: age of the oldest edit that is not shipped.
        reason: what shipping waits for; empty while it goes on.
    """

    cluster: str
    peer: str
    server: str
    recovered_from: tuple[str, ...]
    logs: int | None
    log: str
    position_bytes: int | None
    lag_ms: int | None
    last_shipped_ms: int | None
    reported_ms: int | None
    reason: str
    since_ms: int | None


class CapturePeer(msgspec.Struct, frozen=True, kw_only=True):
    """A peer of HBase, of a subscription or of somebody else.

    Attributes:
        lag_trend: milliseconds a second between two looks; below 0 the lag shrinks. None: not known.
        catch_up_ms: 0 where all is shipped; None where that is not known, or where the lag grows.
        waits: what queues wait for, with the number of queues.
    """

    cluster: str
    peer: str
    enabled: bool | None
    sinks: int | None
    queues: int
    recovered_queues: int
    lag_ms: int | None
    lag_trend: float | None
    catch_up_ms: int | None
    waits: dict[str, int]


class PoisonEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that keeps failing, or a row whose events wait among the dead letters since one did.

    Attributes:
        apart: it is a row that was set apart.
        tries: of the event alone; 0 for a row.
        since_ms: of a row; None for an event.
    """

    subscription: str
    apart: bool
    row: str
    tries: int
    since_ms: int | None
    reason: str


class CaptureSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription. Counts are since its consumers deliver; None while none has published any.

    Attributes:
        state: of the subscription; `not made` for a definition that no cluster has.
        task: of its process at the agent; None where no task runs one.
    """

    cluster: str
    name: str
    state: str
    problem: str
    follows: str
    listener: str
    start_ms: int | None
    consumers: tuple[SharedProcess, ...]
    delivered: int | None
    dead_letters: int | None
    failing_events: int | None
    rows_apart: int | None
    task: TaskLink | None


class CaptureCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster of HBase.

    Attributes:
        error: why nothing of it is known; empty where something is.
        missing: what could not be read of it, with the reason.
    """

    address: str
    servers: int = 0
    error: str = ""
    missing: tuple[str, ...] = ()
    queues_cut: int = 0


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """Change capture on one page.

    Attributes:
        agent_error: why processes are missing; empty if they are not.
        definitions_error: why this host's definitions are missing; empty if they are not.
    """

    now_ms: int
    clusters: tuple[CaptureCluster, ...]
    peers: tuple[CapturePeer, ...]
    queues: tuple[Queue, ...]
    subscriptions: tuple[CaptureSubscription, ...]
    poison: tuple[PoisonEvent, ...]
    agent_error: str = ""
    definitions_error: str = ""


def capture_of(
    looks: Mapping[str, Asked[CaptureLook]],
    defined: Mapping[str, tuple[str, Subscription]],
    processes: Iterable[ProcessStatus],
    *,
    now_ms: int,
    agent_error: str = "",
    definitions_error: str = "",
) -> Capture:
    """Return the answer. looks: by the address of the cluster. defined: by name, with the address."""
    running = {process.key: process for process in processes}
    found = {address: asked.answer for address, asked in looks.items() if asked.answer is not None}
    subscriptions = [
        _subscription(address, look, state, running)
        for address, look in found.items()
        for state in look.subscriptions
    ]
    made = {each.name for each in subscriptions}
    known = {address for address, look in found.items() if look.knows_subscriptions}
    subscriptions += [
        _not_made(address, subscription, running, is_known=address in known)
        for name, (address, subscription) in defined.items()
        if name not in made
    ]
    return Capture(
        now_ms=now_ms,
        clusters=tuple(_cluster(address, asked) for address, asked in sorted(looks.items())),
        peers=tuple(peer for address, look in sorted(found.items()) for peer in _peers(address, look)),
        queues=tuple(queue for address, look in sorted(found.items()) for queue in _queues(address, look)),
        subscriptions=tuple(sorted(subscriptions, key=lambda each: (each.name, each.cluster))),
        poison=tuple(
            event
            for look in found.values()
            for state in sorted(look.subscriptions, key=lambda each: each.name)
            for event in _poison(state)
        ),
        agent_error=agent_error,
        definitions_error=definitions_error,
    )


def cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]} …"


def _cluster(address: str, asked: Asked[CaptureLook]) -> CaptureCluster:
    look = asked.answer
    if look is None:
        return CaptureCluster(address=address, error=asked.error)
    return CaptureCluster(
        address=address,
        servers=look.status.servers,
        missing=tuple(f"{each.source}: {each.reason}" for each in look.missing),
        queues_cut=max(0, len(look.status.queues) - QUEUES_MAX),
    )


def _peers(address: str, look: CaptureLook) -> Iterator[CapturePeer]:
    for each in look.peers:
        yield CapturePeer(
            cluster=address,
            peer=each.peer,
            enabled=each.enabled,
            sinks=each.sinks,
            queues=each.queues,
            recovered_queues=each.recovered_queues,
            lag_ms=None if each.lag_ms is None else each.lag_ms.worst,
            lag_trend=each.lag_trend,
            catch_up_ms=each.catch_up_ms,
            waits=each.reasons,
        )


def _queues(address: str, look: CaptureLook) -> list[Queue]:
    """Return the queues, the furthest behind first; those that nobody has reported before them all."""
    ordered = sorted(
        look.status.queues,
        key=lambda each: (each.lag_ms is not None, -(each.lag_ms or 0), each.peer, each.server, each.queue),
    )
    return [_queue(address, each) for each in ordered[:QUEUES_MAX]]


def _queue(address: str, each: QueueStatus) -> Queue:
    return Queue(
        cluster=address,
        peer=each.peer,
        server=each.server,
        recovered_from=each.recovered_from,
        logs=each.logs,
        log=each.log or "",
        position_bytes=each.position_bytes,
        lag_ms=each.lag_ms,
        last_shipped_ms=each.last_shipped_ms,
        reported_ms=each.reported_ms,
        reason=each.reason or "",
        since_ms=each.since_ms,
    )


def _subscription(
    address: str, look: CaptureLook, state: SubscriptionState, running: Mapping[str, ProcessStatus]
) -> CaptureSubscription:
    deliveries = _deliveries(state)
    record = state.record
    return CaptureSubscription(
        cluster=address,
        name=state.name,
        state=state.state,
        problem=cut(state.problem),
        follows="" if record is None else record.subscription.followed,
        listener="" if record is None else listener_text(record.subscription.listener),
        start_ms=None if record is None else record.start_ms,
        consumers=processes_of_subscription(look.consumers[state.name]).processes,
        delivered=_sum(each.delivered for each in deliveries),
        dead_letters=_sum(each.dead_letters for each in deliveries),
        failing_events=_sum(each.failing_events for each in deliveries),
        rows_apart=_sum(each.rows_apart for each in deliveries),
        task=task_link(running.get(consumer_key(state.name))),
    )


def _not_made(
    address: str, subscription: Subscription, running: Mapping[str, ProcessStatus], *, is_known: bool
) -> CaptureSubscription:
    return CaptureSubscription(
        cluster=address,
        name=subscription.name,
        state=NOT_MADE if is_known else "unknown",
        problem="a run of rtolap_subscription_definitions makes it"
        if is_known
        else "its cluster does not answer",
        follows=subscription.followed,
        listener=listener_text(subscription.listener),
        start_ms=None,
        consumers=(),
        delivered=None,
        dead_letters=None,
        failing_events=None,
        rows_apart=None,
        task=task_link(running.get(consumer_key(subscription.name))),
    )


def listener_text(listener: SubscriptionListener) -> str:
    if listener.kind == "kafka":
        return f"topic {listener.topic} of {listener.cluster}"
    if listener.kind == "stored_table":
        return f"stored table {listener.database}.{listener.table}"
    return f"entry point {listener.entry_point}"


def _deliveries(state: SubscriptionState) -> list[DeliveryState]:
    published = [state.delivery, *(share.delivery for share in state.shares)]
    return [each for each in published if each is not None]


def _sum(counts: Iterable[int]) -> int | None:
    known = list(counts)
    return sum(known) if known else None


def _poison(state: SubscriptionState) -> Iterator[PoisonEvent]:
    for delivery in _deliveries(state):
        for failing in delivery.failing:
            yield PoisonEvent(
                subscription=state.name,
                apart=False,
                row=cut(failing.row),
                tries=failing.tries,
                since_ms=None,
                reason=cut(failing.reason),
            )
        for row in delivery.apart:
            yield PoisonEvent(
                subscription=state.name,
                apart=True,
                row=cut(f"{row.table}: {row.row}"),
                tries=0,
                since_ms=row.since_ms,
                reason=cut(row.reason),
            )
