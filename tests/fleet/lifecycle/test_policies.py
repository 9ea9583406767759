"""Policies propose to take brokers out of service only while it is safe, and say why they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from rtolap.base.errors import Corrupted
from rtolap.cli.fleet.policies import read_verdicts
from rtolap.fleet.lifecycle.policies import Proposal, SlowVerdict, Symptom, proposals
from rtolap.fleet.lifecycle.states import AuditEntry, BrokerEvent, BrokerLife, BrokerRecord
from rtolap.fleet.snapshot.model import MissingFact
from rtolap.model.fleet import BrokerPolicy

from tests.support.fleet.hand_made import hand_made

E, S = BrokerEvent, BrokerLife
RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}
TOPICS = {"paid": [[1, 3], [2, 4]]}
SLOW = SlowVerdict(3, -600_000, "Produce p99 900 ms, most of it in local")


def record(broker: int, state: BrokerLife) -> BrokerRecord:
    entry = AuditEntry(
        number=1, at_ms=0, by="ann", reason="x", event=None, operation_id="1", before=None, after=state
    )
    return BrokerRecord(broker=broker, host="h", state=state, entries=1, history=(entry,))


def proposed(
    records: dict[int, BrokerRecord] | None = None,
    slow: tuple[SlowVerdict, ...] = (),
    policy: BrokerPolicy = BrokerPolicy(),
    **fleet: Any,
) -> tuple[Proposal, ...]:
    return proposals(policy, hand_made(RACKS, TOPICS, **fleet), records or {}, slow)


def test_a_healthy_fleet_is_left_alone() -> None:
    assert proposed() == ()


def test_a_failed_disk_and_a_slow_broker_are_proposed_to_be_cordoned_and_drained() -> None:
    (disk,) = proposed(offline=[2])
    assert (disk.broker, disk.symptom, disk.operations) == (2, Symptom.FAILED_DISK, (E.CORDON, E.DRAIN))
    assert disk.evidence == "offline log directories: /d"
    assert not disk.applies
    (slow,) = proposed(slow=(SLOW,))
    assert (slow.broker, slow.symptom, slow.evidence) == (3, Symptom.SLOW_BROKER, SLOW.evidence)


def test_only_what_the_registry_says_is_done_without_a_person() -> None:
    policy = BrokerPolicy(failed_disk="apply", slow_broker="ignore")
    (disk,) = proposed(offline=[2], slow=(SLOW,), policy=policy)
    assert (disk.broker, disk.applies) == (2, True)


def test_a_broker_that_is_slow_for_a_moment_is_left_alone() -> None:
    assert proposed(slow=(msgspec.structs.replace(SLOW, since_ms=-599_999),)) == ()


def test_no_more_brokers_go_out_of_service_than_may() -> None:
    first, second = proposed(offline=[1, 2])
    assert first.operations == (E.CORDON, E.DRAIN)
    assert second.operations == ()
    assert second.held_back == "1 other brokers are out of service, and 1 may be"
    both = proposed(offline=[1, 2], policy=BrokerPolicy(out_of_service_max=2))
    assert [each.held_back for each in both] == ["", ""]


def test_brokers_of_two_racks_never_go_out_of_service_together() -> None:
    policy = BrokerPolicy(failed_disk="apply", out_of_service_max=4)
    _, other = proposed(offline=[1, 3], policy=policy)
    assert other.held_back == "broker 1 of another rack is out of service"
    assert not other.applies
    (away,) = proposed(offline=[3], fenced=[1], policy=policy)
    assert away.held_back == "broker 1 of another rack is out of service"
    (draining,) = proposed({1: record(1, S.DRAINING)}, offline=[3], policy=policy)
    assert draining.held_back == "broker 1 of another rack is out of service"


def test_nothing_is_proposed_of_what_is_not_known() -> None:
    unknown = MissingFact("log directories of broker 4", "no answer", ("drain",))
    (held,) = proposed(offline=[2], missing=[unknown])
    assert held.held_back == "not known: log directories of broker 4"


@pytest.mark.parametrize(
    ("state", "operations"),
    [
        (S.SERVING, (E.CORDON, E.DRAIN)),
        (S.CORDONED, (E.DRAIN,)),
        (S.FAILED, (E.DRAIN,)),
        (S.DRAINING, None),
        (S.REPAIRING, None),
    ],
)
def test_a_broker_that_is_taken_care_of_is_not_proposed_again(
    state: BrokerLife, operations: tuple[BrokerEvent, ...] | None
) -> None:
    found = proposed({2: record(2, state)}, offline=[2])
    assert [each.operations for each in found] == ([] if operations is None else [operations])


def test_verdicts_are_read_from_what_the_monitoring_prints(tmp_path: Path) -> None:
    row = {"broker": 3, "request": "Produce", "is_slow": True, "since_ms": 7, "p99_ms": 900.4}
    file = tmp_path / "slow.json"
    file.write_bytes(msgspec.json.encode({"rows": [{**row, "stage": "local"}, {**row, "is_slow": False}]}))
    assert read_verdicts(file) == (SlowVerdict(3, 7, "Produce p99 900 ms, most of it in local"),)
    file.write_text("{}")
    with pytest.raises(Corrupted, match="is not what"):
        read_verdicts(file)
