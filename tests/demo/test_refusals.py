"""Malformed records are compared with what was kept, one by one."""

from __future__ import annotations

from rtolap.demo.journal import compare_refusals
from rtolap.kafka.dead_letters import DeadLetter


def letter(partition: int, offset: int, reason: str = "empty") -> DeadLetter:
    return DeadLetter("flights", partition, offset, reason, "", None)


def test_what_both_receivers_report_counts_once() -> None:
    found = compare_refusals([(0, 3), (1, 4)], [letter(0, 3), letter(1, 4, "tombstone"), letter(0, 3)])
    assert found.all_kept
    assert found.by_reason == {"empty": 1, "tombstone": 1}


def test_a_lost_and_an_unexpected_refusal_are_named() -> None:
    found = compare_refusals([(0, 3), (1, 4)], [letter(0, 3), letter(2, 9)])
    assert not found.all_kept
    assert found.lost == {(1, 4)}
    assert found.unexpected == {(2, 9)}
