"""Finds in a snapshot what happened to a broker by itself. Pure."""

from __future__ import annotations

import numpy as np

from rtolap.fleet.lifecycle.records import BrokerRecord
from rtolap.fleet.lifecycle.states import BrokerEvent, BrokerLife, legal
from rtolap.fleet.snapshot.model import BrokerState, Snapshot

LOST_AFTER_MS = 600_000  # a broker that only restarts is back before


def observed(
    record: BrokerRecord, snapshot: Snapshot, lost_after_ms: int = LOST_AFTER_MS
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


def away_since(record: BrokerRecord, snapshot: Snapshot) -> int | None:
    """Return since when the broker is away that should serve, by this snapshot and those before."""
    if snapshot.taken_at_ms < record.last.at_ms:
        return record.away_since_ms
    if serves(record.broker, snapshot) or not legal(record.state, BrokerEvent.LOST):
        return None
    return snapshot.taken_at_ms if record.away_since_ms is None else record.away_since_ms


def serves(broker: int, snapshot: Snapshot) -> bool:
    return broker_state(broker, snapshot) is BrokerState.ALIVE


def broker_state(broker: int, snapshot: Snapshot) -> BrokerState:
    row = _row(broker, snapshot)
    return BrokerState.ABSENT if row is None else BrokerState(int(snapshot.brokers.states[row]))


def replicas_of(broker: int, snapshot: Snapshot) -> int:
    """Return how many replicas stand there, or are going to."""
    row = _row(broker, snapshot)
    return 0 if row is None else int((snapshot.replicas.brokers == row).sum())


def cordoned(broker: int, snapshot: Snapshot) -> bool | None:
    """Return whether it takes no new replicas; None where it does not say."""
    row = _row(broker, snapshot)
    dirs = snapshot.log_dirs.cordoned[snapshot.log_dirs.brokers == row] if row is not None else ()
    return bool(np.all(dirs)) if len(dirs) else None


def partly_cordoned(broker: int, snapshot: Snapshot) -> bool:
    row = _row(broker, snapshot)
    return row is not None and bool(snapshot.log_dirs.cordoned[snapshot.log_dirs.brokers == row].any())


def adopted_state(broker: int, snapshot: Snapshot) -> BrokerLife:
    """Return the state of a broker that nobody recorded yet, as the cluster shows it."""
    if broker_state(broker, snapshot) is not BrokerState.ALIVE:
        return BrokerLife.FAILED
    return BrokerLife.CORDONED if cordoned(broker, snapshot) else BrokerLife.SERVING


def host_of(broker: int, snapshot: Snapshot) -> str:
    row = _row(broker, snapshot)
    return "" if row is None else snapshot.brokers.hosts[row]


def _row(broker: int, snapshot: Snapshot) -> int | None:
    ids = snapshot.brokers.ids
    row = int(np.searchsorted(ids, broker))
    return row if row < len(ids) and ids[row] == broker else None
