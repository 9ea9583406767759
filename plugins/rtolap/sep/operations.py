"""Use cases of subscriptions that commands and tasks of Airflow share.

The steps of each one, crash by crash, stand in `subscriptions.commands`. In here they get the cluster that
HBase's connection or the settings name, and Kafka, where a dropped subscription leaves its journal.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from rtolap.base.clock import Clock
from rtolap.base.settings import Settings
from rtolap.model.subscription import HBaseSource, Subscription
from rtolap.sep.listeners.assembly import journal_deleter
from rtolap.sep.subscriptions import commands, states
from rtolap.sep.subscriptions.source import SourceCluster, open_source
from rtolap.sep.subscriptions.states import SubscriptionState

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
