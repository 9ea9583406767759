"""Change capture: queues of region servers, subscriptions with their consumers, and events that fail.

Pure: looks at the clusters, the definitions of this host, and the processes of the agent → one answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rtolap.airflow.declared import consumer_key
from rtolap.airflow.page.answers import Asked
from rtolap.airflow.page.capture.messages import (
    Capture,
    CaptureCluster,
    CapturePeer,
    CaptureSubscription,
    PoisonEvent,
    Queue,
)
from rtolap.airflow.page.tasks import task_link
from rtolap.airflow.shared_processes import processes_of_subscription
from rtolap.base.decoding import copied
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
        yield copied(
            CapturePeer,
            each,
            cluster=address,
            lag_ms=None if each.lag_ms is None else each.lag_ms.worst,
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
    return copied(
        Queue,
        each,
        cluster=address,
        log=each.log or "",
        left_bytes=each.remaining_bytes,
        is_lower_bound=each.is_remaining_lower_bound,
        reason=each.reason or "",
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
        problem=_MADE_BY if is_known else "its cluster does not answer",
        follows=subscription.followed,
        listener=listener_text(subscription.listener),
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
                reason=cut(failing.reason),
            )
        for row in delivery.apart:
            yield PoisonEvent(
                subscription=state.name,
                apart=True,
                row=cut(f"{row.table}: {row.row}"),
                since_ms=row.since_ms,
                reason=cut(row.reason),
            )
