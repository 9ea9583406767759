"""Observations of brokers in a snapshot: what happened by itself, what stands against an operation. Pure.

A broker that is to be stopped must not take the last replicas in sync with it: every partition keeps
`min.insync.replicas` of them elsewhere, or writing to it would end. A machine is given back only when it
holds nothing. A broker is drained only while others can take what it holds.
"""

from __future__ import annotations

import numpy as np

from rtolap.fleet.isolation.findings import some
from rtolap.fleet.lifecycle.states import BrokerEvent, BrokerLife, BrokerRecord, legal
from rtolap.fleet.snapshot.model import UNKNOWN, BrokerState, FleetSnapshot

LOST_AFTER_MS = 600_000  # a broker that only restarts is back before


def observed(
    record: BrokerRecord, snapshot: FleetSnapshot, lost_after_ms: int = LOST_AFTER_MS
) -> BrokerEvent | None:
    """Return what the snapshot shows and the record does not know yet, if anything. A snapshot that is older
    than the last change shows nothing."""
    if snapshot.taken_at_ms < record.last.at_ms:
        return None
    state, broker = record.state, record.broker
    empty = replicas_of(broker, snapshot) == 0
    if serves(broker, snapshot):
        events = [BrokerEvent.JOINED, BrokerEvent.RETURNED]
    else:
        events = [BrokerEvent.GONE] if empty else []
        away_since_ms = record.away_since_ms
        if away_since_ms is not None and snapshot.taken_at_ms - away_since_ms >= lost_after_ms:
            events.append(BrokerEvent.LOST)
    events.append(BrokerEvent.EMPTIED if empty else BrokerEvent.OCCUPIED)
    return next((event for event in events if legal(state, event)), None)


def away_since(record: BrokerRecord, snapshot: FleetSnapshot) -> int | None:
    """Return since when the broker is away that should serve, by this snapshot and those before."""
    if snapshot.taken_at_ms < record.last.at_ms:
        return record.away_since_ms
    if serves(record.broker, snapshot) or not legal(record.state, BrokerEvent.LOST):
        return None
    return snapshot.taken_at_ms if record.away_since_ms is None else record.away_since_ms


def serves(broker: int, snapshot: FleetSnapshot) -> bool:
    return broker_state(broker, snapshot) is BrokerState.ALIVE


def broker_state(broker: int, snapshot: FleetSnapshot) -> BrokerState:
    row = _row(broker, snapshot)
    return BrokerState.ABSENT if row is None else BrokerState(int(snapshot.brokers.states[row]))


def replicas_of(broker: int, snapshot: FleetSnapshot) -> int:
    """Return how many replicas stand there, or are going to."""
    row = _row(broker, snapshot)
    return 0 if row is None else int((snapshot.replicas.brokers == row).sum())


def cordoned(broker: int, snapshot: FleetSnapshot) -> bool | None:
    """Return whether it takes no new replicas; None where it does not say."""
    row = _row(broker, snapshot)
    dirs = snapshot.log_dirs.cordoned[snapshot.log_dirs.brokers == row] if row is not None else ()
    return bool(np.all(dirs)) if len(dirs) else None


def partly_cordoned(broker: int, snapshot: FleetSnapshot) -> bool:
    row = _row(broker, snapshot)
    return row is not None and bool(snapshot.log_dirs.cordoned[snapshot.log_dirs.brokers == row].any())


def adopted_state(broker: int, snapshot: FleetSnapshot) -> BrokerLife:
    """Return the state of a broker without a record, as the cluster shows it."""
    if broker_state(broker, snapshot) is not BrokerState.ALIVE:
        return BrokerLife.FAILED
    return BrokerLife.CORDONED if cordoned(broker, snapshot) else BrokerLife.SERVING


def host_of(broker: int, snapshot: FleetSnapshot) -> str:
    row = _row(broker, snapshot)
    return "" if row is None else snapshot.brokers.hosts[row]


def _row(broker: int, snapshot: FleetSnapshot) -> int | None:
    ids = snapshot.brokers.ids
    row = int(np.searchsorted(ids, broker))
    return row if row < len(ids) and ids[row] == broker else None


def unmet(event: BrokerEvent, state: BrokerLife, broker: int, snapshot: FleetSnapshot) -> str | None:
    """Return why the operation may not be done now; None if it may."""
    match event:
        case BrokerEvent.REPAIR if state is not BrokerLife.FAILED:
            stopped = stopped_by(broker, snapshot)
            return f"writing would end for {some(stopped)}" if stopped else None
        case BrokerEvent.RETIRE:
            replicas = replicas_of(broker, snapshot)
            return f"it holds {replicas} replicas: drain it first" if replicas else None
        case BrokerEvent.DRAIN:
            others = any(
                serves(other, snapshot) for other in snapshot.brokers.ids.tolist() if other != broker
            )
            return None if others else "there is no other broker to take its replicas"
    return None


def stopped_by(broker: int, snapshot: FleetSnapshot) -> list[str]:
    """Return the partitions, as topic:number, that can be written now, and not without this broker.

    A topic whose `min.insync.replicas` is unknown needs at least one replica in sync.
    """
    partitions, replicas = snapshot.partitions, snapshot.replicas
    own = snapshot.brokers.ids[replicas.brokers] == broker
    in_sync = np.bincount(replicas.partitions[replicas.in_sync], minlength=len(partitions))
    left = in_sync - np.bincount(replicas.partitions[replicas.in_sync & own], minlength=len(partitions))
    declared = snapshot.topics.min_in_sync[partitions.topics]
    least = np.where(declared == UNKNOWN, 1, declared)
    rows = np.flatnonzero((in_sync >= least) & (left < least))
    return [f"{snapshot.topics.names[partitions.topics[row]]}:{int(partitions.numbers[row])}" for row in rows]
