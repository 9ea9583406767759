"""Use cases of subscriptions that commands and tasks of Airflow share.

The steps of each one, crash by crash, stand in `subscriptions.commands`. In here they get the cluster that
HBase's connection or the settings name, and Kafka, where a dropped subscription leaves its journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError
from rtolap.base.settings import Settings
from rtolap.model.subscription import HBaseSource, Subscription
from rtolap.sep.delivery.state import DeliveryState
from rtolap.sep.listeners.assembly import journal_deleter
from rtolap.sep.status.collect import collect
from rtolap.sep.status.model import JMX, LOG_SIZES, PEERS, MissingSource, ReplicationStatus
from rtolap.sep.status.sources import ReplicationSources
from rtolap.sep.status.summary import PeerSummary, summarize
from rtolap.sep.subscriptions import commands, states
from rtolap.sep.subscriptions.source import SourceCluster, open_source
from rtolap.sep.subscriptions.states import ShareState, SubscriptionState

Warn = Callable[[str], None]


@dataclass(frozen=True)
class CreatedSubscription:
    """A subscription after `create_subscription`.

    Attributes:
        state: as the cluster shows it now.
        warnings: changes that HBase does not ship of it, one sentence each; empty: it ships all.
    """

    state: SubscriptionState
    warnings: list[str]


def open_source_to_change(
    source: HBaseSource, settings: Settings, warn: Warn
) -> AbstractContextManager[SourceCluster]:
    """Open the cluster for commands that may drop a subscription. A journal that cannot be deleted from Kafka
    stays, and `warn` gets the reason."""
    return open_source(source, delete_journal=journal_deleter(settings, warn))


def create_subscription(
    declared: Subscription, hbase: str, settings: Settings, clock: Clock, warn: Warn
) -> CreatedSubscription:
    """Create a subscription on the cluster that its definition names, else on `hbase`.

    A repetition changes nothing, and finishes what an earlier call began.
    """
    subscription = declared.at(hbase)
    with open_source_to_change(subscription.source, settings, warn) as source:
        commands.create(source, subscription, clock.now_ms())
        return CreatedSubscription(
            states.state(source, subscription.name), commands.scope_warnings(source, subscription)
        )


def drop_subscription(name: str, source: HBaseSource, settings: Settings, warn: Warn) -> None:
    """Drop a subscription, also a half made one, with its peer and its journal. Raises NotFound."""
    with open_source_to_change(source, settings, warn) as cluster:
        commands.drop(cluster, name)


STANDS_BY = "stands by"
SUBSCRIPTIONS = "subscriptions"
NOBODY = "nobody holds it"


@dataclass(frozen=True)
class ConsumerState:
    """A consumer of a subscription, by what it has published last.

    Attributes:
        id: the id of its process; "" where a subscription has one consumer, and for shares that nobody holds.
        address: its ports, where a subscription has one consumer; else "".
        shares: numbers of the shares that it holds; empty where there is one consumer.
        waiting_events: events that wait in it; None where it has published nothing.
        last_error: why it does not get on; "" where it does.
    """

    id: str
    state: str
    address: str = ""
    shares: tuple[int, ...] = ()
    waiting_events: int | None = None
    events_per_s: float = 0.0
    last_error: str = ""


@dataclass(frozen=True)
class SubscriptionConsumers:
    """The consumers of a subscription, and the shares of nobody as an entry of their own.

    Attributes:
        count: how many consumers it declares.
    """

    name: str
    state: str
    problem: str
    count: int
    consumers: tuple[ConsumerState, ...]


def subscription_consumers(name: str, source: HBaseSource) -> SubscriptionConsumers:
    """Return the consumers of a subscription. Raises NotFound; Unavailable where ZooKeeper or HBase's master
    does not answer."""
    with open_source(source) as cluster:
        return consumers_in(states.state(cluster, name))


def consumers_in(state: SubscriptionState) -> SubscriptionConsumers:
    """Return the consumers that a state shows. Pure."""
    count = 1 if state.record is None else state.record.subscription.consumers
    if count == 1:
        shown = [_consumer("", [state.delivery] if state.delivery is not None else [], ())]
        one = replace(shown[0], state=state.state, address=", ".join(state.ports))
        rows = [replace(one, last_error=_words(state.problem, one.last_error))]
    else:
        rows = [
            _of_shares(each, [share for share in state.shares if share.consumer == each])
            for each in state.consumers
        ]
        free = [share for share in state.shares if share.consumer not in state.consumers]
        if free:
            rows.append(replace(_of_shares("", free), state=NOBODY))
    return SubscriptionConsumers(state.name, state.state, state.problem, count, tuple(rows))


def _of_shares(consumer: str, shares: Sequence[ShareState]) -> ConsumerState:
    published = [share.delivery for share in shares if share.delivery is not None]
    return _consumer(consumer, published, tuple(share.share for share in shares))


def _consumer(consumer: str, published: Sequence[DeliveryState], shares: tuple[int, ...]) -> ConsumerState:
    stopped = [each.stopped for each in published if each.stopped]
    return ConsumerState(
        consumer,
        "stopped" if stopped else "delivers" if shares else STANDS_BY,
        shares=shares,
        waiting_events=sum(each.waiting_events for each in published) if published else None,
        events_per_s=sum(each.events_per_s for each in published),
        last_error=_words(*stopped, *(each.last_error for each in published)),
    )


def _words(*words: str) -> str:
    return "; ".join(dict.fromkeys(filter(None, words)))


@dataclass(frozen=True)
class CaptureLook:
    """A look at the change capture of a cluster.

    Attributes:
        status: the queues of all peers, ours or not.
        peers: a row a peer, the furthest behind first.
        subscriptions: ours; empty where they could not be read, which `missing` says then.
        consumers: of each of them, by its name.
        missing: sources that were asked and have not answered.
    """

    status: ReplicationStatus
    peers: tuple[PeerSummary, ...]
    subscriptions: tuple[SubscriptionState, ...]
    consumers: dict[str, SubscriptionConsumers]
    missing: tuple[MissingSource, ...] = ()

    @property
    def knows_subscriptions(self) -> bool:
        return all(each.source != SUBSCRIPTIONS for each in self.missing)


def look_at_capture(
    sources: ReplicationSources, now_ms: int, before: ReplicationStatus | None = None
) -> CaptureLook:
    """Look at the queues and the subscriptions of a cluster. `before`: a look earlier, for trends.

    Raises Unavailable where its ZooKeeper does not answer: everything else is found through it.
    """
    status = collect(sources, now_ms, before=before)
    not_asked = {
        name for name, source in ((LOG_SIZES, sources.wal_sizes), (JMX, sources.jmx)) if source is None
    }
    missing = [each for each in status.missing if each.source not in not_asked]
    subscriptions: tuple[SubscriptionState, ...] = ()
    silent = next((each.reason for each in missing if each.source == PEERS), None)
    if silent is None:
        declared = HBaseSource(sources.cluster.zookeeper, sources.cluster.parent)
        try:
            subscriptions = states.all_states(SourceCluster(declared, sources.znodes.store, sources.master))
        except RtolapError as error:
            silent = str(error)
    if silent is not None:  # a master that is silent is not asked a second time
        missing.append(MissingSource(SUBSCRIPTIONS, silent))
    consumers = {state.name: consumers_in(state) for state in subscriptions}
    return CaptureLook(status, tuple(summarize(status, before)), subscriptions, consumers, tuple(missing))
