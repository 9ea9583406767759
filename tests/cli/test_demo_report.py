"""The end of a demonstration, as it is printed."""

from __future__ import annotations

import pytest
from rtolap.cli.local.demo import report
from rtolap.demo.journal import DemoJournal, compare_refusals, outcome
from rtolap.demo.moments import Moment
from rtolap.demo.recount import Rows

ROWS: Rows = ((1, "a", None),)


def journal(answer: Rows) -> DemoJournal:
    made = DemoJournal()
    made.note("planes_seen", {Moment.READY}, events=3, positions={0: 3}, answer=answer, recount=ROWS)
    made.refusals = compare_refusals([(0, 1)], [])
    return made


def test_equal_answers_and_moments_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    report(outcome(journal(ROWS), frozenset({Moment.READY})))
    printed = capsys.readouterr()
    assert "1 answers, each equal to the recount of exactly its prefix" in printed.out
    assert "READY" in printed.out
    assert "malformed records lost: [(0, 1)]" in printed.err


def test_a_wrong_answer_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    report(outcome(journal(((2, "a", None),)), frozenset({Moment.READY})))
    assert "1 of 1 answers differ from the recount" in capsys.readouterr().err
