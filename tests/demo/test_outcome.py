"""A demonstration is shown if all was equal, every moment was met and every malformed record was kept."""

from __future__ import annotations

import json

import pytest
from rtolap.cli.output import print_json
from rtolap.demo.journal import DemoJournal, compare_refusals, outcome
from rtolap.demo.moments import Moment
from rtolap.demo.recount import QUERIES, Rows

ROWS: Rows = ((1, "a", None),)
END = frozenset((Moment.END,))


def journal(answer: Rows = ROWS, *, kept: bool = True) -> DemoJournal:
    made = DemoJournal()
    for query in QUERIES:
        made.note(query.name, {Moment.END}, events=3, positions={0: 3}, answer=answer, recount=ROWS)
    made.refusals = compare_refusals([] if kept else [(0, 1)], [])
    return made


def test_equal_answers_at_the_required_moments_show_it() -> None:
    found = outcome(journal(), END)
    assert found.is_shown
    assert Moment.READY in found.missing_moments
    assert (found.asked, found.equal) == (len(QUERIES), len(QUERIES))


def test_a_missed_moment_a_wrong_answer_or_a_lost_record_does_not() -> None:
    assert not outcome(journal(), END | {Moment.READY}).is_shown
    assert not outcome(journal(((2, "a", None),)), END).is_shown
    assert not outcome(journal(kept=False), END).is_shown
    assert not outcome(DemoJournal(), frozenset()).is_shown


def test_it_is_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(outcome(journal(), END))
    document = json.loads(capsys.readouterr().out)
    assert document["is_shown"] is True
    first = document["answers"][0]
    assert (first["query"], first["moment"], first["events"], first["equal"]) == (
        QUERIES[0].name,
        "at the end",
        3,
        True,
    )
    assert document["refusals"]["sent"] == 0
    assert [moment["moment"] for moment in document["moments"]] == [moment.value for moment in Moment]
    assert document["moments"][-1]["queries"] == [query.name for query in QUERIES]
