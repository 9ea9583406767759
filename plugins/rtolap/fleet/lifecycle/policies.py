"""Policies for disks that fail and brokers that are slow, as functions of what is known.

A failed disk makes its broker a candidate, and so does a slow broker. A candidate is proposed to be cordoned
and drained; but only while it is safe to: so many brokers at most are out of service at a time, all of them
in one rack, and nothing is proposed of what is not known. Who is named and left alone is told why: acting on
half of the facts does more harm than a slow broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec
import numpy as np

from rtolap.fleet.lifecycle.brokers import out_of_service
from rtolap.fleet.lifecycle.observations import adopted_state, serves, unmet
from rtolap.fleet.lifecycle.states import BrokerEvent, BrokerLife, BrokerRecord, legal
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.model.fleet import BrokerPolicy


class Symptom(StrEnum):
    FAILED_DISK = "failed_disk"
    SLOW_BROKER = "slow_broker"


class SlowVerdict(msgspec.Struct, frozen=True):
    """A broker that is slow by the rule of monitoring.

    Attributes:
        evidence: Requests, stage and percentile, in words.
    """

    broker: int
    since_ms: int
    evidence: str


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """Operations that a policy proposes for a broker.

    Attributes:
        operations: In their order. Empty where `held_back` gives the reason.
        applies: The registry allows the operations without a person.
        held_back: Why nothing is proposed. Empty where something is.
    """

    broker: int
    symptom: Symptom
    evidence: str
    operations: tuple[BrokerEvent, ...]
    applies: bool = False
    held_back: str = ""


def proposals(
    policy: BrokerPolicy,
    snapshot: FleetSnapshot,
    records: Mapping[int, BrokerRecord],
    slow: Iterable[SlowVerdict] = (),
) -> tuple[Proposal, ...]:
    """Propose operations: failed disks before slow brokers, each by id. The same facts give the same
    proposals."""
    found: list[Proposal] = []
    named: set[int] = set()
    for broker, symptom, evidence, mode in _candidates(policy, snapshot, slow):
        if mode == "ignore" or broker in named:
            continue
        named.add(broker)
        state = records[broker].state if broker in records else adopted_state(broker, snapshot)
        operations = _operations(state)
        if not operations:
            continue  # it is being taken care of
        chosen = [proposal.broker for proposal in found if proposal.operations]
        held_back = _held_back(policy, snapshot, records, chosen, broker, state)
        found.append(
            Proposal(
                broker=broker,
                symptom=symptom,
                evidence=evidence,
                operations=() if held_back else operations,
                applies=mode == "apply" and not held_back,
                held_back=held_back,
            )
        )
    return tuple(found)


def _candidates(
    policy: BrokerPolicy, snapshot: FleetSnapshot, slow: Iterable[SlowVerdict]
) -> Iterable[tuple[int, Symptom, str, str]]:
    dirs, ids = snapshot.log_dirs, snapshot.brokers.ids
    for row in np.unique(dirs.brokers[dirs.offline]):
        paths = [dirs.paths[at] for at in np.flatnonzero(dirs.offline & (dirs.brokers == row))]
        evidence = f"offline log directories: {', '.join(paths)}"
        yield int(ids[row]), Symptom.FAILED_DISK, evidence, policy.failed_disk
    for verdict in sorted(slow, key=lambda each: each.broker):
        long_enough = snapshot.taken_at_ms - verdict.since_ms >= policy.slow_for_ms
        if verdict.broker in ids and long_enough:
            yield verdict.broker, Symptom.SLOW_BROKER, verdict.evidence, policy.slow_broker


def _operations(state: BrokerLife) -> tuple[BrokerEvent, ...]:
    if legal(state, BrokerEvent.CORDON):
        return BrokerEvent.CORDON, BrokerEvent.DRAIN
    return (BrokerEvent.DRAIN,) if state in (BrokerLife.CORDONED, BrokerLife.FAILED) else ()


def _held_back(
    policy: BrokerPolicy,
    snapshot: FleetSnapshot,
    records: Mapping[int, BrokerRecord],
    chosen: Sequence[int],
    broker: int,
    state: BrokerLife,
) -> str:
    """Return why nothing is done about this broker now, "" where something is."""
    absent = [other for other in snapshot.brokers.ids.tolist() if not serves(other, snapshot)]
    away = {*out_of_service(records.values()), *absent, *chosen} - {broker}
    if len(away) >= policy.out_of_service_max:
        return f"{len(away)} other brokers are out of service, and {policy.out_of_service_max} may be"
    racks = dict(zip(snapshot.brokers.ids.tolist(), snapshot.brokers.racks, strict=True))
    elsewhere = sorted(other for other in away if other in racks and racks[other] != racks[broker])
    if elsewhere:
        return f"broker {elsewhere[0]} of another rack is out of service"
    missing = [fact.fact for fact in snapshot.missing if "drain" in fact.forbids]
    if missing:
        return f"not known: {missing[0]}"
    return unmet(BrokerEvent.DRAIN, state, broker, snapshot) or ""
