"""The brokers that may hold replicas of each topic.

Planners are told so from outside, as a table: rules are few, so brokers are kept by rule and rules by topic.
A replica that is moved comes only to a broker where its topic may stand. One that stands wrong already may
stay, change its disk there, or go to where it may stand: never to another wrong place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtolap.fleet.snapshot.model import Flags, Int32s, Snapshot


@dataclass(frozen=True, eq=False)
class AllowedBrokers:
    """rules: of each topic, a row of `by_rule`, whose columns are the snapshot's brokers."""

    rules: Int32s
    by_rule: Flags

    def rules_of_partitions(self, snapshot: Snapshot) -> Int32s:
        return self.rules[snapshot.partitions.topics]

    def broker_classes(self) -> Int32s:
        """Return a number per broker, the same where the same rules allow them."""
        _, classes = np.unique(self.by_rule, axis=1, return_inverse=True)
        return classes.ravel().astype(np.int32)


def everywhere(snapshot: Snapshot) -> AllowedBrokers:
    """Return the table of a fleet without placement rules."""
    return AllowedBrokers(
        np.zeros(len(snapshot.topics), np.int32), np.ones((1, len(snapshot.brokers)), np.bool_)
    )
