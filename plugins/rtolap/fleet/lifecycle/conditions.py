"""Conditions that have to hold before an operation, by a snapshot. Pure.

A broker that is to be stopped must not take the last replicas in sync with it: every partition keeps
`min.insync.replicas` of them elsewhere, or writing to it would end. A machine is given back only when it
holds nothing. A broker is drained only while others can take what it holds.
"""

from __future__ import annotations

import numpy as np

from rtolap.fleet.isolation.findings import some
from rtolap.fleet.lifecycle.observations import replicas_of, serves
from rtolap.fleet.lifecycle.states import BrokerEvent, BrokerLife
from rtolap.fleet.snapshot.model import UNKNOWN, Snapshot


def unmet(event: BrokerEvent, state: BrokerLife, broker: int, snapshot: Snapshot) -> str | None:
    """Return why the operation may not be done now; None if it may."""
    match event:
        case BrokerEvent.REPAIR if state is not BrokerLife.FAILED:
            stopped = stopped_by(broker, snapshot)
            return f"writing would end for {some(stopped)}" if stopped else None
        case BrokerEvent.RETIRE:
            held = replicas_of(broker, snapshot)
            return f"it holds {held} replicas: drain it first" if held else None
        case BrokerEvent.DRAIN:
            others = any(
                serves(other, snapshot) for other in snapshot.brokers.ids.tolist() if other != broker
            )
            return None if others else "there is no other broker to take its replicas"
    return None


def stopped_by(broker: int, snapshot: Snapshot) -> list[str]:
    """Return the partitions, as topic:number, that can be written now, and not without this broker.

    A topic of which `min.insync.replicas` is not known needs one replica in sync, at least.
    """
    partitions, replicas = snapshot.partitions, snapshot.replicas
    own = snapshot.brokers.ids[replicas.brokers] == broker
    in_sync = np.bincount(replicas.partitions[replicas.in_sync], minlength=len(partitions))
    left = in_sync - np.bincount(replicas.partitions[replicas.in_sync & own], minlength=len(partitions))
    declared = snapshot.topics.min_in_sync[partitions.topics]
    least = np.where(declared == UNKNOWN, 1, declared)
    rows = np.flatnonzero((in_sync >= least) & (left < least))
    return [f"{snapshot.topics.names[partitions.topics[row]]}:{int(partitions.numbers[row])}" for row in rows]
